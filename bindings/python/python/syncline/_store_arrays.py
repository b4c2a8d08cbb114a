"""What a key-value store asks of NumPy: other layouts, other frameworks, ids of any shape."""

from __future__ import annotations

from typing import Any

import numpy as np

from syncline import _arrays
from syncline._arrays import BFLOAT16, KNOWN, Array
from syncline._errors import DTypeMismatch, ShapeMismatch
from syncline._rows import RowSparse


def opened(given: Any, purpose: str) -> tuple[Array, str, tuple[int, ...]]:
    """A value as an array in C order, bfloat16 as its bits, the name of its dtype, and its shape, which a scalar has too.

    ``purpose`` begins the text of an error: the operation and the key.
    """
    if isinstance(given, (str, bytes, dict, list, tuple, set)) or given is None:
        raise DTypeMismatch(f"{purpose}: a value is an array or a RowSparse, not {type(given).__name__}")
    array, name = _arrays._opened(given, purpose)
    if name not in KNOWN:
        raise _unknown(purpose, "the value", name)
    return np.ascontiguousarray(array), name, array.shape


def opened_out(out: Any, purpose: str) -> tuple[Array, str, tuple[int, ...], Array | None]:
    """The memory of an output, its dtype and shape, and a fresh array when results cannot be written there directly."""
    memory, name = _arrays._opened_in_place(out, purpose)
    if name not in KNOWN:
        raise _unknown(purpose, "`out`", name)
    shape = memory.shape
    # One axis at least: memory without any is not lent.
    return np.atleast_1d(memory), name, shape, None if memory.flags.c_contiguous else np.empty(shape, memory.dtype)


def _unknown(purpose: str, what: str, name: str) -> DTypeMismatch:
    return DTypeMismatch(f"{purpose}: {what} is of {name}, not one of {', '.join(KNOWN)}\nhint: convert it with astype()")


def pour(fresh: Array, memory: Array) -> None:
    """Where it belongs."""
    np.copyto(memory, fresh)


def name_of(rows: RowSparse) -> str:
    """The name of a row-sparse array's dtype."""
    return _arrays._name_of(rows.values.dtype)


def parts(rows: RowSparse) -> tuple[Array, Array, str]:
    """Ids and values of a row-sparse array, whatever its owner has put there, in C order."""
    values, name = _arrays._opened(rows.values)
    return np.ascontiguousarray(rows.indices, np.int64), np.asarray(values, order="C"), name


def row_ids(given: Any, purpose: str) -> Array:
    """Ids of any shape, and of any dtype that has whole numbers, as a line of int64."""
    array, name = _arrays._opened(given, f"{purpose}: row_ids")
    if name == "int64":
        return np.ascontiguousarray(array).ravel()
    # MXNet's ids are floats unless one asks for others.
    whole = array.dtype.kind == "f" and bool(np.all((array == np.floor(array)) & (np.abs(array) < 2.0**63)))
    if name == BFLOAT16 or not (whole or array.dtype.kind in "iu"):
        numbers = "these are not whole" if array.dtype.kind == "f" else f"not {name}"
        raise DTypeMismatch(f"{purpose}: row_ids are whole numbers of 64 bits, {numbers}")
    if array.dtype.kind == "u":
        _arrays._check_range(array, np.dtype(np.int64), f"{purpose}: row_ids")
    return np.ascontiguousarray(array, np.int64).ravel()


def is_sequence_of_numbers(given: Any) -> bool:
    """Whether a list or tuple is one array of ids rather than several arrays."""
    return all(isinstance(each, (int, np.integer)) for each in given)


def lent(array: Array, dtype: str) -> Array:
    """Memory of a store for the time of an updater: bfloat16 as the best that is installed."""
    return _arrays.as_bfloat16(array) if dtype == BFLOAT16 else array


def bits(array: Array, dtype: str) -> Array:
    """What an updater left in an array that :func:`lent` made, as it is stored."""
    if dtype != BFLOAT16:
        return array
    stored, name = _arrays._opened(array)
    return stored if name == BFLOAT16 else _arrays._cast_half(array, name, BFLOAT16, "set_updater")


def refuse_count(what: str, keys: int, found: int) -> ShapeMismatch:
    """The error for lists that do not belong together."""
    return ShapeMismatch(f"kvstore: {keys} keys and {found} {what}; there must be as many")
