"""Arrays in shared memory: NumPy's like any other, and not copied by adds."""

from __future__ import annotations

import numpy as np
import pytest
import syncline as sl
from conftest import Stage, command


@pytest.mark.usefixtures("alone")
def test_an_array_begins_as_zeros_on_a_page_and_outlives_the_session() -> None:
    array = sl.empty_shared((200, 30), "float64")
    assert (array.shape, array.dtype, array.ctypes.data % 4096) == ((200, 30), np.dtype("float64"), 0)
    assert not array.any()
    row = array[7]
    sl.shutdown()
    array[:] = 2
    del array
    assert row.tolist() == [2.0] * 30
    assert sl.empty_shared((0, 3)).shape == (0, 3)  # nobody to share with any more


@pytest.mark.parametrize("sync", [False, True])
def test_what_was_added_may_be_changed_at_once(stage: Stage, *, sync: bool) -> None:
    code = f"""
        import numpy as np
        import syncline as sl

        sl.init(sync={sync})
        table = sl.ArrayTable(300_000, dtype="int64")
        delta, out = sl.empty_shared(300_000, "int64"), sl.empty_shared(300_000, "int64")
        for _ in range(10):
            delta[:] = 1
            table.add(delta)
            delta[:] = 1
            table.add_get(delta, out=out)
            delta[:] = -99
        sl.barrier()
        assert (table.get() == 20 * sl.num_workers()).all()
        delta[:] = sl.worker_id()
        assert (sl.aggregate(delta, "max") == sl.num_workers() - 1).all()
        sl.barrier()
        print("right", flush=True)
    """
    ended = stage.run(code, under=[command("syncline"), "run", "-n", "3"])
    assert ended.status == 0, ended
    assert ended.out.count("right") == 3, ended
