"""How processes are started: by ``forkserver`` or ``spawn``, and by ``fork`` only where that cannot go wrong.

``forkserver`` is a nursery of our own (`_nursery`), which is there in half the time that multiprocessing's server needs; where there cannot
be one, multiprocessing's serves. A direct fork would be faster still where only one thread runs, and is not taken unless it is asked for:
workers would see what the program has changed meanwhile and draw the same random numbers, or not, depending on whether some
library had started a thread by then.
"""

from __future__ import annotations

import os
import sys
import time
import types

from syncline import _native
from syncline._errors import ConfigurationError, SynclineError
from syncline.ipc import _children, _functions, _worker

TYPE_CHECKING = False  # type checkers know the name; the module `typing` is slow to load
if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess
    from typing import Any

    _Process = _children.Child | BaseProcess

METHODS = ("forkserver", "spawn", "fork")


def method_of(given: str | None) -> str:
    """How processes are started; None is what the program set for multiprocessing, else ``forkserver``."""
    method = given
    if method is None:
        multiprocessing: Any = sys.modules.get("multiprocessing")
        chosen = multiprocessing.get_start_method(allow_none=True) if multiprocessing is not None else None
        method = chosen if chosen in ("spawn", "forkserver") else "forkserver"
    if method not in METHODS:
        raise ConfigurationError(f"start_method={method!r} is none of {', '.join(METHODS)}")
    if method == "fork":
        _refuse_dangerous_fork()
    return method


def started(method: str, number: int, channels: bytes, libraries: list[str]) -> _Process:
    """A process that does what a worker does; ``libraries`` are worth importing once for all."""
    if method == "forkserver" and _children.possible():
        return _children.bear(number, channels, libraries)
    import multiprocessing

    if method == "forkserver":
        _preload(libraries)
    context: Any = multiprocessing.get_context(method)
    process: BaseProcess = context.Process(target=_worker.child, args=(number, channels), name=f"syncline worker {number}")
    hidden = _hide_session()
    try:
        process.start()
    except (EOFError, ConnectionError, RuntimeError) as error:
        raise SynclineError(
            f"worker {number} could not be started: {error or type(error).__name__}\n"
            "hint: a script that starts processes does so under `if __name__ == '__main__':`, since they import it"
        ) from error
    finally:
        if hidden is not None:
            sys.modules["__main__"].__file__ = hidden
    return process


def _refuse_dangerous_fork() -> None:
    """A forked child inherits every lock and none of the threads that would release it."""
    if _native.is_open():
        raise ConfigurationError(
            "start_method='fork': this process is a member of a job, which a copy of it cannot be\n"
            "hint: leave start_method away, or take 'spawn' or 'forkserver'"
        )
    by = time.monotonic() + 0.1  # the kernel counts a thread that was joined for a moment longer
    while (others := len(os.listdir("/proc/self/task")) - 1) > 0 and time.monotonic() < by:
        time.sleep(0.001)
    if others > 0:
        raise ConfigurationError(
            f"start_method='fork': {others} other threads run in this process (NumPy's may be among them), and a copy of it "
            "would wait for ever for what they hold\nhint: leave start_method away, or take 'spawn' or 'forkserver'"
        )


def _preload(libraries: list[str]) -> None:
    """Lets multiprocessing's server import once what every worker would import by itself."""
    from multiprocessing import forkserver

    server: Any = getattr(forkserver, "_forkserver", None)
    # Whoever has chosen other modules keeps them; a server that runs is not told again.
    if getattr(server, "_preload_modules", None) == ["__main__"] and getattr(server, "_forkserver_pid", 0) is None:
        server.set_forkserver_preload(["__main__", _worker.__name__, *libraries])


def libraries(function: Any) -> list[str]:
    """What the program's main module, the one that defines ``function``, and modules of the program that these import have imported
    of Python's own modules and of installed packages.

    Not the program's modules themselves: they may be changed while the program runs, and workers that start later see that.
    """
    found: dict[str, None] = {}
    seen: set[str] = set()
    ahead = ["__main__", getattr(function, "__module__", None) or ""]
    while ahead:
        name = ahead.pop()
        module = sys.modules.get(name)
        if module is None or name in seen:
            continue
        seen.add(name)
        for value in list(vars(module).values()):
            origin = value.__name__ if isinstance(value, types.ModuleType) else None
            if origin is None and isinstance(value, type | types.FunctionType):
                origin = value.__module__
            if not isinstance(origin, str) or origin in seen:
                continue
            package = origin.partition(".")[0]
            if package in sys.stdlib_module_names:
                found[origin] = None
            elif _is_installed(sys.modules.get(package)):
                found[package] = None
            else:
                ahead.append(origin)
    found.pop("__main__", None)
    chosen: Any = getattr(sys.modules.get("multiprocessing.forkserver"), "_forkserver", None)
    found.update(dict.fromkeys(each for each in getattr(chosen, "_preload_modules", ()) if each != "__main__"))
    return list(found)


def _is_installed(module: types.ModuleType | None) -> bool:
    parts = (getattr(module, "__file__", None) or "").split(os.sep)
    return "site-packages" in parts or "dist-packages" in parts


def _hide_session() -> str | None:
    """Lets multiprocessing start a process that imports nothing in the name of a session: what was typed has no file.

    A program that came through stdin claims to be the file ``<stdin>``; that name is returned and to be put back.
    """
    main = sys.modules.get("__main__")
    if main is None or _functions.main_is_a_file() or not hasattr(main, "__file__"):
        return None
    claimed = main.__file__
    del main.__file__
    return claimed


def free_threaded() -> bool:
    """Whether threads of this interpreter run at the same time."""
    enabled = getattr(sys, "_is_gil_enabled", None)
    return enabled is not None and not enabled()
