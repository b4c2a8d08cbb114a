"""What a crew is given to do, and what became of it."""

from __future__ import annotations

import collections

from syncline.ipc import _functions

TYPE_CHECKING = False  # type checkers know the name; the module `typing` is slow to load
if TYPE_CHECKING:
    from typing import Any


class Job:
    """Some numbers for which one function is called, and what came of each."""

    def __init__(self, total: int, function: Any, args: tuple[Any, ...], init: Any = None, numbered: bool = True) -> None:
        self.total = total
        self.name = _functions.name_of(function)
        self.call = (init, function, args, numbered)
        self.waiting: collections.deque[tuple[int, int]] = collections.deque([(1, total + 1)] if total else [])
        self.results: dict[int, Any] = {}
        self.errors: dict[int, BaseException] = {}
        self.failed: set[int] = set()  # these, and those whose errors were raised already
        self.ended = 0
        self.seconds = 0.0
        self.token = 0
        self.work = b""

    @property
    def over(self) -> bool:
        return self.ended == self.total

    @property
    def missing(self) -> list[int]:
        """The numbers that have not ended."""
        return [number for number in range(1, self.total + 1) if number not in self.results and number not in self.failed]

    def next(self, most: int) -> tuple[int, int]:
        """Takes at most so many numbers that nobody has."""
        first, end = self.waiting.popleft()
        if end - first > most:
            self.waiting.appendleft((first + most, end))
            end = first + most
        return first, end

    def note(self, number: int, good: bool, made: Any, seconds: float) -> None:
        (self.results if good else self.errors)[number] = made
        self.ended += 1
        if not good:
            self.failed.add(number)
        self.seconds += seconds


class Stats(dict[str, "Any"]):
    """What a worker did: ``worker``, ``pid``, ``tasks``, ``failed``, ``seconds``, ``cpu_seconds``, ``alive``."""
