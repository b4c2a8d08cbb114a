"""What goes into tables and what comes out: every dtype, layout and framework means what it says."""

from __future__ import annotations

import array as arrays
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import syncline as sl
from conftest import Stage
from dlpack import GPU, Tensor, Versioned, tensor_of_bfloat16

pytestmark = pytest.mark.usefixtures("alone")

DTYPES = ["float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8"]


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
    "long long": NUMBERS.astype(np.longlong),
    "a class of its own": NUMBERS.view(type("Own", (np.ndarray,), {})),
    "six axes": NUMBERS.reshape(1, 1, 4, 1, 6, 1),
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
    if layout in ("int64", "long long", "uint8", "DLPack, int32"):
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
    "ragged": ([[1, 2], [3]], ValueError),
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
    elsewhere = Tensor(np.ones(2, np.float32), device=GPU)
    table = sl.ArrayTable(2)
    for call in (table.add, table.get, sl.aggregate):
        with pytest.raises(sl.ShapeMismatch, match="copy it to the CPU"):
            call(elsewhere)
    assert elsewhere.out == 0


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
    assert sl.empty_shared(5).tolist() == [0] * 5


def test_shared_arrays_of_odd_shapes() -> None:
    assert sl.empty_shared(()).shape == ()
    assert sl.empty_shared((0, 3)).shape == (0, 3)
    assert sl.empty_shared((4,)).shape == (4,)
    shapes: list[Any] = [-1, (2, -3), (2**40, 2**40)]
    for shape in shapes:
        with pytest.raises(sl.ConfigurationError, match="no shape"):
            sl.empty_shared(shape)
    with pytest.raises(sl.ConfigurationError, match="complex64"):
        sl.empty_shared(3, "complex64")


def test_a_shared_array_outlives_its_name_and_its_job() -> None:
    part = sl.empty_shared(1000)[10:20]
    part[:] = 7
    for _ in range(50):
        sl.empty_shared(1000)[:] = 9  # memory that is given back is used again
    assert part.tolist() == [7] * 10
    table = sl.ArrayTable(10)
    table.add(part)
    part[:] = 0
    assert table.get().tolist() == [7] * 10
    sl.shutdown()
    part += 1
    assert part.tolist() == [1] * 10


def test_an_array_that_must_not_change_is_no_out() -> None:
    table = sl.ArrayTable(4, [1, 2, 3, 4])
    frozen = np.zeros(4, np.float32)
    frozen.flags.writeable = False

    class Constant(Tensor):
        """As in JAX: DLPack hands out the memory, and only NumPy hears that it is constant."""

        def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
            return frozen

    for out in (frozen, Versioned(frozen), Constant(np.zeros(8, np.float32)[::2]), b"1234123412341234"):
        with pytest.raises(sl.ShapeMismatch):
            table.get(out)
        with pytest.raises(sl.ShapeMismatch):
            sl.aggregate(out)
    assert not frozen.any()
