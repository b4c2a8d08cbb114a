"""Tables of several workers, with the tables in the workers themselves or in dedicated servers."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from conftest import Ended, Stage, command

# How many workers, how many dedicated servers.
LAYOUTS = [(workers, servers) for workers in (1, 2, 3, 4) for servers in (0, 1, 2, 3)]
SOME = [(1, 0), (3, 0), (2, 1), (3, 2)]


def run(stage: Stage, workers: int, servers: int, code: str, *, transport: str | None = None) -> Ended:
    more = ["--servers", str(servers)] if servers else []
    env = {"SYNCLINE_TRANSPORT": transport} if transport else {}
    return stage.run(code, under=[command("syncline"), "run", "-n", str(workers), *more], env=env)


def said(ended: Ended, word: str) -> list[str]:
    """What followed `word` in the lines of the job, whoever printed them."""
    return re.findall(rf"\b{word}\b ?(.*)$", ended.out, re.MULTILINE)


# Multiverso's own tests, with their numbers; the one of a single element is disabled there.
ORIGINAL = """
    import numpy as np
    import multiverso as mv

    mv.init()
    workers = mv.workers_num()

    size = 10000
    table = mv.ArrayTableHandler(size)
    mv.barrier()
    counted = np.arange(1, size + 1)
    for i in range(100):
        table.add(counted)
        table.add(counted)
        mv.barrier()
        assert (table.get() == counted * (i + 1) * 2 * workers).all(), i
        mv.barrier()

    small = mv.ArrayTableHandler(1)
    small.add([1])
    mv.barrier()
    assert small.get().tolist() == [workers]
    mv.barrier()

    num_row, num_col = 11, 10
    row_ids = [0, 1, 5, 10]
    matrix = mv.MatrixTableHandler(num_row, num_col)
    mv.barrier()
    data = list(range(num_row * num_col))
    rows_data = [[row * num_col + col for col in range(num_col)] for row in row_ids]
    for count in range(1, 21):
        matrix.add(data)
        matrix.add(rows_data, row_ids)
        mv.barrier()
        whole = matrix.get()
        mv.barrier()
        for i, row in enumerate(whole):
            for j, actual in enumerate(row):
                expected = (i * num_col + j) * count * workers
                if i in row_ids:
                    expected *= 2
                assert actual == expected, (count, i, j, actual, expected)
        rows = matrix.get(row_ids)
        mv.barrier()
        for i, row in enumerate(rows):
            for j, actual in enumerate(row):
                expected = (row_ids[i] * num_col + j) * count * workers * 2
                assert actual == expected, (count, i, j, actual, expected)
    print("held", mv.worker_id(), flush=True)
    mv.shutdown()
"""


@pytest.mark.parametrize(("workers", "servers"), LAYOUTS)
def test_the_originals_tests_hold(stage: Stage, workers: int, servers: int) -> None:
    ended = run(stage, workers, servers, ORIGINAL)
    assert ended.status == 0, ended
    assert sorted(said(ended, "held")) == [str(worker) for worker in range(workers)], ended


@pytest.mark.parametrize("transport", ["unix", "tcp"])
def test_the_originals_tests_hold_without_shared_memory(stage: Stage, transport: str) -> None:
    ended = run(stage, 2, 0, ORIGINAL, transport=transport)
    assert ended.status == 0, ended
    assert sorted(said(ended, "held")) == ["0", "1"], ended


@pytest.mark.parametrize(("workers", "servers"), SOME)
def test_the_i_th_get_of_every_worker_is_the_same_in_sync_mode(stage: Stage, workers: int, servers: int) -> None:
    ended = run(
        stage,
        workers,
        servers,
        """
        import hashlib, random, time
        import numpy as np
        import syncline as sl

        sl.init(sync=True)
        me, workers = sl.worker_id(), sl.num_workers()
        table = sl.ArrayTable(1000, np.full(1000, 0.5))
        rows = sl.MatrixTable(10, 3)
        numbers, delays = np.random.default_rng(me), random.Random(me)
        digest = hashlib.sha256()
        for round in range(30):
            time.sleep(delays.choice([0, 0, 0.002]))
            table.add(numbers.normal(size=1000))
            rows.add(np.ones(3), [(me + round) % 10])  # each worker another row
            digest.update(table.get().tobytes())
            fetched = rows.get()
            assert fetched.sum() == 3 * workers * (round + 1), fetched
            digest.update(fetched.tobytes())
        print("saw", digest.hexdigest(), flush=True)
        """,
    )
    assert ended.status == 0, ended
    assert len(said(ended, "saw")) == workers, ended
    assert len(set(said(ended, "saw"))) == 1, ended


@pytest.mark.parametrize(("workers", "servers"), SOME)
def test_in_sync_mode_loops_may_differ_in_length_and_begin_with_the_get(
    stage: Stage, workers: int, servers: int
) -> None:
    ended = run(
        stage,
        workers,
        servers,
        """
        import numpy as np
        import syncline as sl

        sl.init(sync=True)
        me, workers = sl.worker_id(), sl.num_workers()
        table = sl.ArrayTable(5)
        for round in range(5 + 3 * me):
            # After `round` rounds: those that left early took part in as many as they had.
            expected = sum(min(round, 5 + 3 * other) for other in range(workers))
            assert table.get().tolist() == [expected] * 5, (round, table.get())
            table.add(np.ones(5))
        sl.shutdown()
        print("left", me, flush=True)
        """,
    )
    assert ended.status == 0, ended
    assert len(said(ended, "left")) == workers, ended


@pytest.mark.parametrize(("workers", "servers"), SOME)
def test_the_masters_initial_value_counts_and_is_in_place_at_once(stage: Stage, workers: int, servers: int) -> None:
    ended = run(
        stage,
        workers,
        servers,
        """
        import numpy as np
        import syncline as sl

        sl.init()
        me = sl.worker_id()
        for size in (0, 1, 2, 3, 100):
            for updater in ("add", "sgd", "adagrad"):
                table = sl.ArrayTable(size, np.arange(size) + 100 * me, updater=updater)
                assert table.get().tolist() == list(range(size)), (size, updater, table.get())
                assert max(table.clocks) == 0
        matrix = sl.MatrixTable(3, 2, np.arange(6) if me == 0 else None)
        assert matrix.get([2, 0]).tolist() == [[4, 5], [0, 1]]
        assert sl.rank() == me, "workers are numbered by rank"
        print("same", me, flush=True)
        """,
    )
    assert ended.status == 0, ended
    assert len(said(ended, "same")) == workers, ended


@pytest.mark.parametrize(("workers", "servers"), SOME)
def test_staleness_is_bounded_and_can_be_watched(stage: Stage, workers: int, servers: int) -> None:
    ended = run(
        stage,
        workers,
        servers,
        """
        import random, time
        import numpy as np
        import syncline as sl

        sl.init()
        delays = random.Random(sl.worker_id())
        table = sl.ArrayTable(4, staleness=2)
        for round in range(1, 31):
            time.sleep(delays.choice([0, 0, 0.003]))
            table.add(np.ones(4))
            fetched = table.get()
            assert table.clock() == round
            assert min(table.clocks) >= round - 2, table.clocks
            assert fetched[0] >= round + (round - 2) * (sl.num_workers() - 1), (round, fetched)
        sl.barrier()
        assert table.get().tolist() == [30 * sl.num_workers()] * 4
        print("bounded", flush=True)
        """,
    )
    assert ended.status == 0, ended
    assert len(said(ended, "bounded")) == workers, ended


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


@pytest.mark.parametrize(("workers", "servers"), [(2, 0), (2, 2)])
def test_only_rows_that_others_changed_come_back(stage: Stage, workers: int, servers: int) -> None:
    ended = run(
        stage,
        workers,
        servers,
        """
        import numpy as np
        import syncline as sl

        sl.init()
        me = sl.worker_id()
        for dtype in ("float32", "float64"):
            table = sl.MatrixTable(6, 2, np.arange(12), dtype=dtype)
            mine = np.zeros((6, 2), dtype)
            assert table.get_changed(mine).tolist() == [0, 1, 2, 3, 4, 5]
            assert mine.ravel().tolist() == list(range(12))
            sl.barrier()
            mine[:] = -1
            if me == 0:
                table.add(np.ones((2, 2)), [4, 1])
            sl.barrier()
            changed = table.get_changed(mine).tolist()
            assert changed == ([] if me == 0 else [1, 4]), changed
            if me == 1:
                assert mine.tolist() == [[-1, -1], [3, 4], [-1, -1], [-1, -1], [9, 10], [-1, -1]], mine
            assert table.get_changed(mine).tolist() == []
            sl.barrier()
        print("brought", flush=True)
        """,
    )
    assert ended.status == 0, ended
    assert len(said(ended, "brought")) == workers, ended


@pytest.mark.parametrize(("workers", "servers"), SOME)
def test_keys_live_somewhere_whatever_they_are(stage: Stage, workers: int, servers: int) -> None:
    ended = run(
        stage,
        workers,
        servers,
        """
        import numpy as np
        import syncline as sl

        sl.init()
        me, workers = sl.worker_id(), sl.num_workers()
        table = sl.KVTable(value="float64")
        keys = np.array([0, 1, -1, 2**62, -(2**63), 12345678901])
        table.add(keys, np.arange(6))
        table.add(me, 100)
        assert table.get(me) >= 100, "a worker reads its own adds"
        sl.barrier()
        fetched = table.get(keys)
        expected = np.arange(6) * workers + 100.0 * np.isin(keys, range(workers))
        assert (fetched == expected).all(), (fetched, expected)
        assert table.get([99, -99]).tolist() == [0, 0]
        print("kept", flush=True)
        """,
    )
    assert ended.status == 0, ended
    assert len(said(ended, "kept")) == workers, ended


@pytest.mark.parametrize(("workers", "servers"), SOME)
def test_aggregate_combines_the_workers_arrays(stage: Stage, workers: int, servers: int) -> None:
    ended = run(
        stage,
        workers,
        servers,
        """
        import ml_dtypes
        import numpy as np
        import syncline as sl

        sl.init()
        me, workers = sl.worker_id(), sl.num_workers()
        one = np.ones(1, np.float32)
        assert sl.aggregate(one) is one and one.tolist() == [workers]
        for dtype in ("float32", "float64", "float16", ml_dtypes.bfloat16, "int8", "int16", "int32", "int64", "uint8"):
            everyone = np.arange(1, workers + 1)[:, None] * np.arange(1, 6)
            for op in ("sum", "prod", "min", "max"):
                mine = everyone[me].astype(dtype)
                sl.aggregate(mine, op)
                expected = getattr(np, op)(everyone, axis=0)
                if op == "prod":
                    expected = expected.astype(dtype)
                assert mine.astype(float).tolist() == expected.astype(float).tolist(), (dtype, op, mine, expected)
        strided = np.full((3, 4), float(me))[:, ::2]
        sl.aggregate(strided, "mean")
        assert (strided == (workers - 1) / 2).all(), strided
        third = np.full(1000, 1 / 3, np.float32)
        assert (sl.aggregate(third, "mean") == np.float32(1 / 3)).all() or workers == 3
        large = np.full(1_000_000, me + 1, np.float32)
        sl.aggregate(large)
        assert (large == workers * (workers + 1) / 2).all()
        print("combined", flush=True)
        """,
    )
    assert ended.status == 0, ended
    assert len(said(ended, "combined")) == workers, ended


CHECKPOINT = """
    import sys
    import numpy as np
    import syncline as sl

    sl.init()
    weights = sl.ArrayTable(1000, updater="momentum_sgd", name="weights")
    rows = sl.MatrixTable(7, 3, dtype="float64", name="rows")
    counts = sl.KVTable(value="int64", name="counts")
    nothing = sl.ArrayTable(0)
"""


@pytest.mark.parametrize(("before", "after"), [((3, 0), (2, 0)), ((2, 0), (1, 2)), ((2, 3), (3, 1)), ((1, 0), (4, 0))])
def test_a_checkpoint_loads_on_any_number_of_workers_and_servers(
    stage: Stage, tmp_path: Path, before: tuple[int, int], after: tuple[int, int]
) -> None:
    path = tmp_path / "checkpoint"
    saved = run(
        stage,
        *before,
        CHECKPOINT
        + f"""
    weights.add(np.full(1000, 8.0 / sl.num_workers()), momentum=0.0)
    if sl.is_master_worker():
        rows.add(np.arange(21))
        counts.add([5, -5], [1, 2])
    sl.barrier()
    sl.save({str(path)!r})
    print("saved", flush=True)
""",
    )
    assert saved.status == 0, saved
    loaded = run(
        stage,
        *after,
        CHECKPOINT
        + f"""
    sl.load({str(path)!r})
    assert np.allclose(weights.get(), -8.0), weights.get()
    assert rows.get().ravel().tolist() == list(range(21))
    assert counts.get([5, -5, 6]).tolist() == [1, 2, 0]
    sl.barrier()
    rows.add(np.ones((1, 3)), [6])
    sl.barrier()
    assert rows.get([6]).tolist() == [[18 + sl.num_workers(), 19 + sl.num_workers(), 20 + sl.num_workers()]]
    print("loaded", flush=True)
""",
    )
    assert loaded.status == 0, loaded
    assert len(said(loaded, "loaded")) == after[0], loaded


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
@pytest.mark.parametrize(("workers", "servers"), [(2, 0), (2, 2)])
def test_rows_that_a_load_changed_come_back_to_everybody(
    stage: Stage, tmp_path: Path, workers: int, servers: int, transport: str | None
) -> None:
    ended = run(
        stage,
        workers,
        servers,
        f"""
        import numpy as np
        import syncline as sl

        sl.init()
        table = sl.MatrixTable(6, 2)
        mine = np.zeros((6, 2), np.float32)
        table.get_changed(mine)
        sl.save({str(tmp_path / "checkpoint")!r})
        table.add(np.ones((2, 2)), [4, 1], sync=True)
        sl.barrier()
        table.get_changed(mine)
        sl.barrier()
        sl.load({str(tmp_path / "checkpoint")!r})
        assert table.get_changed(mine).tolist() == [0, 1, 2, 3, 4, 5]
        assert not mine.any(), mine
        assert table.get_changed(mine).tolist() == []
        print("brought", flush=True)
        """,
        transport=transport,
    )
    assert ended.status == 0 and len(said(ended, "brought")) == workers, ended


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


def test_a_server_needs_no_word_about_its_role(stage: Stage) -> None:
    choose = 'if [ "$SYNCLINE_RANK" = 1 ]; then exec "$0" server; fi; exec "$@"'
    ended = stage.run(
        """
        import numpy as np
        import syncline as sl
        sl.init(timeout=5)
        table = sl.ArrayTable(3)
        table.add(np.ones(3))
        sl.barrier()
        print("workers", sl.num_workers(), table.get().tolist(), flush=True)
        """,
        under=[command("syncline"), "run", "-n", "2", "sh", "-c", choose, command("syncline")],
    )
    assert ended.status == 0 and said(ended, "workers") == ["1 [1.0, 1.0, 1.0]"], ended


def test_an_add_returns_while_its_server_stands_still(stage: Stage) -> None:
    ended = run(
        stage,
        1,
        1,
        """
        import os, signal
        from pathlib import Path
        import numpy as np
        import syncline as sl
        sl.init()
        size = 12_000_000  # 48 MB: more than all buffers on the way take
        table = sl.ArrayTable(size)
        sl.barrier()
        family = Path(f"/proc/{os.getppid()}/task/{os.getppid()}/children").read_text().split()
        role = "SYNCLINE_ROLE=server"
        [server] = [int(pid) for pid in family if role in Path(f"/proc/{pid}/environ").read_text()]
        os.kill(server, signal.SIGSTOP)
        try:
            delta = np.ones(size, dtype=np.float32)
            table.add(delta)
            state = Path(f"/proc/{server}/stat").read_text().rsplit(")", 1)[1].split()[0]
            delta[:] = 77  # it was taken over
        finally:
            os.kill(server, signal.SIGCONT)
        assert state == "T", state
        assert (table.get() == 1).all()
        print("returned", flush=True)
        """,
        transport="tcp",
    )
    assert ended.status == 0 and said(ended, "returned"), ended


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


@pytest.mark.parametrize("transport", [None, "tcp"])
def test_an_add_to_a_round_does_not_wait_for_the_other_workers(stage: Stage, transport: str | None) -> None:
    ended = run(
        stage,
        2,
        0,
        """
        import numpy as np
        import syncline as sl
        sl.init()
        small, large = (sl.ArrayTable(size, staleness=0) for size in (1000, 1_000_000))

        def add() -> None:
            # Of a large array one add is on its way; of small ones many.
            large.add(np.ones(1_000_000))
            for _ in range(100):
                small.add(np.ones(1000))

        if sl.worker_id() == 0:
            add()
        sl.barrier()  # the other one adds only when this one has
        if sl.worker_id() == 1:
            add()
        assert (large.get() == 2).all() and (small.get() == 200).all()
        print("went on", flush=True)
        """,
        transport=transport,
    )
    assert ended.status == 0 and len(said(ended, "went on")) == 2, ended


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_a_table_is_in_memory_once_and_each_worker_adds_one_buffer(stage: Stage, workers: int) -> None:
    ended = run(
        stage,
        workers,
        0,
        """
        import numpy as np
        import syncline as sl
        sl.init()
        MB = 1 << 20

        def shared() -> float:
            "Megabytes of shared memory of all workers together; a page that several have mapped counts once."
            mine, ours = 0, False
            for line in open("/proc/self/smaps"):
                words = line.split()
                if "-" in words[0] and ":" not in words[0]:
                    ours = "memfd:" in line
                elif ours and words[0] == "Pss:":
                    mine += int(words[1])
            return float(sl.aggregate(np.array([mine / 1024]))[0])

        sl.barrier()
        before = shared()
        table = sl.ArrayTable(64 * MB // 4)
        sl.barrier()
        made = shared() - before
        sl.barrier()
        delta, out = np.ones(64 * MB // 4, dtype=np.float32), np.zeros(64 * MB // 4, dtype=np.float32)
        for _ in range(3):
            table.add(delta)
            table.get(out=out)
        sl.barrier()
        used = shared() - before
        print("megabytes", round(made, 1), round(used, 1), flush=True)
        sl.barrier()
        assert 60 < made < 64 + 8, made
        assert used < 64 + sl.size() * 64 + 8 * sl.size(), used
        """,
    )
    assert ended.status == 0 and len(said(ended, "megabytes")) == workers, ended


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


@pytest.mark.parametrize("staleness", [0, 1])
def test_a_worker_that_dies_is_named_by_those_that_wait_for_it(stage: Stage, staleness: int) -> None:
    ranks = stage.start_ranks(
        3,
        f"""
        import os, signal, time
        import numpy as np
        import syncline as sl
        sl.init()
        table = sl.ArrayTable(4, staleness={staleness})
        sl.barrier()
        print("in", flush=True)
        if sl.rank() == 1:
            signal.pause()
        try:
            while True:
                table.add(np.ones(4))
                table.get()
        except sl.PeerLost as error:
            print("lost", error.rank, flush=True)
        """,
        timeout=15.0,
    )
    for rank in ranks:
        rank.wait_for_line("in")
    ranks[1].signal(signal.SIGKILL)
    for number in (0, 2):
        assert ranks[number].wait_for_line("lost") == "lost 1"
        ranks[number].end()


@pytest.mark.parametrize("servers", [0, 2])
def test_a_worker_that_fails_is_the_only_one_whose_fate_servers_speak_of(stage: Stage, servers: int) -> None:
    ended = run(
        stage,
        3,
        servers,
        """
        import numpy as np
        import syncline as sl

        sl.init()
        tables = [sl.ArrayTable(100) for _ in range(5)] + [sl.KVTable()]
        for table in tables[:5]:
            table.add(np.ones(100))
        tables[5].add([1, 2, 3], [1, 1, 1])
        sl.barrier()
        if sl.worker_id() == 1:
            raise ValueError("nothing to do with tables")
        sl.barrier()
        """,
        transport="tcp",
    )
    assert ended.status == 1 and "nothing to do with tables" in ended.err, ended
    assert "PeerLost" in ended.err and "verdict" not in ended.err, ended


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


def test_threads_run_while_a_get_waits(stage: Stage) -> None:
    first, second = stage.start_ranks(
        2,
        """
        import threading, time
        import numpy as np
        import syncline as sl
        sl.init(sync=True)
        table = sl.ArrayTable(4)
        if sl.rank() == 0:
            ticks, over = [], threading.Event()
            def tick():
                while not over.wait(0.01):
                    ticks.append(None)
            thread = threading.Thread(target=tick)
            thread.start()
            table.add(np.ones(4))
            assert table.get().tolist() == [2, 2, 2, 2]
            over.set()
            thread.join()
            assert len(ticks) >= 5, len(ticks)
        else:
            time.sleep(0.4)
            table.add(np.ones(4))
            table.get()
        """,
    )
    for rank in (first, second):
        ended = rank.end()
        assert ended.status == 0, ended


@pytest.mark.parametrize("transport", [None, "tcp"])
@pytest.mark.parametrize("sync", [False, True])
def test_dedicated_servers_go_on_where_the_workers_asked_to(stage: Stage, sync: bool, transport: str | None) -> None:
    ended = run(
        stage,
        3,
        2,
        f"""
        import os, signal
        import numpy as np
        import syncline as sl
        sl.init(sync={sync}, on_peer_loss="continue")
        table, keys = sl.MatrixTable(4, 2), sl.KVTable()
        table.add(np.ones(8), sync=True)
        keys.add(range(8), np.ones(8), sync=True)
        sl.barrier()
        if sl.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        for _ in range(10):
            table.add(np.ones(8))
            keys.add(range(8), np.ones(8))
            table.get()
        sl.barrier()
        print("total", table.get().sum(), keys.get(range(8)).sum(), flush=True)
        """,
        transport=transport,
    )
    assert said(ended, "total") == ["184.0 184.0"] * 2, ended
    assert ended.status == 0 and "the others go on without it" in ended.err, ended


@pytest.mark.parametrize(("lost", "servers"), [(0, 0), (1, 0), (2, 0), (0, 1), (1, 2)])
def test_those_who_are_left_make_save_and_load_tables(stage: Stage, tmp_path: Path, lost: int, servers: int) -> None:
    path = str(tmp_path / "checkpoint")
    tables = """
        old = sl.MatrixTable(7, 3, name="old", updater="adagrad")
    """
    ended = run(
        stage,
        3,
        servers,
        f"""
        import os, signal
        import numpy as np
        import syncline as sl
        sl.init(on_peer_loss="continue", timeout=10)
        me = sl.worker_id()
        {tables.strip()}
        old.add(np.ones(21), learning_rate=1.0, rho=1.0, sync=True)
        sl.barrier()
        before = old.get()
        if me == {lost}:
            os.kill(os.getpid(), signal.SIGKILL)
        sl.barrier()
        new = sl.ArrayTable(5, np.arange(5) + 100 * me, name="new", staleness=0)
        lowest = 100 * min({{0, 1, 2}} - {{{lost}}})
        assert new.get().tolist() == [i + lowest for i in range(5)], new.get()
        for round in range(1, 4):
            new.add(np.ones(5))
            assert new.get()[0] == 2 * round + lowest, new.get()
        sl.save({path!r})
        sl.barrier()
        old.add(np.ones(21))
        new.add(np.ones(5))
        sl.load({path!r})
        assert (old.get() == before).all() and new.get()[0] == 6 + lowest
        print("saved", float(before[0, 0]), 6 + lowest, flush=True)
        """,
    )
    assert len(said(ended, "saved")) == 2 and len(set(said(ended, "saved"))) == 1, ended
    loaded = run(
        stage,
        2,
        0,
        f"""
        import syncline as sl
        sl.init()
        {tables.strip()}
        new = sl.ArrayTable(5, name="new", staleness=0)
        sl.load({path!r})
        print("loaded", float(old.get()[0, 0]), int(new.get()[0]), flush=True)
        """,
    )
    assert said(loaded, "loaded") == said(ended, "saved"), loaded


def test_a_mean_is_over_those_who_are_left(stage: Stage) -> None:
    ended = run(
        stage,
        3,
        0,
        """
        import os, signal
        import numpy as np
        import syncline as sl
        sl.init(on_peer_loss="continue")
        values = [np.full(3, 2.0 + sl.rank()), np.full((4, 4), 2.0 + sl.rank(), np.float32)[:, ::2]]
        assert [sl.aggregate(value.copy(), "mean").ravel()[0] for value in values] == [3.0, 3.0]
        if sl.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        sl.barrier()
        print("mean", [float(sl.aggregate(value, "mean").ravel()[0]) for value in [*values, np.array([sl.rank()], np.float16)]], flush=True)
        """,
    )
    assert said(ended, "mean") == ["[3.0, 3.0, 1.0]"] * 2, ended


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


def test_the_others_hear_whose_checkpoint_failed(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    ended = run(
        stage,
        2,
        0,
        f"""
        import syncline as sl
        sl.init()
        table = sl.ArrayTable(3)
        try:
            sl.save({str(tmp_path / "file")!r})
        except sl.SynclineError as error:
            assert not isinstance(error, sl.ContractMismatch), error
            assert "in the way" in str(error), error
            assert sl.rank() == 0 or "rank 0 failed" in str(error), error
            print("told", flush=True)
        """,
    )
    assert ended.status == 0 and len(said(ended, "told")) == 2, ended


@pytest.mark.parametrize("sync", [False, True])
def test_survivors_go_on_where_they_asked_to(stage: Stage, sync: bool) -> None:
    ranks = stage.start_ranks(
        3,
        f"""
        import os, signal
        import numpy as np
        import syncline as sl
        sl.init(sync={sync}, on_peer_loss="continue")
        table = sl.ArrayTable(4)
        table.add(np.ones(4), sync=True)
        sl.barrier()
        if sl.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        for _ in range(10):
            table.add(np.ones(4))
            table.get()
        sl.barrier()
        print("total", table.get().tolist(), flush=True)
        """,
        timeout=15.0,
    )
    assert ranks[1].end().status == -signal.SIGKILL
    for number in (0, 2):
        ended = ranks[number].end()
        assert (ended.status, ended.out) == (0, "total [23.0, 23.0, 23.0, 23.0]\n"), ended
