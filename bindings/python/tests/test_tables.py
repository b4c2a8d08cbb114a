"""Tables in a world of one: what each call does, and what is refused."""

from __future__ import annotations

import re
import threading
import timeit
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import syncline as sl
from conftest import Stage
from dlpack import Tensor

pytestmark = pytest.mark.usefixtures("alone")


def test_an_array_starts_with_zeros_or_with_its_initial_value() -> None:
    assert sl.ArrayTable(3).get().tolist() == [0, 0, 0]
    table = sl.ArrayTable(3, [1, 2, 3])
    fetched = table.get()
    assert (fetched.tolist(), fetched.shape, fetched.dtype) == ([1, 2, 3], (3,), np.float32)
    assert (table.shape, table.size, table.dtype) == ((3,), 3, np.float32)


def test_adds_sum_up_and_a_get_after_them_contains_them() -> None:
    table = sl.ArrayTable(10)
    for count in range(1, 101):
        table.add(np.arange(10))
        table.add(np.arange(10), sync=True)
        assert table.get().tolist() == [2 * count * i for i in range(10)]


def test_a_result_belongs_to_the_caller() -> None:
    table = sl.ArrayTable(2, [1, 2])
    first = table.get()
    first[:] = 7
    assert table.get().tolist() == [1, 2]
    delta = np.ones(2, np.float32)
    table.add(delta)
    delta[:] = 100
    assert table.get().tolist() == [2, 3]


@pytest.mark.parametrize("size", [0, 1, 2, 3, 1000])
def test_any_size_works(size: int) -> None:
    table = sl.ArrayTable(size, np.arange(size))
    table.add(np.ones(size, np.float32))
    assert table.get().tolist() == [i + 1 for i in range(size)]
    assert table.add_get(np.ones(size, np.float32)).tolist() == [i + 2 for i in range(size)]


def test_more_than_two_gigabytes_work() -> None:
    last = 2**21
    table = sl.MatrixTable(last + 1, 1024, dtype="uint8")  # pages nobody touches cost nothing
    table.add(np.full((2, 1024), 7, np.uint8), [last, 0])
    assert table.get([last, 1, 0])[:, 1023].tolist() == [7, 0, 7]


@pytest.mark.parametrize(("rows", "cols"), [(0, 5), (5, 0), (1, 1), (11, 10)])
def test_any_shape_of_matrix_works(rows: int, cols: int) -> None:
    table = sl.MatrixTable(rows, cols)
    table.add(np.arange(rows * cols))
    assert table.get().shape == (rows, cols)
    assert table.get().ravel().tolist() == list(range(rows * cols))
    assert table.get([]).shape == (0, cols)
    table.add(np.empty((0, cols)), [])


def test_rows_come_in_the_order_asked_repeated_ids_included() -> None:
    numbers = np.arange(12).reshape(4, 3)
    table = sl.MatrixTable(4, 3, numbers)
    spellings: list[Any] = [
        [3, 0, 3, 1],
        (3, 0, 3, 1),
        np.array([3, 0, 3, 1]),
        np.array([3, 0, 3, 1], np.int8),
        np.array([3, 9, 0, 9, 3, 9, 1])[::2],
        Tensor(np.array([3, 0, 3, 1])),
        np.array([3, 0, 3, 1]).data,
    ]
    for ids in spellings:
        assert table.get(ids).tolist() == numbers[[3, 0, 3, 1]].tolist()
        assert table.get_async(ids).wait().tolist() == numbers[[3, 0, 3, 1]].tolist()
    table.add(np.ones((3, 3)), [2, 2, 0])
    assert table.get([2, 0]).tolist() == [[8, 9, 10], [1, 2, 3]]
    assert table.add_get(np.ones((2, 3)), [1, 1]).tolist() == [[5, 6, 7], [5, 6, 7]]
    out = np.zeros((2, 3), np.float32)
    assert table.get(range(1, 3), out) is out
    assert out.tolist() == [[5, 6, 7], [8, 9, 10]]


@pytest.mark.parametrize("bad", [-1, 4, 2**40, -(2**62)])
def test_a_row_that_does_not_exist_is_an_error_that_changes_nothing(bad: int) -> None:
    table = sl.MatrixTable(4, 3, np.arange(12))
    before = table.get()
    for call in (
        lambda: table.get([0, bad]),
        lambda: table.get_async([0, bad]).wait(),
        lambda: table.add(np.ones(6), [0, bad]),
        lambda: table.add(np.ones(6), [0, bad], sync=True),
        lambda: table.add_get(np.ones(6), [0, bad]),
    ):
        with pytest.raises(sl.UnknownKey, match=str(bad)) as caught:
            call()
        assert isinstance(caught.value, IndexError)
    assert (table.get() == before).all()


@pytest.mark.parametrize(
    "bad",
    [[0.5], [[0, 1]], 1, "1", ["1"], [True, False], [2**70], np.array([2**63], np.uint64), [None], [[0], [0, 1]], {0}, slice(2)],
    ids=repr,
)
def test_ids_that_are_no_whole_numbers_are_refused(bad: Any) -> None:
    table = sl.MatrixTable(4, 3)
    for call in (lambda: table.get(bad), lambda: table.add(np.ones((1, 3)), bad)):
        with pytest.raises(sl.ShapeMismatch):
            call()


def test_only_changed_rows_are_written() -> None:
    table = sl.MatrixTable(4, 3, np.arange(12))
    for out in (np.zeros((4, 3), np.float32), np.zeros((4, 3), np.float64, order="F")):
        fresh = sl.MatrixTable(4, 3, np.arange(12))
        changed = fresh.get_changed(out)
        assert (changed.tolist(), changed.dtype.name) == ([0, 1, 2, 3], "int64")
        assert out.tolist() == table.get().tolist()
        out[:] = -1
        fresh.add(np.ones((1, 3)), [2], sync=True)
        assert fresh.get_changed(out).tolist() == [], "a worker's own adds do not come back to it"
        assert (out == -1).all()
    with pytest.raises(sl.ShapeMismatch):
        table.get_changed(np.zeros((3, 3), np.float32))


@pytest.mark.parametrize(("dtype", "wider", "fine"), [("float32", "float64", 0.1), ("int32", "int64", 2**40)])
@pytest.mark.parametrize("shape", [(4, 3), (12,), (2, 3, 2)])
def test_rows_that_did_not_change_keep_every_bit_of_a_wider_out(
    dtype: str, wider: str, fine: float, shape: tuple[int, ...]
) -> None:
    table = sl.MatrixTable(4, 3, np.arange(12), dtype=dtype)
    for out in (np.zeros(shape, wider), np.zeros(shape, wider, order="F"), np.zeros((*shape, 2), wider)[..., 0]):
        table.get_changed(out)
        out[:] = fine
        assert table.get_changed(out).tolist() == []
        assert (out == fine).all(), out


def test_a_table_that_does_not_fit_harms_no_later_one() -> None:
    before = sl.ArrayTable(2, [1, 2])
    for _ in range(2):
        with pytest.raises(sl.SynclineError, match="no room for"):
            sl.ArrayTable(2**40)
    after = sl.ArrayTable(2, [3, 4])
    after.add([1, 1])
    before.add([1, 1])
    assert (before.get().tolist(), after.get().tolist()) == ([2, 3], [4, 5])


def test_a_future_holds_its_array() -> None:
    table = sl.ArrayTable(3, [1, 2, 3])
    future = table.get_async()
    first = future.wait()
    assert first.tolist() == [1, 2, 3]
    assert future.done() is True
    assert future.wait(timeout=1.0) is first
    assert future.result() is first
    first[:] = 0
    assert table.get().tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="timeout=-1"):
        table.get_async().wait(-1)


def test_threads_that_wait_for_one_future_get_one_array() -> None:
    table = sl.ArrayTable(100_000, np.arange(100_000))
    for _ in range(20):
        future = table.get_async()
        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(lambda waited: waited.wait(), [future] * 8))
        assert len(results) == 8
        assert all(result is results[0] for result in results)
        assert results[0][-1] == 99_999
    assert sl.ArrayTable(0).get_async().wait().shape == (0,)


def test_any_number_of_gets_may_be_under_way() -> None:
    table = sl.MatrixTable(50, 4, np.arange(200))
    futures = [table.get_async([row]) for row in range(50) for _ in range(4)]
    for number, future in enumerate(futures):
        row = number // 4
        assert future.wait().tolist() == [list(range(4 * row, 4 * row + 4))]
    del futures
    table.get_async()  # nobody waits for it


def test_threads_may_all_add_and_get() -> None:
    table = sl.MatrixTable(8, 16)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(200):
                table.add(np.ones((1, 16), np.float32), [number])
                assert (table.get([number])[0] >= 1).all()
                table.get_async([number]).wait()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert (table.get() == 200).all()


def test_a_key_value_table_reads_zero_where_nothing_was_added() -> None:
    table = sl.KVTable()
    assert table.get(0) == 0
    table.add(0, 3)
    assert table.get(0) == 3
    table.add(0, -4, sync=True)
    assert table.get(0) == -1
    table.add([-5, 2**62, -5], [1, 2, 3])
    fetched = table.get([2**62, -5, 0, 17])
    assert (fetched.tolist(), fetched.dtype, fetched.shape) == ([2, 4, -1, 0], np.float32, (4,))
    out = np.zeros(2)
    assert table.get([0, -5], out) is out
    assert out.tolist() == [-1, 4]
    assert table.get([]).tolist() == []
    for keys in ([0.5], ["a"], [[1]]):
        with pytest.raises(sl.ShapeMismatch):
            table.get(keys)
    with pytest.raises(sl.ShapeMismatch, match="2 numbers were given, 1 of float32"):
        table.add(0, [1, 2])
    with pytest.raises(sl.ConfigurationError):
        sl.KVTable("int32")
    assert sl.KVTable(value="int64", name="counts").get([1]).dtype == np.int64


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8"])
def test_a_key_value_table_keeps_every_dtype(dtype: str) -> None:
    table = sl.KVTable(value=dtype)
    assert str(table.dtype) == dtype
    for _ in range(3):
        table.add([5, -(2**60)], [2, 9])
    out = np.zeros(3, "float64" if "float" in dtype else "int64")
    assert table.get([-(2**60), 5, 6], out).tolist() == [27, 6, 0]
    if dtype != "bfloat16":  # which NumPy has only with ml_dtypes
        assert table.get([5]).dtype == np.dtype(dtype)


def test_a_table_of_more_than_two_gigabytes_is_moved_whole() -> None:
    free = int(re.findall(r"MemAvailable: +(\d+)", Path("/proc/meminfo").read_text())[0]) >> 20
    if free < 12:
        pytest.skip(f"needs 12 GiB of memory, {free} are free")
    size = 2**31 + 5
    table = sl.ArrayTable(size, dtype="int8")
    delta = np.zeros(size, "int8")
    places = [0, 2**30, 2**31 - 1, 2**31, size - 1]
    delta[places] = [1, 2, 3, 4, 5]
    table.add(delta, sync=True)
    delta[:] = 7
    table.get(delta)
    assert delta[places].tolist() == [1, 2, 3, 4, 5] and np.count_nonzero(delta) == 5


UPDATED = {
    "add": [2.0, -1.0],
    "default": [2.0, -1.0],
    "sgd": [0.0, 3.0],
}


@pytest.mark.parametrize("updater", UPDATED)
def test_updaters_act_on_adds_and_not_on_the_initial_value(updater: str) -> None:
    table = sl.ArrayTable(2, [1, 1], updater=updater)
    assert table.get().tolist() == [1, 1]
    table.add([1, -2])
    assert table.get().tolist() == UPDATED[updater]


@pytest.mark.parametrize("updater", ["momentum_sgd", "adagrad", "dcasgd", "dcasgda"])
def test_stateful_updaters_work_with_and_without_options(updater: str) -> None:
    table = sl.ArrayTable(3, [1, 1, 1], updater=updater)
    for _ in range(20):
        table.add([0.1, 0.0, -0.1])
    table.add([0.1, 0.0, -0.1], learning_rate=0.1, momentum=0.9, rho=0.1, lambda_=0.04)
    low, same, high = table.get().tolist()
    assert low < 1 == same < high
    assert np.isfinite([low, high]).all()


def test_unknown_words_are_refused() -> None:
    for updater in ("adam", "gradient"):
        with pytest.raises(sl.ConfigurationError, match=updater):
            sl.ArrayTable(2, updater=updater)
    with pytest.raises(TypeError, match="decay"):
        sl.ArrayTable(2).add([1, 1], decay=0.1)  # type: ignore[call-arg]
    with pytest.raises(sl.ConfigurationError, match="staleness=-1"):
        sl.ArrayTable(2, staleness=-1)
    with pytest.raises(sl.ConfigurationError, match="size=-3"):
        sl.ArrayTable(-3)
    with pytest.raises(sl.ConfigurationError, match="floating-point"):
        sl.ArrayTable(2, dtype="int32", updater="adagrad")
    with pytest.raises(TypeError):
        sl.ArrayTable(2.5)  # type: ignore[arg-type]
    with pytest.raises(sl.ConfigurationError, match="on_peer_loss"):
        sl.init(on_peer_loss="panic")


def test_a_table_says_what_it_is_and_counts_adds() -> None:
    table = sl.MatrixTable(3, 2, name="embeddings", dtype="float64", staleness=2)
    assert table.name == "embeddings"
    assert repr(table) == "<syncline.MatrixTable: matrix of 3 x 2 float64 `embeddings`, staleness 2>"
    assert (table.shape, table.size) == ((3, 2), 6)
    assert sl.ArrayTable(1).name
    assert (table.clock(), table.clocks) == (0, [0])
    table.add(np.ones((1, 2)), [1], sync=True)
    table.add(np.ones((3, 2)), sync=True)
    assert (table.clock(), table.clocks) == (2, [2])


def test_tables_of_a_job_that_was_left_are_closed() -> None:
    array, keys = sl.ArrayTable(2), sl.KVTable()
    array.get_async()  # nobody waits for it
    sl.shutdown()
    calls: list[Callable[[], Any]] = [
        array.get,
        lambda: array.add([1, 1]),
        lambda: array.get_async().wait(),
        lambda: keys.get(1),
        lambda: sl.ArrayTable(2),
    ]
    for call in calls:
        with pytest.raises(sl.Closed):
            call()
    sl.init()
    with pytest.raises(sl.Closed):
        array.get()


def test_a_forked_child_can_use_no_table_and_harms_none(stage: Stage) -> None:
    ended = stage.run(
        """
        import os, sys
        import numpy as np
        import syncline as sl
        sl.init()
        table, keys = sl.MatrixTable(2, 2), sl.KVTable()
        future = table.get_async()
        child = os.fork()
        if child == 0:
            for call in [table.get, lambda: table.add(np.ones(4)), table.get_async, lambda: table.add_get(np.ones(4)),
                         lambda: table.get_changed(np.zeros(4, np.float32)), lambda: keys.get(1),
                         lambda: keys.add(1, 1),
                         table.clock, lambda: table.clocks, future.wait, future.done, lambda: sl.ArrayTable(3),
                         lambda: sl.save("x"), lambda: sl.load("x"), lambda: sl.aggregate(np.ones(3))]:
                try:
                    call()
                except sl.ForkError as error:
                    assert "was forked" in str(error), error
                else:
                    print("a call works in a fork")
            del table, keys, future
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        table.add(np.ones(4))
        print(table.get().tolist(), future.wait().tolist())
        """
    )
    assert (ended.status, ended.out, ended.err) == (0, "[[1.0, 1.0], [1.0, 1.0]] [[0.0, 0.0], [0.0, 0.0]]\n", ""), ended


def test_a_small_pull_takes_a_few_microseconds() -> None:
    table, out = sl.ArrayTable(16), np.zeros(16, np.float32)
    for pull in (table.get, lambda: table.get(out)):
        best = min(timeit.repeat(pull, number=1000, repeat=50)) / 1000  # what else the machine does is not in the best
        assert best < 5e-6, f"{best * 1e6:.2f} µs"
