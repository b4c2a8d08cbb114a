"""A forked child is not a member of the job: it is told so, and its parent does not notice it."""

from __future__ import annotations

import pytest
from conftest import Stage


def test_every_call_in_a_forked_child_says_what_to_do(stage: Stage) -> None:
    ended = stage.run(
        """
        import os, sys
        import syncline as sl
        sl.init()
        child = os.fork()
        if child == 0:
            for call in [sl.barrier, sl.rank, sl.size, sl.local_rank, sl.num_workers, sl.worker_id, sl.server_id,
                         sl.is_master_worker, sl.topology, sl.init, sl.shutdown]:
                try:
                    call()
                except sl.ForkError as error:
                    assert "was forked" in str(error) and "spawn" in str(error), error
                else:
                    print(call.__name__, "works in a fork")
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        sl.barrier()
        print("the parent goes on")
        """
    )
    assert (ended.status, ended.out, ended.err) == (0, "the parent goes on\n", ""), ended


@pytest.mark.parametrize("ending", ["sys.exit(0)", "sys.exit(1)", "raise RuntimeError", "os._exit(0)", "pass"])
def test_the_end_of_a_forked_child_is_not_the_end_of_its_parent(stage: Stage, ending: str) -> None:
    ranks = stage.start_ranks(
        2,
        f"""
        import os, sys
        import syncline as sl
        sl.init()
        child = os.fork() if sl.rank() == 0 else None
        if child == 0:
            {ending}
        else:
            if child is not None:
                os.waitpid(child, 0)
            sl.barrier()
            sl.barrier()
        """,
    )
    for rank in ranks:
        ended = rank.end()
        assert ended.status == 0, ended


def test_a_fork_before_init_may_join_on_its_own(stage: Stage) -> None:
    ended = stage.run(
        """
        import os
        import syncline as sl
        child = os.fork()
        sl.init()
        sl.barrier()
        if child:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        """
    )
    assert (ended.status, ended.err) == (0, ""), ended


@pytest.mark.parametrize(("method", "answer"), [("fork", "ForkError"), ("spawn", "Closed"), ("forkserver", "Closed")])
def test_children_of_multiprocessing_are_told_where_they_stand(stage: Stage, method: str, answer: str) -> None:
    ended = stage.run(
        f"""
        import multiprocessing
        import syncline as sl

        def ask(_):
            try:
                return sl.rank()
            except sl.SynclineError as error:
                return type(error).__name__

        if __name__ == "__main__":
            sl.init()
            with multiprocessing.get_context("{method}").Pool(2) as pool:
                print(pool.map(ask, range(2)))
                pool.close()
                pool.join()
            sl.barrier()
        """
    )
    assert (ended.status, ended.out) == (0, f"{[answer] * 2}\n"), ended


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_multiprocessing_may_be_the_ranks_of_a_job(stage: Stage, method: str) -> None:
    ended = stage.run(
        f"""
        import multiprocessing, os, uuid
        import syncline as sl

        def work(rank, job):
            os.environ.update(job, SYNCLINE_RANK=str(rank))
            sl.init()
            sl.barrier()
            print("rank", sl.rank(), "of", sl.size(), flush=True)

        if __name__ == "__main__":
            job = dict(SYNCLINE_WORLD_SIZE="2", SYNCLINE_TOKEN=uuid.uuid4().hex,
                       SYNCLINE_RENDEZVOUS="unix:@syncline-test-" + uuid.uuid4().hex)
            context = multiprocessing.get_context("{method}")
            ranks = [context.Process(target=work, args=(rank, job)) for rank in range(2)]
            for rank in ranks:
                rank.start()
            for rank in ranks:
                rank.join()
            print("ended", [rank.exitcode for rank in ranks])
        """
    )
    assert sorted(ended.out.splitlines()) == ["ended [0, 0]", "rank 0 of 2", "rank 1 of 2"], ended
    assert ended.err == "", ended
