"""Wrong calls and interrupted ones on tables of several workers: whoever made them is told, and nothing else is harmed."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from conftest import Stage
from table_jobs import SOME, run, said


@pytest.mark.parametrize("transport", [None, "tcp"])
def test_a_worker_that_is_too_far_ahead_is_told_how_far_and_of_whom(
    stage: Stage, tmp_path: Path, transport: str | None
) -> None:
    ended = run(
        stage,
        2,
        0,
        f"""
        import pathlib, time
        import numpy as np
        import syncline as sl

        folder = pathlib.Path({str(tmp_path)!r})
        sl.init(timeout=1.0)
        table = sl.ArrayTable(4, staleness=2, name="weights")
        if sl.worker_id() == 0:
            for own in (1, 2, 3):
                table.add(np.ones(4))
                try:
                    table.get()
                except sl.Timeout as error:
                    assert own == 3 and error.rank == 1, error
                    assert "`weights`: get after 3 adds" in str(error) and "to make add 1 too" in str(error), error
                    print("told", flush=True)
            (folder / "over").touch()
        else:
            while not (folder / "over").exists():
                time.sleep(0.01)
        """,
        transport=transport,
    )
    assert ended.status == 0 and len(said(ended, "told")) == 1, ended


@pytest.mark.parametrize(
    "difference",
    [
        "sl.ArrayTable(10 + me)",
        "sl.ArrayTable(10, dtype='float64' if me else 'float32')",
        "sl.ArrayTable(10, updater='sgd' if me else 'add')",
        "sl.ArrayTable(10) if me else sl.MatrixTable(5, 2)",
    ],
)
def test_tables_that_differ_are_shown_with_both_call_sites(stage: Stage, difference: str) -> None:
    ranks = stage.start_ranks(
        2,
        f"""
        import syncline as sl
        sl.init()
        me = sl.worker_id()
        try:
            table = {difference}
        except sl.ContractMismatch as error:
            text = str(error)
            assert "rank 0" in text and "rank 1" in text, text
            assert text.count("program0.py:6") == text.count("program1.py:6") == 1, text
            print("mismatch", flush=True)
        """,
    )
    for rank in ranks:
        ended = rank.end()
        assert (ended.status, ended.out) == (0, "mismatch\n"), ended


@pytest.mark.parametrize(("workers", "servers"), SOME)
def test_a_table_that_does_not_fit_is_an_error_for_all_and_harms_no_later_one(
    stage: Stage, workers: int, servers: int
) -> None:
    ended = run(
        stage,
        workers,
        servers,
        """
        import numpy as np
        import syncline as sl
        sl.init(timeout=5)
        before = sl.ArrayTable(3)
        try:
            sl.ArrayTable(2**40, name="huge")
        except sl.SynclineError as error:
            assert "huge" in str(error), error
        else:
            raise AssertionError("it fits")
        after = sl.ArrayTable(4)
        before.add(np.ones(3))
        after.add(np.ones(4))
        sl.barrier()
        assert before.get().tolist() == [sl.num_workers()] * 3 and after.get().tolist() == [sl.num_workers()] * 4
        print("unharmed", flush=True)
        """,
    )
    assert ended.status == 0 and len(said(ended, "unharmed")) == workers, ended


@pytest.mark.parametrize("transport", [None, "tcp"])
@pytest.mark.parametrize("servers", [0, 2])
def test_calls_that_were_interrupted_lose_nothing(stage: Stage, servers: int, transport: str | None) -> None:
    ended = run(
        stage,
        2,
        servers,
        """
        import sys
        import numpy as np
        import syncline as sl
        sys.path.insert(0, """
        + repr(str(Path(__file__).parent))
        + """)
        from conftest import interrupt_once_asleep

        sl.init(sync=True)
        me, rows = sl.worker_id(), [1, 39]
        array, matrix, keys = sl.ArrayTable(4), sl.MatrixTable(40, 2), sl.KVTable()
        mine = np.zeros((40, 2), np.float32)
        matrix.get_changed(mine)
        for round in range(1, 4):
            if me == 0:
                sl.aggregate(np.zeros(1))  # adds only when the other one has given up its waits
            array.add(np.ones(4))
            matrix.add(np.ones((2, 2)), rows)
            keys.add(rows, [1, 1])
            if me == 1:
                calls = [array.get, lambda: matrix.get(rows), lambda: keys.get(rows), lambda: matrix.get_changed(mine)]
                for call in [*calls, lambda: array.get_async().wait()]:
                    interrupt_once_asleep()
                    try:
                        call()
                    except KeyboardInterrupt:
                        continue
                    raise AssertionError("it did not wait")
                sl.aggregate(np.zeros(1))
            assert array.get().tolist() == [2 * round] * 4
            assert matrix.get(rows).tolist() == [[2 * round] * 2] * 2
            assert keys.get(rows).tolist() == [2 * round] * 2
            assert matrix.get_changed(mine).tolist() == rows, "what others changed is told once it can be"
            assert (mine[rows] == 2 * round).all(), mine
        print("kept", flush=True)
        """,
        transport=transport,
    )
    assert ended.status == 0 and len(said(ended, "kept")) == 2, ended


@pytest.mark.parametrize("servers", [0, 1])
def test_a_mismatch_harms_neither_the_tables_nor_the_job(stage: Stage, servers: int) -> None:
    ended = run(
        stage,
        2,
        servers,
        """
        import numpy as np
        import syncline as sl
        sl.init()
        me = sl.worker_id()
        before = sl.ArrayTable(3, [1, 2, 3])
        sizes = (10, 20) if me == 0 else (20, 10)  # the same tables, in another order
        try:
            sl.ArrayTable(sizes[0])
        except sl.ContractMismatch as error:
            assert "10" in str(error) and "20" in str(error), error
        else:
            raise AssertionError("nobody noticed")
        after = sl.ArrayTable(4)
        before.add(np.ones(3), sync=True)
        after.add(np.ones(4), sync=True)
        sl.barrier()
        assert before.get().tolist() == [3, 4, 5] and after.get().tolist() == [2] * 4
        print("unharmed", flush=True)
        sl.shutdown()
        """,
    )
    assert ended.status == 0 and len(said(ended, "unharmed")) == 2, ended


@pytest.mark.parametrize("stopped", [0, 1])
def test_an_add_that_was_interrupted_before_all_servers_had_it_is_in_none_and_the_next_one_works(
    stage: Stage, stopped: int
) -> None:
    ended = run(
        stage,
        1,
        2,
        """
        import os, signal, sys
        from pathlib import Path
        import numpy as np
        import syncline as sl
        sys.path.insert(0, """
        + repr(str(Path(__file__).parent))
        + f""")
        from conftest import interrupt_once_asleep
        sl.init()
        table = sl.MatrixTable(100, 8)
        sl.barrier()
        family = Path(f"/proc/{{os.getppid()}}/task/{{os.getppid()}}/children").read_text().split()
        role = "SYNCLINE_ROLE=server"
        servers = [int(pid) for pid in family if role in Path(f"/proc/{{pid}}/environ").read_text()]
        for round in range(1, 4):
            os.kill(servers[{stopped}], signal.SIGSTOP)
            interrupt_once_asleep()
            try:
                table.add(np.full((100, 8), 1000), sync=True)
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            finally:
                os.kill(servers[{stopped}], signal.SIGCONT)
            table.add(np.ones((100, 8)))
            assert (table.get() == round).all(), table.get()
        """,
        transport="tcp",
    )
    assert ended.status == 0 and len(said(ended, "interrupted")) == 3, ended


def test_the_call_site_is_the_users_even_through_the_old_package(stage: Stage) -> None:
    ranks = stage.start_ranks(
        2,
        """
        import multiverso as mv
        import syncline as sl
        mv.init()
        try:
            table = mv.ArrayTableHandler(10 + mv.worker_id())
        except sl.ContractMismatch as error:
            print("program0.py:6" in str(error), "program1.py:6" in str(error), flush=True)
        """,
    )
    for rank in ranks:
        ended = rank.end()
        assert (ended.status, ended.out) == (0, "True True\n"), ended


def test_ctrl_c_ends_a_get_that_waits_for_another_worker(stage: Stage) -> None:
    _, waiting = stage.start_ranks(
        2,
        """
        import os, signal, threading, time
        import numpy as np
        import syncline as sl
        sl.init(sync=True)
        table = sl.ArrayTable(4)
        sl.barrier()
        if sl.rank() == 0:
            signal.pause()
        def interrupt():
            time.sleep(0.3)
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)
        sent = []
        threading.Thread(target=interrupt, daemon=True).start()
        table.add(np.ones(4))
        future = table.get_async()
        try:
            table.get()
        except KeyboardInterrupt:
            print("interrupted", time.monotonic() - sent[0] < 1.0, flush=True)
        assert not future.done()
        try:
            future.wait(timeout=0.05)
        except TimeoutError as error:
            print("late", isinstance(error, sl.Timeout), flush=True)
        sent.clear()
        threading.Thread(target=interrupt, daemon=True).start()
        try:
            future.wait()
        except KeyboardInterrupt:
            print("again", time.monotonic() - sent[0] < 1.0, flush=True)
        os._exit(0)
        """,
        timeout=15.0,
    )
    assert waiting.wait_for_line("interrupted") == "interrupted True"
    assert waiting.wait_for_line("late") == "late True"
    assert waiting.wait_for_line("again") == "again True"
    waiting.end()


@pytest.mark.parametrize("servers", [0, 1])
def test_errors_over_links_name_the_table_and_clocks_are_no_exception(stage: Stage, servers: int) -> None:
    ended = run(
        stage,
        2,
        servers,
        """
        import os, signal
        import numpy as np
        import syncline as sl
        sl.init()
        table, keys = sl.ArrayTable(1000, name="weights", staleness=1), sl.KVTable(name="counts", staleness=1)
        sl.barrier()
        if sl.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        texts = []
        for name, table, call in [
            ("weights", table, lambda: (table.add(np.ones(1000)), table.get())),
            ("counts", keys, lambda: (keys.add(range(50), np.ones(50)), keys.get(range(50)))),
            ("weights", table, lambda: table.add(np.ones(1000), sync=True)),
        ]:
            try:
                while True:
                    call()
            except sl.PeerLost as error:
                assert f"`{name}`" in str(error) and error.rank == 1, error
        if sl.server_id() == 0:
            for table in (table, keys):
                try:
                    raise AssertionError(f"clocks of the dead: {table.clocks}")
                except sl.PeerLost as error:
                    assert error.rank == 1, error
        print("named", flush=True)
        """,
        transport="tcp",
    )
    assert said(ended, "named") == [""], ended
