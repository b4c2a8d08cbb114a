"""What a worker answers, on its way home: whose answer it is comes first, and is known even if the rest cannot be read.

A result may be written by its worker and still not be readable here: its class wants other arguments than it says, or its
module is not to be found. The channel then raises, and the message is gone; without the head nobody would know which number
to stop waiting for. Pickle rebuilds things in their order, so the head is there before the result fails.
"""

from __future__ import annotations

import threading

TYPE_CHECKING = False  # type checkers know the name; the module `typing` is slow to load
if TYPE_CHECKING:
    from typing import Any

Head = tuple[int, int, int, bool, float, float]  # job's token, number, worker, did it go well, seconds, processor seconds
PLAIN = frozenset({type(None), bool, int, float, str, bytes})  # what always arrives; the way of the many short answers


class _Kept:
    """A head that is noted where it arrives."""

    def __init__(self, head: Head) -> None:
        self.head = head

    def __reduce__(self) -> Any:
        return _arrived, (self.head,)


class _Last(threading.local):
    head: Head | None = None


_last = _Last()


def _arrived(head: Head) -> Head:
    _last.head = head
    return head


def message(head: Head, made: Any) -> tuple[Any, Any]:
    """What a worker writes, and the other side reads as a head and what was made."""
    return (head if type(made) in PLAIN else _Kept(head), made)


def expect() -> None:
    """To be called before reading: from here on the head that arrives is that of the message."""
    _last.head = None


def unreadable(error: Exception) -> tuple[Head, Exception]:
    """The head of the message whose reading raised ``error``, as one that failed with it; raises where there was none."""
    head = _last.head
    if head is None:
        raise error
    token, number, worker, _, seconds, cpu = head
    error.add_note(f"what worker {worker} returned for number {number} cannot be read here")
    return (token, number, worker, False, seconds, cpu), error
