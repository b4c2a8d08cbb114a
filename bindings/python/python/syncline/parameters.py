"""Keeps the parameters of any model the same on all workers: a list of arrays in, a list of arrays out.

    class MyManager(sl.parameters.ParamManager):
        def get_values(self):
            return [self.model.w, self.model.b]

        def set_values(self, values):
            self.model.w, self.model.b = values

    manager = MyManager(model)      # all workers now have worker 0's values
    ...                             # each trains on its own data
    manager.sync()                  # everybody's changes are added up, and everybody has the sum

The managers of ``sl.torch``, ``sl.keras``, ``sl.jax``, ``sl.sklearn`` and of ``multiverso.theano_ext`` are made so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncline import _native
from syncline._arrays import BFLOAT16, KNOWN, _opened, as_bfloat16, dtype_object
from syncline._errors import DTypeMismatch, ShapeMismatch
from syncline._shared import empty_shared

Array = NDArray[Any]

__all__ = ["ParamManager", "Shared"]


class ParamManager:
    """What workers do with a model: start from worker 0's parameters, and exchange what has changed since.

    Making one is collective: every worker makes the same managers and tables in the same order.
    """

    def __init__(self, model: Any, *, name: str | None = None) -> None:
        self.model = model
        self._shared = Shared(self.get_values(), name=name)
        self.set_values(self._shared.values())

    def get_values(self) -> Sequence[Any]:
        """The parameters as they are now, always in the same order and of the same shapes."""
        raise NotImplementedError(f"{type(self).__name__} does not say how a model's parameters are read")

    def set_values(self, values: list[Any]) -> None:
        """Gives the model these parameters. They are views of memory that changes with the next sync: copy them."""
        raise NotImplementedError(f"{type(self).__name__} does not say how a model's parameters are written")

    def sync(self) -> None:
        """Adds what has changed since the last sync to everybody's changes, and takes over the sum."""
        self.set_values(self._shared.exchange(self.get_values()))

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The parameters' shapes."""
        return list(self._shared.shapes)

    @property
    def dtypes(self) -> list[Any]:
        """Their dtypes."""
        return [dtype_object(dtype) for dtype in self._shared.dtypes]

    @property
    def sizes(self) -> list[int]:
        """How many numbers each has."""
        return list(self._shared.sizes)


class Shared:
    """Arrays that all workers hold together, in one table for each dtype, and what this worker last saw of them.

    ``exchange(values)`` adds the difference between ``values`` and what was last seen, and returns the new values.
    """

    def __init__(self, values: Sequence[Any], *, name: str | None = None) -> None:
        opened = [_numbers(value, place) for place, value in enumerate(values)]
        self.shapes = [array.shape for array, _ in opened]
        self.sizes = [array.size for array, _ in opened]
        self.dtypes = [dtype for _, dtype in opened]
        self._parts = [_Part(dtype, self._of(dtype), self.sizes) for dtype in dict.fromkeys(self.dtypes)]
        for part in self._parts:
            part.begin([array for array, _ in opened], f"{name}.{part.dtype}" if name else None)
        _native.barrier()  # all have read the first values before anybody changes them

    @property
    def tables(self) -> list[_native.ArrayTable]:
        """The tables, by dtype in the order of its first appearance."""
        return [part.table for part in self._parts]

    def values(self) -> list[Array]:
        """What was last seen: views, which the next exchange changes."""
        found: dict[int, Array] = {}
        for part in self._parts:
            for place, view in part.views():
                found[place] = view.reshape(self.shapes[place])
        return [found[place] for place in range(len(self.shapes))]

    def exchange(self, values: Sequence[Any]) -> list[Array]:
        """Adds what has changed since the last call, and returns the sum of everybody's changes."""
        if len(values) != len(self.shapes):
            raise ShapeMismatch(f"sync: the model had {len(self.shapes)} parameters, and now has {len(values)}")
        opened = []
        for place, value in enumerate(values):
            array, dtype = _numbers(value, place)
            if array.shape != self.shapes[place] or dtype != self.dtypes[place]:
                before = f"{self.dtypes[place]} {self.shapes[place]}"
                raise ShapeMismatch(f"sync: parameter {place} was {before}, and is now {dtype} {array.shape}")
            opened.append(array)
        for part in self._parts:
            part.exchange(opened)
        return self.values()

    def _of(self, dtype: str) -> list[int]:
        return [place for place, each in enumerate(self.dtypes) if each == dtype]


class _Part:
    """The parameters of one dtype, end to end in one vector."""

    table: _native.ArrayTable

    def __init__(self, dtype: str, places: list[int], sizes: list[int]) -> None:
        self.dtype = dtype
        self.slices = {}
        start = 0
        for place in places:
            self.slices[place] = slice(start, start + sizes[place])
            start += sizes[place]
        self.size = start
        # What is added lies where the tables reach it; bfloat16 is subtracted as float32.
        self.half = dtype == BFLOAT16
        work = "float32" if self.half else dtype
        self.now: Array = empty_shared(start, work)
        self.last: Array = np.empty(start, work)

    def begin(self, arrays: list[Array], name: str | None) -> None:
        self._read(arrays)
        # A table of bfloat16 would round each worker's small steps away; the sum is kept in float32.
        self.table = _native.ArrayTable(self.size, self.now, dtype=self.now.dtype, name=name)
        self.table.get(out=self.last)

    def exchange(self, arrays: list[Array]) -> None:
        self._read(arrays)
        if self.half:
            # What the model could not hold is no change: only what differs from the rounded numbers is one.
            np.copyto(self.last, _rounded(self.last))
        np.subtract(self.now, self.last, out=self.now)
        self.table.add_get(self.now, out=self.last)

    def views(self) -> list[tuple[int, Array]]:
        presented = _as_bits(self.last) if self.half else self.last
        return [(place, presented[part]) for place, part in self.slices.items()]

    def _read(self, arrays: list[Array]) -> None:
        for place, part in self.slices.items():
            into = self.now[part].reshape(arrays[place].shape)
            if self.half:
                wide = np.empty(arrays[place].shape, np.float32)
                _native.cast(np.ascontiguousarray(arrays[place]), BFLOAT16, wide, "float32")
                np.copyto(into, wide)
            else:
                np.copyto(into, arrays[place])


def _numbers(value: Any, place: int) -> tuple[Array, str]:
    array, dtype = _opened(value)
    if dtype not in KNOWN:
        raise DTypeMismatch(f"parameter {place}: {dtype} is not one of {', '.join(KNOWN)}")
    return array, dtype


def _as_bits(wide: Array) -> Array:
    bits = np.empty(wide.shape, np.uint16)
    _native.cast(wide, "float32", bits, BFLOAT16)
    return as_bfloat16(bits)


def _rounded(wide: Array) -> Array:
    bits = np.empty(wide.shape, np.uint16)
    back = np.empty(wide.shape, np.float32)
    _native.cast(wide, "float32", bits, BFLOAT16)
    _native.cast(bits, BFLOAT16, back, "float32")
    return back
