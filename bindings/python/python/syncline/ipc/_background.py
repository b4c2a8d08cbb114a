"""Tasks behind the caller's back: torch-ipc's ``BackgroundTask`` and ``BackgroundTaskPool``."""

from __future__ import annotations

import time

from syncline._errors import Closed, Timeout, UnknownKey
from syncline.ipc import _start
from syncline.ipc._crew import crew, end_with, until
from syncline.ipc._job import Job

TYPE_CHECKING = False  # type checkers know the name; the module `typing` is slow to load
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class BackgroundTaskPool:
    """n workers that work off tasks, numbered 1, 2, … as they are added.

    Workers are processes unless ``processes=False``; functions and arguments are then as for ``map``. With
    ``close_on_last_task`` the workers end when all tasks have, and none can be added afterwards. A context manager.
    """

    __module__ = "syncline.ipc"

    def __init__(
        self,
        n: int,
        close_on_last_task: bool = False,
        *,
        processes: bool = not _start.free_threaded(),
        start_method: str | None = None,
    ) -> None:
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise ValueError("BackgroundTaskPool: at least one worker is needed")
        self._crew = crew(n, processes, start_method)
        self._closes = close_on_last_task
        self._closed = False
        self._jobs: dict[int, Job] = {}  # those whose result nobody has taken
        self._added = 0
        end_with(self, self._crew)

    def add_task(self, func: Callable[..., Any], *args: Any) -> int:
        """Adds a task that calls ``func(*args)`` and returns its number."""
        if not callable(func):
            raise TypeError("add_task arg #1 expected a function")
        self._listen()
        if self._closed:
            raise Closed("the pool has ended: it was to close with its last task")
        job = Job(1, func, args, numbered=False)
        self._crew.submit(job)
        self._added += 1
        self._jobs[self._added] = job
        return self._added

    def has_task(self) -> bool:
        """Whether there is a task whose result nobody has taken."""
        return bool(self._jobs)

    def is_done(self, id: int | None = None) -> bool:
        """Whether this task has ended; without a number, whether all have."""
        self._listen()
        if id is None:
            return all(job.over for job in self._jobs.values())
        self._check(id)
        return id not in self._jobs or self._jobs[id].over

    def get_result(self, id: int | None = None, *, timeout: float | None = None) -> Any:
        """Waits for a task and returns its result, once: a second time it is None. Raises what the task raised.

        Without a number it is the first task whose result was not taken; None when none is left.
        """
        if id is None:
            if not self._jobs:
                return None
            id = next(iter(self._jobs))
        self._check(id)
        job = self._jobs.get(id)
        if job is None:
            return None
        began = time.monotonic()
        for _ in until(lambda: job.over, self._crew, timeout):
            pass
        if not job.over:
            raise Timeout(f"get_result: waited {time.monotonic() - began:.1f} s for task {id}, {job.name}")
        self._jobs.pop(id, None)
        self._close_if_last()
        if job.errors:
            raise job.errors[1]
        return job.results.pop(1, None)

    def statistics(self) -> list[Any]:
        """What each worker did so far."""
        return self._crew.statistics()

    def close(self) -> None:
        """Lets the workers finish what they have, at most five seconds, and ends them. A second time does nothing."""
        self._closed = True
        self._crew.end()

    def __enter__(self) -> BackgroundTaskPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._closed = True
            self._crew.kill()

    def _listen(self) -> None:
        while self._crew.pump(0):
            pass
        self._close_if_last()

    def _close_if_last(self) -> None:
        if self._closes and self._added and not self._closed and all(job.over for job in self._jobs.values()):
            self._closed = True
            self._crew.close()

    def _check(self, id: int) -> None:
        if not 1 <= id <= self._added:
            raise UnknownKey(f"task {id} was never added; the last one is {self._added}")


class BackgroundTask:
    """A single task with a worker of its own: ``BackgroundTask(func, *args)``."""

    __module__ = "syncline.ipc"

    def __init__(
        self,
        func: Callable[..., Any],
        *args: Any,
        processes: bool = not _start.free_threaded(),
        start_method: str | None = None,
    ) -> None:
        self._pool = BackgroundTaskPool(1, True, processes=processes, start_method=start_method)
        self._pool.add_task(func, *args)
        self._pool._crew.close()  # it has its task, and ends after it whether or not somebody asks what came of it

    def is_done(self) -> bool:
        """Whether it has ended."""
        return self._pool.is_done(1)

    def get_result(self, *, timeout: float | None = None) -> Any:
        """Waits for its result, which is given once; raises what it raised."""
        return self._pool.get_result(1, timeout=timeout)

    get_results = get_result  # the name in torch-ipc's own documentation
