"""What is better said in NumPy: other dtypes, other layouts, other frameworks.

The native half comes here only when it cannot use an array's memory as it is (``src/arrays.rs``), so every function
below may copy once. bfloat16, which NumPy does not know, is held as 16 plain bits (uint16) on this side.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from syncline import _native
from syncline._errors import ConfigurationError, DTypeMismatch, ShapeMismatch

Array = NDArray[Any]

BFLOAT16 = "bfloat16"
KNOWN = ("float32", "float64", "float16", BFLOAT16, "int8", "int16", "int32", "int64", "uint8")


def converted(given: Any, dtype: str, operation: str) -> Array:
    """``given`` as a C-contiguous array of ``dtype``: NumPy's same_kind casting, and whole numbers must fit."""
    array, name = _opened(given, operation)
    if name == dtype:
        return np.ascontiguousarray(array)
    if name == BFLOAT16 or dtype == BFLOAT16:
        return _cast_half(array, name, dtype, operation)
    wanted = np.dtype(dtype)
    typed = hasattr(given, "dtype") or hasattr(given, "__dlpack__") or isinstance(given, memoryview)
    if array.dtype.kind in "iu" and wanted.kind in "iu" and not np.can_cast(array.dtype, wanted):
        # A list has no dtype of its own: what counts is whether its numbers fit.
        if typed and not np.can_cast(array.dtype, wanted, "same_kind"):
            raise _uncastable(name, dtype, operation)
        _check_range(array, wanted, operation)
        return np.ascontiguousarray(array, wanted)
    if array.dtype.kind not in "biuf" or not np.can_cast(array.dtype, wanted, "same_kind"):
        if array.size == 0 and not typed:
            return np.empty(array.shape, wanted)
        raise _uncastable(name, dtype, operation)
    return np.ascontiguousarray(array, wanted)


def whole_numbers(given: Any, what: str, one_is_fine: bool) -> tuple[Array, bool]:
    """``given`` as a one-dimensional int64 array, and whether it was a single number."""
    array, name = _opened(given, what)
    if array.ndim == 0 and array.dtype == object:
        raise DTypeMismatch(f"{what}: a sequence of whole numbers is needed, not {type(given).__name__}")
    if array.ndim > 1 or (array.ndim == 0 and not one_is_fine):
        raise ShapeMismatch(f"{what}: a one-dimensional sequence is needed, not an array of shape {array.shape}")
    if array.size == 0 and not hasattr(given, "dtype"):
        return np.empty(0, np.int64), False
    if array.dtype.kind not in "iu":
        raise DTypeMismatch(f"{what}: whole numbers are needed, not {name}")
    _check_range(array, np.dtype(np.int64), what)
    return np.ascontiguousarray(np.atleast_1d(array), np.int64), array.ndim == 0


def target(out: Any, dtype: str, operation: str) -> tuple[Array, str, bool]:
    """The memory of ``out`` as a NumPy array, its dtype, and whether a result can be written there directly."""
    array, name = _opened_in_place(out, operation)
    if name == dtype:
        return array, name, bool(array.flags.c_contiguous and array.ndim)
    known = all(each == BFLOAT16 or np.dtype(each).kind in "iuf" for each in (name, dtype))
    if not known or not np.can_cast(_as_numpy_knows(dtype), _as_numpy_knows(name), "same_kind"):
        raise DTypeMismatch(f"{operation}: {dtype} cannot be written into `out` of {name}")
    return array, name, False


def pour(fresh: Array, dtype: str, into: Array, name: str) -> None:
    """Writes ``fresh``, a result of ``dtype``, into an array that differs in dtype or layout."""
    values = fresh.reshape(into.shape)
    if name == dtype:
        np.copyto(into, values)
    elif BFLOAT16 in (name, dtype):
        np.copyto(into, _cast_half(values, dtype, name, "get").reshape(into.shape))
    else:
        np.copyto(into, values, casting="same_kind")


def pour_rows(fresh: Array, dtype: str, into: Array, name: str, rows: Array, shape: tuple[int, int]) -> None:
    """Writes only these rows of ``fresh``: what the caller's array holds elsewhere may be more than ``dtype`` can say."""
    changed = np.empty((len(rows), shape[1]), into.dtype)
    pour(fresh.reshape(shape)[rows], dtype, changed, name)
    if into.shape == shape:
        into[rows] = changed
        return
    whole = np.array(into, order="C").reshape(shape)
    whole[rows] = changed
    np.copyto(into, whole.reshape(into.shape))


def makers(dtype: str) -> tuple[Any, np.dtype[Any]]:
    """What a table makes its results with."""
    return np.empty, _storage(dtype)


def array_over(view: _native.View) -> Array:
    """An array over memory that the native half owns."""
    return np.asarray(view)


def as_bfloat16(bits: Array) -> Array:
    """16 bits as the best that is installed: ``ml_dtypes.bfloat16``, else the same numbers in float32."""
    kind = _ml_bfloat16()
    if kind is not None:
        return bits.view(kind)
    wide = np.empty(bits.shape, np.float32)
    _native.cast(bits, BFLOAT16, wide, "float32")
    return wide


def dtype_object(dtype: str) -> Any:
    """NumPy's object for ``dtype``; bfloat16 stays a word when ``ml_dtypes`` is not installed."""
    if dtype != BFLOAT16:
        return np.dtype(dtype)
    return _ml_bfloat16() or dtype


def dtype_name(dtype: DTypeLike) -> str:
    """The name of a dtype that was given as NumPy's object, a type, or a framework's own (``torch.float32``)."""
    if dtype == BFLOAT16:
        return BFLOAT16
    try:
        return np.dtype(dtype).name
    except TypeError:
        return str(dtype).rpartition(".")[2]


def reducible(array: Any, mean: bool) -> tuple[Array, str, bool]:
    """What to reduce for ``array``, its dtype, and whether that is its own memory."""
    memory, name = _opened_in_place(array, "aggregate")
    if name not in KNOWN:
        raise DTypeMismatch(f"aggregate: {name} is not one of {', '.join(KNOWN)}")
    if mean and name != BFLOAT16 and memory.dtype.kind != "f":
        raise DTypeMismatch(f"aggregate: the mean of {name} is no {name}\nhint: use floating point, or op='sum'")
    return np.ascontiguousarray(memory), name, bool(memory.flags.c_contiguous and memory.ndim)


def reduced(array: Any, work: Array, name: str) -> None:
    """Writes the result of a reduction back into an array that could not be used as it lies in memory."""
    memory, _ = _opened_in_place(array, "aggregate")
    np.copyto(memory, work.reshape(memory.shape))


def empty_shared(shape: int | tuple[int, ...], dtype: DTypeLike = "float32") -> Array:
    """An array that tables work with best: aligned, and shared with the neighbours if a session is open."""
    name = dtype_name(dtype)
    if name not in KNOWN:
        raise ConfigurationError(f"empty_shared: dtype {name!r} is not one of {', '.join(KNOWN)}")
    kind = _ml_bfloat16() if name == BFLOAT16 else np.dtype(name)
    if kind is None:
        raise ConfigurationError("empty_shared: NumPy knows no bfloat16\nhint: pip install ml_dtypes, or use float32")
    lengths = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(int(length) for length in shape)
    size = math.prod(lengths) * kind.itemsize
    if min(lengths, default=0) < 0 or size >= 2**63:
        raise ConfigurationError(f"empty_shared: {lengths} is no shape of an array")
    if _native.is_open() and size > 0:
        return np.asarray(_native.empty_shared(size)).view(kind).reshape(lengths)
    memory = np.empty(size + 63, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size].view(kind).reshape(lengths)


def _opened(given: Any, operation: str | None = None) -> tuple[Array, str]:
    """Any input as an array and the name of its dtype; a copy only for what is no array yet.

    ``operation`` begins the text of an error, or else what was given.
    """
    if not isinstance(given, np.ndarray):
        if hasattr(given, "__dlpack__"):
            try:
                view = _native.View(_without_history(given))
            except (BufferError, RuntimeError) as error:  # sparse ones, say, or memory that is not there
                raise ShapeMismatch(f"{operation or type(given).__name__}: {error}") from error
            return np.asarray(view), view.dtype or np.asarray(view).dtype.name
        try:
            given = np.asarray(given)
        except ValueError as error:  # lists of lists of different lengths
            raise ShapeMismatch(f"{operation or type(given).__name__}: {error}") from error
    name = _name_of(given.dtype)
    return (given.view(np.uint16) if name == BFLOAT16 else given), name


def _without_history(given: Any) -> Any:
    """A tensor of PyTorch's that gradients are computed for lends its memory only without that: numbers are all we want."""
    return given.detach() if getattr(given, "requires_grad", False) is True else given


_names: dict[np.dtype[Any], str] = {}


def _name_of(dtype: np.dtype[Any]) -> str:
    """The dtype's name, which NumPy makes anew each time it is asked: 6 µs, for each array of a model."""
    name = _names.get(dtype)
    if name is None:
        # Another machine's byte order is another dtype, with a name like `>f4`.
        name = dtype.name if dtype.isnative or dtype.name == BFLOAT16 else dtype.str
        if len(_names) < 256:  # structured dtypes are endless, and none of ours
            _names[dtype] = name
    return name


def _opened_in_place(out: Any, operation: str) -> tuple[Array, str]:
    """The memory of an array that will be written to."""
    if not isinstance(out, np.ndarray) and not hasattr(out, "__dlpack__"):
        try:
            out = np.asarray(memoryview(out))
        except TypeError:
            raise DTypeMismatch(f"{operation}: a writable array is needed, not {type(out).__name__}") from None
    array, name = _opened(out, operation)
    if not array.flags.writeable or _is_secretly_constant(out):
        raise ShapeMismatch(f"{operation}: the array is read-only")
    return array, name


def _is_secretly_constant(out: Any) -> bool:
    """Whether its framework forbids to change it, which not all of them say through DLPack (JAX); NumPy is told."""
    if isinstance(out, np.ndarray) or not hasattr(out, "__array__"):
        return False
    try:
        return not np.asarray(out).flags.writeable
    except (TypeError, RuntimeError):  # PyTorch's bfloat16, which NumPy cannot show
        return False


def _cast_half(array: Array, name: str, dtype: str, operation: str) -> Array:
    """To or from bfloat16, which is ours to do."""
    if dtype == BFLOAT16:
        if array.dtype.kind not in "biuf":
            raise _uncastable(name, dtype, operation)
        exact = np.float32 if np.can_cast(array.dtype, np.float32) else np.float64
        source = np.ascontiguousarray(array, exact)
        bits = np.empty(source.shape, np.uint16)
        _native.cast(source, source.dtype.name, bits, BFLOAT16)
        return bits
    if np.dtype(dtype).kind != "f":
        raise _uncastable(name, dtype, operation)
    bits = np.ascontiguousarray(array)
    wide = np.empty(bits.shape, dtype)
    _native.cast(bits, BFLOAT16, wide, dtype)
    return wide


def _check_range(array: Array, wanted: np.dtype[Any], operation: str) -> None:
    if array.size == 0 or np.can_cast(array.dtype, wanted):
        return
    limits = np.iinfo(wanted)
    for extreme in (array.min(), array.max()):
        if not limits.min <= int(extreme) <= limits.max:
            raise ShapeMismatch(f"{operation}: {int(extreme)} does not fit into {wanted.name}")


def _uncastable(name: str, dtype: str, operation: str) -> DTypeMismatch:
    return DTypeMismatch(
        f"{operation}: numbers of {name} were given, and {dtype} cannot hold them\nhint: convert them yourself"
    )


def _storage(dtype: str) -> np.dtype[Any]:
    return np.dtype(np.uint16 if dtype == BFLOAT16 else dtype)


def _as_numpy_knows(dtype: str) -> np.dtype[Any]:
    return np.dtype(np.float16 if dtype == BFLOAT16 else dtype)


def _ml_bfloat16() -> np.dtype[Any] | None:
    """``ml_dtypes.bfloat16``, if that is installed; looked for once, when bfloat16 is first used."""
    if not _found:
        try:
            import ml_dtypes
        except ImportError:
            _found.append(None)
        else:
            _found.append(np.dtype(ml_dtypes.bfloat16))
    return _found[0]


_found: list[np.dtype[Any] | None] = []
