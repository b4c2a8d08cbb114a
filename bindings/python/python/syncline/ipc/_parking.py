"""Workers of a finished map that wait a while for the next one.

Starting processes costs far more than what they are often started for, and programs that call ``map`` once usually call it again.
So the crew of ``map(n, f, processes=k)`` is parked when it was joined, and the next such map gets it, unless it could tell:
when the working directory, the environment, the module path or the function's file has changed meanwhile, new processes are started.
A worker that hears nothing for ten seconds ends by itself, and all end with the program.
"""

from __future__ import annotations

import os
import sys
import threading

from syncline.ipc import _start
from syncline.ipc._crew import ProcessCrew

TYPE_CHECKING = False  # type checkers know the name; the module `typing` is slow to load
if TYPE_CHECKING:
    from typing import Any

_parked: dict[tuple[int, str], ProcessCrew] = {}
_lock = threading.Lock()


def hired(size: int, start_method: str | None, function: Any) -> ProcessCrew:
    """A crew that was parked and fits, or a new one."""
    surroundings = _surroundings()
    method = _start.method_of(start_method)
    with _lock:
        crew = _parked.pop((size, method), None)
    if crew is not None:
        if crew.surroundings == surroundings and _is_older(function, crew.born) and crew.resume():
            return crew
        crew.close()
    crew = ProcessCrew(size, method, function)
    crew.surroundings = surroundings
    return crew


def park(crew: ProcessCrew) -> None:
    """Keeps the crew for the next map, or ends it where it cannot be used again."""
    place = (len(crew.workers), crew.method)
    if not crew.rest():
        crew.end()
        return
    with _lock:
        other = _parked.pop(place, None)
        _parked[place] = crew
    if other is not None:
        other.close()


def _surroundings() -> Any:
    """What a process that was started now would find."""
    try:
        folder = os.getcwd()
    except OSError:
        folder = ""
    return folder, dict(os.environ), list(sys.path), "multiprocessing.process" in sys.modules


def _is_older(function: Any, moment: float) -> bool:
    """Whether the file that defines ``function`` was last changed before ``moment``."""
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    try:
        return file is None or os.stat(file).st_mtime < moment
    except OSError:
        return True


def forget_in_child() -> None:
    """A fork has nobody to end."""
    global _lock
    _lock = threading.Lock()
    _parked.clear()


os.register_at_fork(after_in_child=forget_in_child)
