"""All tables at once, saved and loaded; and arrays that are combined without a table."""

from __future__ import annotations

import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import syncline as sl
from conftest import Stage, command
from dlpack import Tensor

pytestmark = pytest.mark.usefixtures("alone")


@pytest.mark.parametrize("op", ["sum", "prod", "min", "max", "mean"])
def test_aggregate_of_one_changes_nothing(op: str) -> None:
    for given in (
        np.arange(4.0),
        np.arange(8, dtype=np.float32)[::2],
        np.asfortranarray(np.ones((2, 3), np.float16)),
        np.ones(3, ml_dtypes.bfloat16),
        Tensor(np.ones(3, np.float64)),
    ):
        memory = given.array if isinstance(given, Tensor) else given
        before = np.array(memory)
        assert sl.aggregate(given, op) is given
        assert (memory == before).all()


def test_aggregate_refuses_what_it_cannot_fill() -> None:
    for given in ([1, 2], np.ones(2, bool), np.ones(2, complex), np.frombuffer(b"1234", np.uint8)):
        with pytest.raises(sl.ShapeMismatch):
            sl.aggregate(given)
    with pytest.raises(sl.DTypeMismatch, match="mean of int64"):
        sl.aggregate(np.ones(2, np.int64), "mean")
    with pytest.raises(sl.ConfigurationError, match="median"):
        sl.aggregate(np.ones(2), op="median")


def test_a_checkpoint_brings_everything_back(tmp_path: Path) -> None:
    weights = sl.ArrayTable(4, [1, 2, 3, 4], name="weights", updater="momentum_sgd")
    rows = sl.MatrixTable(3, 2, np.arange(6), dtype="float64")
    counts = sl.KVTable(value="int64", name="counts")
    counts.add([7, -7], [1, 2])
    weights.add([1, 1, 1, 1], momentum=0.5)
    saved = weights.get()
    sl.save(tmp_path / "checkpoint")
    weights.add([1, 1, 1, 1], momentum=0.5)
    after = weights.get()
    rows.add(np.ones(6))
    counts.add([7, 8], [1, 1])
    sl.load(str(tmp_path / "checkpoint"))
    assert weights.get().tolist() == saved.tolist()
    assert rows.get().ravel().tolist() == list(range(6))
    assert counts.get([7, -7, 8]).tolist() == [1, 2, 0]
    weights.add([1, 1, 1, 1], momentum=0.5)
    assert weights.get().tolist() == after.tolist(), "the updater's state came back too"


def test_a_missing_checkpoint_is_an_error(tmp_path: Path) -> None:
    sl.ArrayTable(4)
    with pytest.raises(sl.SynclineError, match="nowhere"):
        sl.load(tmp_path / "nowhere")


def test_a_checkpoint_opens_with_plain_safetensors(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    sl.MatrixTable(3, 2, np.arange(6), name="embeddings")
    sl.save(tmp_path / "checkpoint")
    tensors = {}
    for file in (tmp_path / "checkpoint").rglob("*.safetensors"):
        tensors.update(load_file(file))
    found = [tensor for name, tensor in tensors.items() if "embeddings" in name]
    assert [tensor.ravel().tolist() for tensor in found] == [list(range(6))]


def test_a_worker_killed_while_all_save_harms_no_checkpoint(stage: Stage, tmp_path: Path) -> None:
    code = """
        import os, signal, sys, threading, time
        import numpy as np
        import syncline as sl

        sl.init(timeout=10)
        table = sl.ArrayTable(4_000_000, name="w")
        folder = {folder!r}
        table.add(np.ones(4_000_000))
        sl.barrier()
        sl.save(folder)
        if sl.rank() == 1:
            threading.Timer({delay}, os.kill, (os.getpid(), signal.SIGKILL)).start()
        try:
            for round in range(2, 1000):
                table.add(np.ones(4_000_000))
                sl.barrier()
                sl.save(folder)
        except sl.PeerLost as error:
            assert error.rank == 1, error
            print("lost in round", round, flush=True)
            os._exit(0)
    """
    rounds = []
    for number in range(6):
        folder = tmp_path / str(number)
        under = [command("syncline"), "run", "-n", "3"]
        ended = stage.run(code.format(folder=str(folder), delay=0.05 + 0.07 * number), under=under)
        assert len(re.findall(r"lost in round (\d+)", ended.out)) == 2, ended
        # Every number of what is there belongs to one and the same save.
        loaded = stage.run(
            f"""
            import syncline as sl
            sl.init()
            table = sl.ArrayTable(4_000_000, name="w")
            sl.load({str(folder)!r})
            values = table.get()
            assert (values == values[0]).all() and values[0] % 3 == 0 and values[0] > 0, values
            print("saved in round", int(values[0]) // 3)
            """
        )
        assert loaded.status == 0, loaded
        lost = max(map(int, re.findall(r"lost in round (\d+)", ended.out)))
        [saved] = map(int, re.findall(r"saved in round (\d+)", loaded.out))
        assert lost - 1 <= saved <= lost, (ended, loaded)
        rounds.append(saved)
    assert max(rounds) > 1, "no save was ever interrupted"
