"""One process without a launcher: a world of one, where everything works as in a large job."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest
import syncline as sl
from conftest import LAUNCHERS, TORCHRUN, Stage

QUESTIONS = [
    sl.rank,
    sl.size,
    sl.local_rank,
    sl.num_workers,
    sl.worker_id,
    sl.server_id,
    sl.is_master_worker,
    sl.topology,
]


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in list(os.environ):
        if name.startswith(LAUNCHERS) or name in TORCHRUN:
            monkeypatch.delenv(name)
    yield
    sl.shutdown()


def test_a_process_alone_is_rank_0_of_1_worker_and_server() -> None:
    sl.init()
    assert (sl.rank(), sl.size(), sl.local_rank()) == (0, 1, 0)
    assert (sl.num_workers(), sl.worker_id(), sl.server_id()) == (1, 0, 0)
    assert sl.is_master_worker() is True
    sl.barrier()


def test_the_topology_shows_itself() -> None:
    sl.init()
    topology = sl.topology()
    assert [host.ranks for host in topology.hosts] == [[0]]
    assert topology.hosts[0].name == os.uname().nodename
    assert str(topology).startswith("1 rank on 1 host")
    assert str(os.getpid()) in str(topology)
    assert repr(topology) == "<syncline.Topology: 1 rank on 1 host>"


def test_init_twice_is_an_error_and_changes_nothing() -> None:
    sl.init()
    with pytest.raises(sl.SynclineError, match=r"(?s)already in a job.*hint: call sl\.init\(\) once"):
        sl.init()
    assert sl.size() == 1


def test_the_job_is_a_context_manager() -> None:
    with sl.init() as job:
        assert repr(job) == "<syncline.Job: rank 0 of 1>"
        sl.barrier()
    assert repr(job) == "<syncline.Job: ended>"
    with pytest.raises(sl.Closed, match="has left its job"):
        sl.barrier()


def test_an_exception_leaves_the_block_and_the_job() -> None:
    with pytest.raises(RuntimeError, match="mine"), sl.init():
        raise RuntimeError("mine")
    with pytest.raises(sl.Closed):
        sl.rank()


def test_a_process_alone_may_start_again() -> None:
    for _ in range(3):
        sl.init()
        sl.barrier()
        sl.shutdown()


def test_shutdown_is_harmless_without_a_job_and_twice() -> None:
    sl.shutdown()
    sl.init()
    sl.shutdown()
    sl.shutdown()


def test_every_call_before_init_says_to_call_it(stage: Stage) -> None:
    ended = stage.run(
        """
        import syncline as sl
        for call in [sl.barrier, sl.rank, sl.size, sl.local_rank, sl.num_workers, sl.worker_id, sl.server_id,
                     sl.is_master_worker, sl.topology]:
            try:
                call()
            except sl.Closed as error:
                text = f"{call.__name__}: this process is in no job yet\\nhint: call sl.init() first"
                assert str(error) == text, error
            else:
                raise SystemExit(f"{call.__name__} works without a job")
        """
    )
    assert ended.status == 0, ended


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_call_after_shutdown_says_that_it_is_too_late(question: object) -> None:
    assert callable(question)
    sl.init()
    sl.shutdown()
    with pytest.raises(sl.Closed, match="has left its job"):
        question()


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf")])
def test_a_timeout_that_is_no_time_is_refused(timeout: float) -> None:
    with pytest.raises(sl.ConfigurationError, match=r"(?s)timeout=.*hint:") as caught:
        sl.init(timeout=timeout)
    assert isinstance(caught.value, ValueError)
    sl.init(timeout=5)  # the refusal left no half-open job behind


def test_a_timeout_in_the_environment_that_is_no_number_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNCLINE_TIMEOUT", "soon")
    with pytest.raises(sl.ConfigurationError, match="SYNCLINE_TIMEOUT"):
        sl.init()
    monkeypatch.delenv("SYNCLINE_TIMEOUT")
    sl.init()


def test_threads_may_all_use_the_job() -> None:
    sl.init()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(200):
                sl.barrier()
                assert sl.rank() == 0
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_only_one_of_many_threads_can_init() -> None:
    outcomes: list[str] = []

    def work() -> None:
        try:
            sl.init()
            outcomes.append("joined")
        except sl.SynclineError:
            outcomes.append("refused")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["joined"] + ["refused"] * 7
