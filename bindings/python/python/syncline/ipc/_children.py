"""Processes that are forked from a nursery (`_nursery`), as the program sees them.

Whoever orders one does not wait until it is there: the first map of a program goes on while the nursery is still loading.
"""

from __future__ import annotations

import _signal
import _socket
import marshal
import os
import select
import sys
import threading
import time

from syncline._errors import SynclineError
from syncline.ipc import _functions, _nursery

TYPE_CHECKING = False  # type checkers know the name; the module `typing` is slow to load
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

PATIENCE = 300.0  # seconds for a nursery to load what the program has loaded, and to fork
SLICE = 0.1  # seconds after which one of several threads that wait looks whether another has heard what it waits for
LOST = 255  # the exit code of a process of which only is known that it has ended


class Child:
    """A process; what the crews need of ``multiprocessing.Process``."""

    def __init__(self, nursery: _Nursery) -> None:
        self.nursery = nursery
        self.known: int | None = None  # its pid
        self.code: int | None = None

    @property
    def pid(self) -> int | None:
        """Waits until it is there; None when it will never be."""
        self.nursery.wait(lambda: self.known is not None or self.code is not None, PATIENCE)
        return self.known

    @property
    def exitcode(self) -> int | None:
        """None while it runs."""
        if self.code is None:
            self.nursery.hear()
        return self.code

    def join(self, timeout: float = PATIENCE) -> None:
        self.nursery.wait(lambda: self.code is not None, timeout)

    def terminate(self) -> None:
        self.signal(_signal.SIGTERM)

    def kill(self) -> None:
        self.signal(_signal.SIGKILL)

    def signal(self, number: int) -> None:
        if self.pid is not None and self.exitcode is None:
            try:
                os.kill(self.known or 0, number)
            except ProcessLookupError:
                pass  # the report is on its way


class _Nursery:
    """A nursery, at the end of a socket."""

    def __init__(self, line: int, pid: int | None) -> None:
        self.line, self.pid = line, pid
        self.lost = False
        self.lock = threading.RLock()
        self.heard = b""
        self.tickets = 0
        self.children: dict[int, Child] = {}
        self.poll = select.poll()
        self.poll.register(line, select.POLLIN)

    def order(self, what: dict[str, Any]) -> Child:
        with self.lock:
            self.hear()  # so that reports never fill the socket
            self.tickets += 1
            child = self.children[self.tickets] = Child(self)
            data = marshal.dumps({"ticket": self.tickets, **what})
            data = len(data).to_bytes(8, "little") + data
            try:
                while data:
                    data = data[os.write(self.line, data) :]
            except OSError:
                self.give_up()
            return child

    def wait(self, over: Callable[[], bool], timeout: float) -> None:
        by = time.monotonic() + timeout
        while not over():
            left = by - time.monotonic()
            if left <= 0 or self.lost:
                return
            self.poll.poll(min(left, SLICE) * 1000)
            self.hear()

    def hear(self) -> None:
        """Takes every report that has come."""
        with self.lock:
            while not self.lost and self.poll.poll(0):
                try:
                    read = os.read(self.line, 1 << 16)
                except ConnectionError:
                    read = b""
                if not read:
                    self.give_up()
                    return
                self.heard += read
                while len(self.heard) >= 24:
                    ticket, pid, code = (int.from_bytes(self.heard[at : at + 8], "little", signed=True) for at in (0, 8, 16))
                    self.heard = self.heard[24:]
                    if code == _nursery.BORN:
                        self.children[ticket].known = pid
                    else:
                        self.children.pop(ticket).code = code

    def give_up(self) -> None:
        """The nursery was killed. Of its children nobody would hear any more, so they end, too."""
        self.lost = True
        os.close(self.line)
        for child in self.children.values():
            if child.known is not None:
                try:
                    os.kill(child.known, _signal.SIGKILL)
                except ProcessLookupError:
                    pass
            child.code = LOST
        self.children.clear()
        if self.pid is not None:
            try:
                os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                pass


_here: _Nursery | None = None
_lock = threading.Lock()


def possible() -> bool:
    """Whether there can be a nursery: not where the program is no interpreter that can be started again."""
    if getattr(sys, "frozen", False) or not sys.executable:
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False  # an old kernel
    return True


def bear(number: int, channels: bytes, libraries: list[str]) -> Child:
    """Orders a worker."""
    if _nursery.imports_main:
        raise SynclineError(
            "a process was to be started while a worker imports the program's main module\n"
            "hint: a script that starts processes does so under `if __name__ == '__main__':`, since they import it"
        )
    # What workers send of the main module's classes is found under the name that the module has there.
    sys.modules.setdefault("__mp_main__", sys.modules["__main__"])
    return _nursery_here().order({"number": number, "channels": channels, "libraries": libraries, **_surroundings()})


def _nursery_here() -> _Nursery:
    global _here
    with _lock:
        if _here is None or _here.lost:
            _here = _Nursery(_nursery.line, None) if _nursery.line is not None and _here is None else _started()
        return _here


def _started() -> _Nursery:
    ours, theirs = _socket.socketpair()
    path = [each for each in sys.path if isinstance(each, str)]
    code = f"import sys; sys.path[:] = {path!r}; from syncline.ipc import _nursery; _nursery.serve({os.getpid()})"
    blocked = _signal.pthread_sigmask(_signal.SIG_BLOCK, [])
    program = _executable()
    pid = os.posix_spawn(
        program,
        [program, *_flags(), "-c", code],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0)],
        setsigmask={*blocked, _signal.SIGINT},  # until it ignores it
        setsigdef=[_signal.SIGCHLD],
    )
    theirs.close()
    return _Nursery(ours.detach(), pid)


def _executable() -> str:
    spawn: Any = sys.modules.get("multiprocessing.spawn")
    return os.fsdecode(spawn.get_executable()) if spawn is not None else sys.executable


def _flags() -> list[str]:
    """The options that this interpreter was started with."""
    if sys.warnoptions or sys._xoptions:
        import subprocess

        return list(subprocess._args_from_interpreter_flags())  # type: ignore[attr-defined]
    flags = sys.flags
    letters = "d" * flags.debug + "B" * flags.dont_write_bytecode + "S" * flags.no_site + "v" * flags.verbose
    letters += "b" * flags.bytes_warning + "q" * flags.quiet + "O" * flags.optimize
    if flags.isolated:
        letters += "I"
    else:
        letters += "E" * flags.ignore_environment + "s" * flags.no_user_site + "P" * getattr(flags, "safe_path", False)
    return [f"-{letters}"] if letters else []


def _surroundings() -> dict[str, Any]:
    """What a process that is started now finds."""
    main: Any = sys.modules.get("__main__")
    name = path = None
    if main is not None and _functions.main_is_a_file():
        name = getattr(getattr(main, "__spec__", None), "name", None)
        if name is None and getattr(main, "__file__", None) is not None:
            path = os.path.abspath(main.__file__)
    try:
        folder = os.getcwd()
    except OSError:
        folder = None
    return {
        "argv": [str(each) for each in sys.argv],
        "path": [each for each in sys.path if isinstance(each, str)],
        "folder": folder,
        "environment": dict(os.environ),
        "main_name": name,
        "main_path": path,
        "multiprocessing": _multiprocessing(),
    }


def _multiprocessing() -> dict[str, Any] | None:
    """What workers need to be processes of ``multiprocessing`` in the eyes of those who use it; None if the program does not."""
    process: Any = sys.modules.get("multiprocessing.process")
    if process is None or "multiprocessing.context" not in sys.modules:
        return None
    from multiprocessing import get_start_method

    tracker: Any = sys.modules.get("multiprocessing.resource_tracker")
    if tracker is not None and "multiprocessing.shared_memory" in sys.modules:
        tracker.ensure_running()  # before workers start one each
    return {
        "name": process.current_process().name,
        "authkey": bytes(process.current_process().authkey),
        "pid": os.getpid(),
        "start_method": get_start_method(allow_none=True),
        "tracker": None if tracker is None else tracker._resource_tracker._fd,
    }


def _forget_in_child() -> None:
    """A fork may order workers of its own; those of its parent are none of its business."""
    global _here, _lock
    _lock = threading.Lock()
    _nursery.line = None
    if _here is not None and not _here.lost:
        _here.lock = threading.RLock()
        _here.lost = True
        os.close(_here.line)


os.register_at_fork(after_in_child=_forget_in_child)
