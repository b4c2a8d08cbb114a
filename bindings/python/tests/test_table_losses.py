"""Workers that die or fail in the middle of a job with tables, and what becomes of those who are left."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from conftest import Stage
from table_jobs import run, said


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
