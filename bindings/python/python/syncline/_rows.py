"""Arrays of which only some rows are there."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from syncline import _arrays
from syncline._errors import ConfigurationError, DTypeMismatch, ShapeMismatch, UnknownKey

Array = NDArray[Any]


class RowSparse:
    """An array of ``shape`` of which only the rows in ``indices`` are there; all others are zero.

    ``values`` has one row per index. Indices may come in any order and more than once: rows of the same index are
    added up. ``.indices`` (sorted, unique, int64), ``.values`` and ``.shape`` are what is kept. As ``out`` of a pull it is
    filled in place. The values are copied.
    """

    __module__ = "syncline"

    indices: NDArray[np.int64]
    values: Array
    shape: tuple[int, ...]

    def __init__(
        self, indices: Any, values: Any, shape: tuple[int, ...], *, dtype: DTypeLike | None = None
    ) -> None:
        self.shape = tuple(int(length) for length in shape)
        if not self.shape or min(self.shape) < 0:
            raise ShapeMismatch(f"RowSparse: {self.shape} has no rows")
        ids, _ = _arrays.whole_numbers(indices, "RowSparse indices", False)
        given = _opened(values)
        if dtype is not None:
            given = given.astype(dtype)
        elif not hasattr(values, "dtype") and not hasattr(values, "__dlpack__"):
            given = given.astype(np.float32)  # what everything else here is unless said otherwise
        if _arrays._name_of(given.dtype) not in _arrays.KNOWN:
            raise DTypeMismatch(f"RowSparse: {given.dtype} is not one of {', '.join(_arrays.KNOWN)}")
        wanted = (len(ids), *self.shape[1:])
        if given.size != len(ids) * _count(self.shape[1:]):
            raise ShapeMismatch(f"RowSparse: values have the shape {given.shape}, {wanted} is needed")
        self._keep(ids, given.reshape(wanted))

    def _keep(self, ids: NDArray[np.int64], values: Array) -> None:
        if len(ids) and (ids.min() < 0 or ids.max() >= self.shape[0]):
            outside = int(ids.min() if ids.min() < 0 else ids.max())
            raise UnknownKey(f"RowSparse: row {outside} does not exist, there are {self.shape[0]}")
        if len(ids) < 2 or bool(np.all(ids[1:] > ids[:-1])):
            self.indices, self.values = ids.copy(), np.array(values, order="C")
            return
        unique, places = np.unique(ids, return_inverse=True)
        summed = np.zeros((len(unique), *self.shape[1:]), values.dtype)
        np.add.at(summed, places.reshape(-1), values)
        self.indices, self.values = unique, summed

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: DTypeLike = "float32") -> RowSparse:
        """Without any row: what a pull fills."""
        shape = tuple(shape)
        return cls(np.empty(0, np.int64), np.empty((0, *shape[1:]), _numpy_dtype(dtype)), shape)

    @classmethod
    def from_dense(cls, array: Any) -> RowSparse:
        """The rows of a dense array that are not all zero."""
        dense = _opened(array)
        if dense.ndim == 0:
            raise ShapeMismatch("RowSparse: a number has no rows")
        there = np.flatnonzero((dense.reshape(len(dense), -1) != 0).any(axis=1)) if dense.size else np.empty(0, np.int64)
        return cls(there.astype(np.int64), dense[there], dense.shape)

    @classmethod
    def _blank(cls, shape: tuple[int, ...]) -> RowSparse:
        made = cls.__new__(cls)
        made.shape = shape
        return made

    def to_dense(self) -> Array:
        """A NumPy array with all rows."""
        dense = np.zeros(self.shape, self.values.dtype)
        dense[self.indices] = self.values
        return dense

    def copy(self) -> RowSparse:
        """One that shares nothing with this."""
        return RowSparse(self.indices, self.values, self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values."""
        return self.values.dtype

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RowSparse):
            return NotImplemented
        same = self.shape == other.shape and self.dtype == other.dtype
        return same and np.array_equal(self.indices, other.indices) and np.array_equal(self.values, other.values)

    __hash__ = None  # type: ignore[assignment]  # it may change

    def __repr__(self) -> str:
        return f"<syncline.RowSparse: {len(self.indices)} rows of {self.shape}, {self.dtype}>"


def _opened(given: Any) -> Array:
    array, name = _arrays._opened(given)
    if name == _arrays.BFLOAT16 and array.dtype == np.uint16:
        return _arrays.as_bfloat16(np.ascontiguousarray(array))
    return array


def _numpy_dtype(dtype: DTypeLike) -> Any:
    name = _arrays.dtype_name(dtype)
    if name not in _arrays.KNOWN:
        raise ConfigurationError(f"RowSparse: dtype {name!r} is not one of {', '.join(_arrays.KNOWN)}")
    kind = _arrays.dtype_object(name)
    return np.dtype(np.float32) if isinstance(kind, str) else kind


def _count(lengths: tuple[int, ...]) -> int:
    return int(np.prod(lengths, dtype=np.int64))
