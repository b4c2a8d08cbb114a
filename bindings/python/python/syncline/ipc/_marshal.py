"""A value that is laid out once and read many times: torch-ipc's ``marshal``."""

from __future__ import annotations

from typing import Any

from syncline._errors import Closed
from syncline._native import SharedTable


class Marshal:
    """What ``marshal()`` returns. It may be passed to workers and sent through channels; arrays that are read are read-only."""

    __module__ = "syncline.ipc"

    def __init__(self, table: SharedTable) -> None:
        self._table: SharedTable | None = table

    def read(self) -> Any:
        """The value, made anew each time; its arrays, unless all of it is small (32 KB), lie in memory that all readers share."""
        table = self._table
        if table is None:
            raise Closed("marshal is closed")
        return table[0]

    def close(self) -> None:
        """Lets go of the memory, which goes with the last that holds it. A second time does nothing."""
        self._table = None

    def __reduce__(self) -> tuple[Any, ...]:
        if self._table is None:
            raise Closed("marshal is closed")
        return Marshal, (self._table,)


def marshal(obj: Any, upval: bool = False) -> Marshal:
    """Lays ``obj`` out in shared memory, to be read many times from any thread or process.

    ``upval`` is torch-ipc's: with it, functions may be closures.
    """
    if obj is None:
        raise ValueError("marshal: there is nothing to marshal in None")
    table = SharedTable()
    if upval:
        from syncline.ipc._functions import with_closures

        obj = with_closures(obj)
    table[0] = obj
    return Marshal(table)
