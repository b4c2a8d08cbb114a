"""Queues, channels, mutexes and tables between the ranks of a job on one host."""

from __future__ import annotations

from conftest import Stage, command


def test_ranks_work_from_a_named_queue_and_the_lease_of_a_dead_one_returns(stage: Stage) -> None:
    ended = stage.run(
        """
        import os, signal
        import syncline as sl
        from syncline import ipc
        sl.init()
        if sl.rank() == 0:
            work, made = ipc.workqueue("work")       # rank 0 makes both, and so owns them
            signs, _ = ipc.workqueue("signs")
            assert made
        sl.barrier()
        if sl.rank() != 0:
            work, made = ipc.workqueue("work")
            signs, _ = ipc.workqueue("signs")
            assert not made
        sl.barrier()
        if sl.rank() == 0:
            work.write(*range(20))
            assert signs.read(timeout=15) == "has one"
            signs.write("begin")
            work.drain(timeout=15)
            print("answers", sorted(work.read() for _ in range(20)), flush=True)
            work.close()
        elif sl.rank() == 2:
            work.read(timeout=15)
            signs.write("has one")
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            signs.read(timeout=15)
            for question in work:
                work.write(question * question)
        """,
        under=[command("syncline"), "run", "-n", "3"],
        env={"SYNCLINE_ON_PEER_LOSS": "continue"},
    )
    assert f"answers {sorted(n * n for n in range(20))}" in ended.out, ended


def test_handles_and_arrays_pass_between_ranks_and_their_workers(stage: Stage) -> None:
    ended = stage.run(
        """
        import numpy as np
        import syncline as sl
        from syncline import ipc

        def total(channel, mutex, table, id):
            for array in channel:
                with mutex:
                    table["sum"] += float(array.sum())

        def main():
            sl.init()
            if sl.rank() == 0:
                queue, _ = ipc.workqueue("meeting point")
                channel, mutex, table = ipc.channel(capacity=4), ipc.mutex(), ipc.sharedtable({"sum": 0.0})
                queue.write([channel, mutex, table])
            sl.barrier()
            if sl.rank() == 1:
                queue, _ = ipc.workqueue("meeting point")
                channel, mutex, table = queue.read(timeout=15)
                workers = ipc.map(2, total, channel, mutex, table)   # processes of rank 1, in the same family
                for _ in range(10):
                    channel.write(np.ones(100_000, np.float32))
                channel.close()
                workers.join()
            sl.barrier()
            if sl.rank() == 0:
                print("sum", table["sum"], flush=True)
            sl.barrier()

        if __name__ == "__main__":
            main()
        """,
        under=[command("syncline"), "run", "-n", "2"],
    )
    assert ended.status == 0 and "sum 1000000.0" in ended.out, ended


def test_a_job_of_one_and_what_was_made_before_it(stage: Stage) -> None:
    ended = stage.run(
        """
        import syncline as sl
        from syncline import ipc
        before = ipc.channel()
        sl.init()
        queue, made = ipc.workqueue("alone")
        assert made and not ipc.workqueue("alone")[1]
        queue.write(1)
        before.write(2)
        assert before.read() == (0, 2)
        sl.shutdown()
        after = ipc.channel()
        after.write(before)                          # of the same family again
        print("fine", after.num_items(), flush=True)
        """
    )
    assert (ended.status, ended.out) == (0, "fine 1\n"), ended
