"""Tables in a world of one: what goes in, what comes out, and what is refused."""

from __future__ import annotations

import array as arrays
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import syncline as sl
from conftest import Stage
from dlpack import GPU, Tensor, Versioned, tensor_of_bfloat16

pytestmark = pytest.mark.usefixtures("alone")

DTYPES = ["float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8"]


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


@pytest.mark.parametrize(("rows", "cols"), [(0, 5), (5, 0), (1, 1), (11, 10)])
def test_any_shape_of_matrix_works(rows: int, cols: int) -> None:
    table = sl.MatrixTable(rows, cols)
    table.add(np.arange(rows * cols))
    assert table.get().shape == (rows, cols)
    assert table.get().ravel().tolist() == list(range(rows * cols))
    assert table.get([]).shape == (0, cols)
    table.add(np.empty((0, cols)), [])


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_dtype_is_kept(dtype: str) -> None:
    for spelling in (dtype, np.dtype(dtype), getattr(np, dtype)):
        table = sl.ArrayTable(3, [1, 2, 3], dtype=spelling)
        table.add([1, 1, 1])
        fetched = table.get()
        assert (fetched.dtype, fetched.tolist()) == (np.dtype(dtype), [2, 3, 4])
        assert table.dtype == np.dtype(dtype)
    whole = sl.ArrayTable(2, dtype="int64")
    whole.add([2**62 + 1, -(2**62) - 1])
    assert whole.get().tolist() == [2**62 + 1, -(2**62) - 1]


def test_bfloat16_comes_out_as_ml_dtypes_has_it() -> None:
    table = sl.ArrayTable(4, dtype="bfloat16")
    assert table.dtype == ml_dtypes.bfloat16
    table.add([1.5, -2, 3.140625, 256])
    fetched = table.get()
    assert fetched.dtype == ml_dtypes.bfloat16
    assert fetched.astype(np.float32).tolist() == [1.5, -2, 3.140625, 256]
    table.add(np.ones(8, ml_dtypes.bfloat16)[::2])
    table.add(tensor_of_bfloat16([0.5, 1, 0, 0]))
    assert table.get().astype(np.float32).tolist() == [3, 0, 4.125, 256]  # rounded to nearest even, twice
    half, single = np.zeros(4, ml_dtypes.bfloat16), np.zeros(4, np.float32)
    assert table.get(half) is half
    assert table.get(out=single) is single
    assert half.astype(np.float32).tolist() == single.tolist() == [3, 0, 4.125, 256]
    strided = np.zeros(8, ml_dtypes.bfloat16)
    table.get(strided[::2])
    assert strided.astype(np.float32).tolist() == [3, 0, 0, 0, 4.125, 0, 256, 0]
    tensor = tensor_of_bfloat16([0, 0, 0, 0])
    table.get(tensor)
    assert tensor.array.tolist() == half.view(np.uint16).tolist()
    assert table.get_async().wait().astype(np.float32).tolist() == single.tolist()


def test_bfloat16_comes_out_as_float32_where_nothing_better_is_installed(stage: Stage) -> None:
    ended = stage.run(
        """
        import sys
        sys.modules["ml_dtypes"] = None
        import syncline as sl
        sl.init()
        table = sl.ArrayTable(2, [1.5, 3.0], dtype="bfloat16")
        print(table.get().tolist(), table.get().dtype, table.dtype, table.get_async().wait().tolist())
        """
    )
    assert (ended.status, ended.out) == (0, "[1.5, 3.0] float32 bfloat16 [1.5, 3.0]\n"), ended


@pytest.mark.parametrize("dtype", ["complex64", "float128", "uint16", "bool", "str", "float", object])
def test_an_unknown_dtype_is_refused_with_those_that_exist(dtype: Any) -> None:
    with pytest.raises(sl.ConfigurationError, match=r"float32.*bfloat16"):
        sl.ArrayTable(3, dtype=dtype)


NUMBERS = np.arange(24, dtype=np.float32).reshape(4, 6)
LAYOUTS: dict[str, Any] = {
    "C order": NUMBERS,
    "Fortran order": np.asfortranarray(NUMBERS),
    "transposed twice": np.ascontiguousarray(NUMBERS.T).T,
    "every second": np.repeat(NUMBERS, 2, axis=1)[:, ::2],
    "backwards": np.ascontiguousarray(NUMBERS[::-1, ::-1])[::-1, ::-1],
    "inner part": np.pad(NUMBERS, 3)[3:-3, 3:-3],
    "unaligned": np.frombuffer(b"x" + NUMBERS.tobytes(), np.float32, offset=1).reshape(4, 6),
    "other byte order": NUMBERS.astype(">f4"),
    "float64": NUMBERS.astype(np.float64),
    "float16": NUMBERS.astype(np.float16),
    "int64": NUMBERS.astype(np.int64),
    "uint8": NUMBERS.astype(np.uint8),
    "bfloat16": NUMBERS.astype(ml_dtypes.bfloat16),
    "flat": NUMBERS.ravel(),
    "list of lists": NUMBERS.tolist(),
    "list of rows": list(NUMBERS),
    "tuple": tuple(NUMBERS.ravel().tolist()),
    "range": range(24),
    "array.array": arrays.array("f", NUMBERS.ravel().tolist()),
    "memoryview": NUMBERS.data,
    "read-only": np.frombuffer(NUMBERS.tobytes(), np.float32),
    "DLPack": Tensor(NUMBERS),
    "DLPack, strided": Tensor(np.asfortranarray(NUMBERS)),
    "DLPack, int32": Tensor(NUMBERS.astype(np.int32)),
    "DLPack, versioned": Versioned(NUMBERS),
    "DLPack, bfloat16": tensor_of_bfloat16(NUMBERS.ravel().tolist()),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_input_means_what_it_says(layout: str) -> None:
    given = LAYOUTS[layout]
    table = sl.MatrixTable(4, 6, given)
    table.add(given)
    table.add(given, [0, 1, 2, 3])
    assert table.get().tolist() == (3 * NUMBERS).tolist()
    flat = sl.ArrayTable(24, given)
    assert flat.add_get(given).tolist() == (2 * NUMBERS).ravel().tolist()
    if isinstance(given, Tensor):
        assert given.out == 0, "exports were not given back"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_writable_array_may_be_the_out(layout: str) -> None:
    table = sl.MatrixTable(4, 6, NUMBERS + 1)
    given: Any = LAYOUTS[layout]
    memory: Any = given.array if isinstance(given, (Tensor, Versioned)) else given
    if isinstance(memory, (list, tuple, range)) or layout == "read-only":
        with pytest.raises(sl.ShapeMismatch):
            table.get(out=given)
        return
    if layout in ("int64", "uint8", "DLPack, int32"):
        with pytest.raises(sl.DTypeMismatch, match="cannot be written into `out`"):
            table.get(out=given)
        return
    if layout == "unaligned":
        memory = given = np.frombuffer(bytearray(97), np.float32, offset=1).reshape(4, 6)
    elif isinstance(given, Tensor):
        memory = memory.copy(order="K")
        given = Tensor(memory, bfloat16=given.bfloat16)
    elif isinstance(given, Versioned):
        memory = memory.copy()
        given = Versioned(memory)
    elif isinstance(given, np.ndarray):
        memory = given = np.array(np.broadcast_to(given, given.shape), copy=True, order="K")
    elif isinstance(given, memoryview):
        memory = np.zeros((4, 6), np.float32)
        given = memory.data
    else:
        memory = given = arrays.array("f", given)
    assert table.get(out=given) is given
    if layout == "DLPack, bfloat16":
        memory = memory.view(ml_dtypes.bfloat16)
    assert np.asarray(memory, np.float32).ravel().tolist() == (NUMBERS + 1).ravel().tolist()


def test_a_slice_of_a_larger_array_is_filled_and_nothing_else() -> None:
    table = sl.MatrixTable(2, 2, [1, 2, 3, 4])
    larger = np.zeros((4, 4), np.float64)
    table.get(out=larger[1:3, 1:3])
    assert larger.tolist() == [[0, 0, 0, 0], [0, 1, 2, 0], [0, 3, 4, 0], [0, 0, 0, 0]]


def test_no_copy_is_made_of_what_fits() -> None:
    table = sl.ArrayTable(4, [1, 2, 3, 4])
    out = np.zeros(4, np.float32)
    address = out.ctypes.data
    assert table.get(out).ctypes.data == address
    assert table.add_get(out, out=out) is out, "the same array may be both"
    assert out.tolist() == [2, 4, 6, 8]
    shifted = np.zeros(5, np.float32)
    shifted[:4] = 1
    table.add_get(shifted[:4], out=shifted[1:])
    assert shifted[1:].tolist() == [3, 5, 7, 9], "even when they overlap"


REFUSED: dict[str, tuple[Any, type[Exception]]] = {
    "too few": (np.ones(3, np.float32), ValueError),
    "too many": (np.ones(5, np.float32), ValueError),
    "one number": (1.0, ValueError),
    "empty": ([], ValueError),
    "complex": (np.ones(4, np.complex64), TypeError),
    "text": ("abcd", TypeError),
    "objects": ([None] * 4, TypeError),
    "nothing": (None, TypeError),
    "DLPack, complex": (Tensor(np.ones(4, np.complex64)), TypeError),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_delta_that_does_not_fit_changes_nothing(case: str) -> None:
    given, family = REFUSED[case]
    table = sl.ArrayTable(4, [1, 2, 3, 4], name="weights")
    for call in (
        table.add,
        table.add_get,
        lambda delta: sl.ArrayTable(4, delta) if delta is not None else table.add(delta),
    ):
        with pytest.raises(sl.ShapeMismatch) as caught:
            call(given)
        assert isinstance(caught.value, family)
    with pytest.raises(sl.ShapeMismatch, match="weights"):
        table.add(given)
    assert table.get().tolist() == [1, 2, 3, 4]


def test_sizes_are_told_as_needed_and_given() -> None:
    table = sl.MatrixTable(2, 3)
    with pytest.raises(sl.ShapeMismatch, match=r"5 numbers were given, 6 of float32 are needed"):
        table.add(np.ones(5))
    with pytest.raises(sl.ShapeMismatch, match=r"6 numbers were given, 3 of float32 are needed"):
        table.add(np.ones(6), [1])
    with pytest.raises(sl.ShapeMismatch, match=r"3 numbers fit into `out`, 6 of float32 are needed"):
        table.get(out=np.zeros(3, np.float32))
    with pytest.raises(sl.ShapeMismatch, match=r"3 numbers fit into `out`, 6 of float32 are needed"):
        table.get([0, 1], out=np.zeros(3))


def test_an_array_on_a_gpu_is_refused_with_advice() -> None:
    with pytest.raises(BufferError, match="copy it to the CPU"):
        sl.ArrayTable(2).add(Tensor(np.ones(2, np.float32), device=GPU))


def test_whole_numbers_are_neither_rounded_nor_cut() -> None:
    table = sl.ArrayTable(2, dtype="int16")
    refused: list[Any] = [[0.5, 1.0], np.ones(2), np.ones(2, ml_dtypes.bfloat16)]
    for given in refused:
        with pytest.raises(sl.DTypeMismatch, match="int16 cannot hold them"):
            table.add(given)
    too_large: list[Any] = [[40000, 0], np.array([40000, 0])]
    for given in too_large:
        with pytest.raises(sl.ShapeMismatch, match="40000 does not fit into int16"):
            table.add(given)
    table.add(np.array([1, -2], np.int64))
    table.add([True, False])
    assert table.get().tolist() == [2, -2]
    small = sl.ArrayTable(2, [200, 3], dtype="uint8")
    small.add([55, 0])
    assert small.get().tolist() == [255, 3]
    with pytest.raises(sl.DTypeMismatch):
        small.add(np.array([1, 1], np.int64))


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
    "bad", [[0.5], [[0, 1]], 1, "1", ["1"], [True, False], [2**70], np.array([2**63], np.uint64), [None]]
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
    with pytest.raises(sl.ConfigurationError, match="adam"):
        sl.ArrayTable(2, updater="adam")
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


@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16", np.float64])
def test_shared_arrays_are_arrays(dtype: Any) -> None:
    array = sl.empty_shared((3, 4), dtype)
    array[:] = 2
    assert array.shape == (3, 4)
    assert array.flags.c_contiguous
    assert array.ctypes.data % 64 == 0
    table = sl.MatrixTable(3, 4, dtype=dtype)
    table.add(array)
    table.add_get(array, out=array)
    assert (array == 4).all()
    assert sl.empty_shared(5).dtype == np.float32


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
