"""Tables of several workers, with the tables in the workers themselves or in dedicated servers."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from conftest import Stage, command
from table_jobs import LAYOUTS, SOME, run, said


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
