"""One function on n workers: torch-ipc's ``map`` and ``map_extended``, and pools that stay."""

from __future__ import annotations

import time

from syncline._errors import Timeout
from syncline.ipc import _parking, _start
from syncline.ipc._crew import Crew, ProcessCrew, crew, end_with, until
from syncline.ipc._failures import MapError, line, raised
from syncline.ipc._job import Job, Stats
from syncline.ipc._progress import Bar

TYPE_CHECKING = False  # type checkers know the name; the module `typing` is slow to load
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, SupportsIndex


class Map:
    """The workers of one ``map``. A context manager that joins, or, when its block raises, ends them."""

    __module__ = "syncline.ipc"

    def __init__(self, job: Job, crew: Crew, own: bool, progress: bool, parks: bool = False) -> None:
        self._job, self._crew, self._own, self._parks = job, crew, own, parks
        self._bar = Bar(job.name, job.total) if progress else None
        self._joined = False
        self._stats: list[Stats] | None = None

    def join(self, timeout: float | None = None) -> list[Any]:
        """Waits until all have ended and returns a list with one result per worker, in order of number.

        If any has failed, MapError has the errors of all of them. Those that ``check_errors()`` has raised do not count,
        and their places are left out of the list. A second ``join()`` returns ``[]``. Timeout names those that
        still run; ``join()`` may be called again.
        """
        if self._joined:
            return []
        self._wait(timeout)
        self._joined = True
        job = self._job
        if self._own:
            self._end()
        results, job.results = job.results, {}
        errors, job.errors = job.errors, {}
        if errors:
            raise self._failed(errors)
        return [results[number] for number in sorted(results)]

    def _end(self) -> None:
        if self._parks and isinstance(self._crew, ProcessCrew):
            self._stats = self._crew.statistics()
            _parking.park(self._crew)
        else:
            self._crew.end()
            self._stats = self._crew.statistics()

    def check_errors(self) -> None:
        """Raises what has failed so far, while others still run; ``join()`` then returns what the others return."""
        while self._crew.pump(0):
            pass
        self._show()
        if self._job.errors:
            errors, self._job.errors = self._job.errors, {}
            raise self._failed(errors)

    def done(self) -> bool:
        """Whether all have ended, so that ``join()`` would not wait."""
        while not self._job.over and self._crew.pump(0):
            pass
        return self._job.over

    def statistics(self) -> list[Stats]:
        """What each worker did: tasks, failed, seconds, cpu_seconds, pid, alive."""
        return self._stats if self._stats is not None else self._crew.statistics()

    def terminate(self) -> None:
        """Ends workers that are processes now, whatever they do. Results that are there already stay."""
        if self._own:
            self._crew.kill()

    def __enter__(self) -> Map:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.join()
        else:
            self.terminate()

    def __len__(self) -> int:
        return self._job.total

    def _wait(self, timeout: float | None) -> None:
        began = time.monotonic()
        self._show()
        for _ in until(lambda: self._job.over, self._crew, timeout):
            self._show()
        job = self._job
        if not job.over:
            missing = [str(number) for number in job.missing]
            shown = ", ".join(missing[:10]) + (f" and {len(missing) - 10} more" if len(missing) > 10 else "")
            raise Timeout(
                f"map: waited {time.monotonic() - began:.1f} s for {job.name}, number {shown}\n"
                "hint: join() may be called again; terminate() ends the workers"
            )

    def _show(self) -> None:
        if self._bar is not None:
            self._bar.show(self._job.ended, len(self._job.errors))

    def _failed(self, errors: dict[int, BaseException]) -> MapError:
        numbers = sorted(errors)
        lines = "\n".join(f"  {self._job.name}({number}): {line(errors[number])}" for number in numbers)
        text = f"map: {len(errors)} of {self._job.total} failed\n{lines}"
        error = raised([errors[number] for number in numbers], text)
        for each in error.errors[:3]:
            for note in getattr(each, "__notes__", [])[:1]:
                error.add_note(note)
        return error


def map(
    n: SupportsIndex,
    f: Callable[..., Any],
    *args: Any,
    processes: bool | int = not _start.free_threaded(),
    start_method: str | None = None,
    progress: bool = False,
) -> Map:
    """Starts n workers that call ``f(*args, id)``, id 1…n, and returns a Map whose ``join()`` has their results in order.

    ``processes=True``: n processes, one call each. ``processes=k``: n calls spread over k processes. ``processes=False``: n
    threads of this process, which share its memory. For processes, ``f`` is a function at the top level of a module
    (or of a notebook), and arguments and results are picklable; arrays, channels, queues, mutexes and shared
    tables travel through shared memory. ``start_method`` is "forkserver" (the default), "spawn" or, where no thread
    but this one runs, "fork". ``progress`` draws a bar on stderr while ``join()`` waits.
    """
    return map_extended(n, None, f, *args, processes=processes, start_method=start_method, progress=progress)


def map_extended(
    n: SupportsIndex,
    init: Callable[[], Any] | str | None,
    f: Callable[..., Any],
    *args: Any,
    processes: bool | int = not _start.free_threaded(),
    start_method: str | None = None,
    progress: bool = False,
) -> Map:
    """As ``map``, but every worker first runs ``init``: a function without arguments, Python source, or None.

    Source runs where ``f`` was defined, so that ``f`` sees the names it defines. Where ``init`` fails, ``f`` is not called.
    """
    n = _checked(n, f)
    if not (init is None or isinstance(init, str) or callable(init)):
        raise TypeError("map_extended arg #2 expected a function, source text or None")
    size = n if isinstance(processes, bool) else _checked_size(int(processes), n)
    job = Job(n, f, args, init)
    # Processes that are shared by many calls may go on to the next map; what an init has done to them would be seen there.
    parks = bool(processes) and not isinstance(processes, bool) and size < n and init is None and start_method != "fork"
    made = _parking.hired(size, start_method, f) if parks else crew(size, bool(processes), start_method, f)
    try:
        if isinstance(made, ProcessCrew):
            made.for_one_map = True
        made.submit(job, one_each=size == n)
        if size == n or not isinstance(made, ProcessCrew):
            made.close()  # each has its tasks already and ends after them, joined or not
    except BaseException:
        made.kill()
        raise
    return Map(job, made, True, progress, parks)


class Pool:
    """Workers that stay for many maps; ``pool(n)`` makes it. A context manager that closes itself."""

    __module__ = "syncline.ipc"

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        end_with(self, crew)

    def map(self, n: SupportsIndex, f: Callable[..., Any], *args: Any, progress: bool = False) -> Map:
        """Calls ``f(*args, id)`` for id 1…n, spread over the workers; see ``syncline.ipc.map``."""
        n = _checked(n, f)
        job = Job(n, f, args)
        self._crew.submit(job)
        return Map(job, self._crew, False, progress)

    def statistics(self) -> list[Stats]:
        """What each worker did so far."""
        return self._crew.statistics()

    def close(self) -> None:
        """Lets the workers finish what they have, at most five seconds, and ends them. A second time does nothing."""
        self._crew.end()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._crew.kill()


def pool(
    workers: int, *, processes: bool = not _start.free_threaded(), start_method: str | None = None
) -> Pool:
    """Starts workers that stay: ``with pool(4) as p: p.map(1000, f).join()`` pays for starting them once."""
    return Pool(crew(_checked_size(workers, workers), processes, start_method))


def _checked(n: Any, f: Any) -> int:
    """How many; NumPy's whole numbers are whole numbers, too."""
    if isinstance(n, bool) or not hasattr(n, "__index__") or (number := int(n.__index__())) < 0:
        raise TypeError("map arg #1 expected a number of workers")
    if not callable(f):
        raise TypeError("map arg #2 expected a function")
    return number


def _checked_size(size: int, n: int) -> int:
    if size < 1:
        raise ValueError("at least one worker is needed")
    return min(size, max(n, 1))


