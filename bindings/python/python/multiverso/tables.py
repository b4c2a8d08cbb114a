"""Multiverso's table handlers: float32 unless ``dtype`` says otherwise, NumPy in and out."""

from __future__ import annotations

from typing import Any

import syncline

from multiverso import _flags


class SizeMismatch(syncline.ShapeMismatch, AssertionError):
    """An array has another size than the table needs; old scripts know it as an AssertionError."""


class TableHandler:
    """What all tables have in common; only its subclasses can be made."""

    def __init__(self, *args: Any, **options: Any) -> None:
        raise NotImplementedError("a TableHandler is an ArrayTableHandler or a MatrixTableHandler")

    def get(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError("a TableHandler is an ArrayTableHandler or a MatrixTableHandler")

    def add(self, *args: Any, **options: Any) -> None:
        raise NotImplementedError("a TableHandler is an ArrayTableHandler or a MatrixTableHandler")


class ArrayTableHandler(TableHandler):
    """Numbers that all workers share, always moved whole.

    Every worker makes the same tables in the same order. Only the master's ``init_value`` counts, and it is in place
    everywhere when the constructor returns.
    """

    def __init__(self, size: int, init_value: Any = None, *, dtype: Any = "float32") -> None:
        try:
            self._table = syncline.ArrayTable(size, init_value, dtype=dtype, updater=_flags.current.updater)
        except syncline.ShapeMismatch as error:
            raise SizeMismatch(str(error)) from error

    def get(self, sync: bool = True) -> Any:
        """The latest values: a new array of shape ``(size,)``. It always waits; ``sync`` is accepted as ever."""
        return self._table.get()

    def add(self, data: Any, sync: bool = False) -> None:
        """Adds ``data``, as many numbers as the table has; with ``sync`` it returns when they are applied."""
        try:
            self._table.add(data, sync)
        except syncline.ShapeMismatch as error:
            raise SizeMismatch(str(error)) from error


class MatrixTableHandler(TableHandler):
    """Rows that all workers share, moved whole or by id; made as an ``ArrayTableHandler`` is."""

    def __init__(self, num_row: int, num_col: int, init_value: Any = None, *, dtype: Any = "float32") -> None:
        updater = _flags.current.updater
        try:
            self._table = syncline.MatrixTable(num_row, num_col, init_value, dtype=dtype, updater=updater)
        except syncline.ShapeMismatch as error:
            raise SizeMismatch(str(error)) from error

    def get(self, row_ids: Any = None, sync: bool = True) -> Any:
        """The latest values, ``(num_row, num_col)``, or one row per id in the order asked; ``sync`` changes nothing."""
        return self._table.get(row_ids)

    def add(self, data: Any = None, row_ids: Any = None, sync: bool = False) -> None:
        """Adds ``data`` to the table or to these rows; with ``sync`` it returns when that is applied."""
        if data is None:
            raise SizeMismatch("add: there is no data")
        try:
            self._table.add(data, row_ids, sync)
        except syncline.ShapeMismatch as error:
            raise SizeMismatch(str(error)) from error
