"""How processes are started: by ``forkserver`` or ``spawn``, and by ``fork`` only where that cannot go wrong."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import types
from collections.abc import Iterator
from multiprocessing.context import BaseContext
from typing import Any

from syncline import _native
from syncline._errors import ConfigurationError
from syncline.ipc import _functions

METHODS = ("forkserver", "spawn", "fork")
WORKER = "syncline.ipc._worker"


def context(method: str | None, function: Any = None) -> BaseContext:
    """What starts processes; None is what the program set for multiprocessing, else ``forkserver``. They will call ``function``."""
    if method is None:
        chosen = multiprocessing.get_start_method(allow_none=True)
        method = chosen if chosen in ("spawn", "forkserver") else "forkserver"
    if method not in METHODS:
        raise ConfigurationError(f"start_method={method!r} is none of {', '.join(METHODS)}")
    if method == "fork":
        _refuse_dangerous_fork()
    elif method == "forkserver":
        _preload(function)
    return multiprocessing.get_context(method)


def _refuse_dangerous_fork() -> None:
    """A forked child inherits every lock and none of the threads that would release it."""
    if _native.is_open():
        raise ConfigurationError(
            "start_method='fork': this process is a member of a job, which a copy of it cannot be\n"
            "hint: leave start_method away, or take 'spawn' or 'forkserver'"
        )
    others = len(os.listdir("/proc/self/task")) - 1
    if others > 0:
        raise ConfigurationError(
            f"start_method='fork': {others} other threads run in this process (NumPy's may be among them), and a copy of it "
            "would wait for ever for what they hold\nhint: leave start_method away, or take 'spawn' or 'forkserver'"
        )


def _preload(function: Any) -> None:
    """Lets the server that forks import once what every worker would import by itself."""
    from multiprocessing import forkserver

    server: Any = getattr(forkserver, "_forkserver", None)
    # Whoever has chosen other modules keeps them; a server that runs is not told again.
    if getattr(server, "_preload_modules", None) == ["__main__"] and getattr(server, "_forkserver_pid", 0) is None:
        server.set_forkserver_preload(["__main__", WORKER, *_libraries(function)])


def _libraries(function: Any) -> list[str]:
    """Installed packages that the program's main module, or the one that defines ``function``, has imported.

    Not those modules themselves: they may be changed while the program runs, and workers that start later see that.
    """
    found: dict[str, None] = {}
    for module in (sys.modules.get("__main__"), sys.modules.get(getattr(function, "__module__", None) or "")):
        for value in list(vars(module).values()) if module is not None else []:
            if isinstance(value, types.ModuleType):
                found[value.__name__.partition(".")[0]] = None
            elif isinstance(value, type | types.FunctionType) and value.__module__:
                found[value.__module__.partition(".")[0]] = None
    return [name for name in found if _is_installed(sys.modules.get(name))]


def _is_installed(module: types.ModuleType | None) -> bool:
    parts = (getattr(module, "__file__", None) or "").split(os.sep)
    return "site-packages" in parts or "dist-packages" in parts


@contextlib.contextmanager
def without_session() -> Iterator[None]:
    """Lets multiprocessing start a process that imports nothing in the name of a session: what was typed has no file.

    A program that came through stdin claims to be the file ``<stdin>``.
    """
    main = sys.modules.get("__main__")
    if main is None or _functions.main_is_a_file() or not hasattr(main, "__file__"):
        yield
        return
    claimed = main.__file__
    del main.__file__
    try:
        yield
    finally:
        main.__file__ = claimed


def free_threaded() -> bool:
    """Whether threads of this interpreter run at the same time."""
    enabled = getattr(sys, "_is_gil_enabled", None)
    return enabled is not None and not enabled()
