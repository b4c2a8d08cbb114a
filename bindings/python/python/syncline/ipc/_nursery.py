"""The process that workers are forked from: an interpreter that has loaded what they need, and done nothing else.

The program starts it with the first map (`_children`) and orders workers through a socket; what it forks has everything loaded already.
It loads as little as it can before that, because the first map waits for it: nothing of ``multiprocessing``, no ``socket``, no ``pickle``.

    order    length (8 bytes), then a dict in the format of ``marshal``: the ticket, what the worker finds, what it is to do
    report   ticket, pid, code (8 bytes each): BORN, or how the process ended

Every worker has such a socket too, so that maps inside of workers need no second nursery. A worker ends when the process that ordered
it has ended, by a descriptor of that process which it inherits; the nursery ends with the program.
"""

from __future__ import annotations

import _signal
import _socket
import gc
import marshal
import os
import select
import sys

from syncline.ipc import _worker

TYPE_CHECKING = False  # type checkers know the name; the module `typing` is slow to load
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any

BORN = 1 << 32  # no exit code is so large

line: int | None = None  # where this process orders workers, if it was forked from a nursery
imports_main = False  # whether this worker is just importing the program's main module


def serve(parent: int) -> None:
    """The life of the nursery. Its standard input is the program's socket."""
    gc.disable()  # what it loads stays
    _signal.signal(_signal.SIGINT, _signal.SIG_IGN)  # Ctrl-C is for the program, which then decides about its workers
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, [_signal.SIGINT])
    orders = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    program = os.pidfd_open(parent)
    if os.getppid() == parent:  # else it ended before it could be watched
        _Nursery(orders, program).run()


class _Line:
    """A process that orders workers."""

    def __init__(self, socket: int, process: int) -> None:
        self.socket, self.process = socket, process
        self.heard = b""

    def orders(self) -> list[Any] | None:
        """What has come completely; None when there is nobody any more."""
        try:
            read = os.read(self.socket, 1 << 16)
        except ConnectionError:
            read = b""
        if not read:
            return None
        self.heard += read
        whole = []
        while len(self.heard) >= 8 and len(self.heard) >= (end := 8 + int.from_bytes(self.heard[:8], "little")):
            whole.append(marshal.loads(self.heard[8:end]))
            self.heard = self.heard[end:]
        return whole

    def report(self, ticket: int, pid: int, code: int) -> None:
        try:
            os.write(self.socket, b"".join(each.to_bytes(8, "little", signed=True) for each in (ticket, pid, code)))
        except OSError:
            pass  # it has gone


class _Nursery:
    def __init__(self, orders: int, program: int) -> None:
        self.program = program
        self.lines = {orders: _Line(orders, program)}
        self.children: dict[int, tuple[int, int, _Line]] = {}  # by descriptor of the process: ticket, pid, who ordered it
        self.poll = select.poll()
        self.poll.register(orders, select.POLLIN)
        self.poll.register(program, select.POLLIN)
        self.mains: dict[tuple[str, int, int], CodeType] = {}

    def run(self) -> None:
        while True:
            for descriptor, _ in self.poll.poll():
                if descriptor == self.program:
                    return
                if descriptor in self.children:
                    self.bury(descriptor)
                elif (line := self.lines.get(descriptor)) is not None:
                    orders = line.orders()
                    if orders is None:
                        self.forget(line)
                    for order in orders or []:
                        self.bear(line, order)

    def forget(self, line: _Line) -> None:
        self.poll.unregister(line.socket)
        del self.lines[line.socket]
        os.close(line.socket)

    def bury(self, process: int) -> None:
        ticket, pid, line = self.children.pop(process)
        self.poll.unregister(process)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.close(process)
        line.report(ticket, pid, code)

    def bear(self, line: _Line, order: dict[str, Any]) -> None:
        for name in order["libraries"]:
            if name not in sys.modules:
                try:
                    __import__(name)
                except Exception:
                    pass  # whoever needs it will see why
        code = self.compiled(order["main_path"])
        ours, theirs = _socket.socketpair()
        gc.freeze()  # a child that looks for garbage would copy every page of what is here
        pid = os.fork()
        if pid == 0:
            self.grow_up(line.process, theirs.detach(), order, code)
        theirs.close()
        process = os.pidfd_open(pid)
        self.children[process] = (order["ticket"], pid, line)
        self.poll.register(process, select.POLLIN)
        socket = ours.detach()
        self.lines[socket] = _Line(socket, process)
        self.poll.register(socket, select.POLLIN)
        line.report(order["ticket"], pid, BORN)

    def compiled(self, path: str | None) -> CodeType | None:
        """A main module is compiled once, as long as its file stays the same; None for what has to be looked at more closely."""
        if path is None or not path.endswith(".py"):
            return None
        try:
            found = os.stat(path)
            key = (path, found.st_mtime_ns, found.st_size)
            if key not in self.mains:
                with open(path, "rb") as file:
                    self.mains = {key: compile(file.read(), path, "exec", dont_inherit=True)}
        except Exception:
            return None  # the worker will run into it, too, and say so
        return self.mains[key]

    def grow_up(self, parent: int, socket: int, order: dict[str, Any], code: CodeType | None) -> None:
        """What the child does instead of returning."""
        global line
        status = 1
        try:
            line = socket
            gc.enable()
            parent = os.dup(parent)  # the descriptor of who ordered it may be among those that are closed
            for each in (*self.lines, *self.children, self.program):
                os.close(each)
            status = _live(parent, order, code)
        finally:
            os._exit(status)


def _live(parent: int, order: dict[str, Any], code: CodeType | None) -> int:
    """The life of a worker; returns its exit code."""
    status = 0
    try:
        _worker.end_with(parent)
        _find(order, parent)
        _import_main(order["main_name"], order["main_path"], code)
        _worker.main(order["number"], order["channels"])
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    _leave()
    return status


def _find(order: dict[str, Any], parent: int) -> None:
    """The worker finds what the program has just now, whenever the nursery was started."""
    sys.argv = order["argv"]
    sys.path[:] = order["path"]
    if order["folder"] is not None:
        os.chdir(order["folder"])
    if dict(os.environ) != order["environment"]:
        os.environ.clear()
        os.environ.update(order["environment"])
    random = sys.modules.get("numpy.random")
    if random is not None:
        random.seed()  # all forks would draw the same numbers; Python's own generator sees to that by itself
    if order["multiprocessing"] is not None:
        _join_multiprocessing(order["multiprocessing"], order["number"], parent)


def _join_multiprocessing(affairs: dict[str, Any], number: int, parent: int) -> None:
    """Where the program uses ``multiprocessing``, workers are children in its eyes: managers, locks and shared memory work there."""
    from multiprocessing import process, resource_tracker, set_start_method

    me: Any = process.current_process()
    me.name = f"syncline worker {number}"
    me.authkey = affairs["authkey"]
    process._parent_process = process._ParentProcess(affairs["name"], affairs["pid"], parent)  # type: ignore[attr-defined]
    if affairs["start_method"] is not None:
        set_start_method(affairs["start_method"], force=True)
    if affairs["tracker"] is not None:
        # Whoever has a tracker of its own removes memory that others still use, when it ends.
        tracker: Any = resource_tracker._resource_tracker
        tracker._fd = os.open(f"/proc/{affairs['pid']}/fd/{affairs['tracker']}", os.O_WRONLY)


def _import_main(name: str | None, path: str | None, code: CodeType | None) -> None:
    """Runs the program's main module as ``__mp_main__``, as multiprocessing does and so as programs expect it."""
    global imports_main
    if name is None and path is None:
        return
    if name is not None and (name == "__main__" or name.endswith(".__main__")):
        return  # it runs unconditionally
    if path is not None and os.path.splitext(os.path.basename(path))[0] == "ipython":
        return
    process: Any = sys.modules.get("multiprocessing.process")
    imports_main = True
    if process is not None:
        process.current_process()._inheriting = True
    try:
        module = type(sys)("__mp_main__")
        if code is not None:
            module.__dict__.update(__file__=path, __package__="", __cached__=None)
            sys.modules["__mp_main__"] = module
            exec(code, module.__dict__)
        else:
            import runpy

            content = (
                runpy.run_module(name, run_name="__mp_main__", alter_sys=True)
                if name is not None
                else runpy.run_path(str(path), run_name="__mp_main__")
            )
            module.__dict__.update(content)
        sys.modules["__main__"] = sys.modules["__mp_main__"] = module
    finally:
        imports_main = False
        if process is not None:
            del process.current_process()._inheriting


def _leave() -> None:
    """What an interpreter does at its end, as far as it concerns a fork: handlers of the nursery are not this process's."""
    try:
        ending: Any = sys.modules.get("syncline._ending")
        if ending is not None and ending._watching:
            ending._leave_all()
        util: Any = sys.modules.get("multiprocessing.util")
        if util is not None:
            util._exit_function()
        threading: Any = sys.modules.get("threading")
        if threading is not None:
            threading._shutdown()  # waits for threads that are no daemons
    except BaseException:
        sys.excepthook(*sys.exc_info())
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
