"""Programs, processes and threads that talk to each other without being ranks of a job.

    from syncline import ipc

    ipc.map(4, square).join()                     # a top-level function on four processes, called with 1, 2, 3, 4
    channel = ipc.channel(capacity=8)             # many writers, many readers, between threads and processes
    queue, creator = ipc.workqueue()              # questions one way, answers the other
    lock, table = ipc.mutex(), ipc.sharedtable({"loss": 1.0})
    server, port = ipc.server()                   # programs that were started apart meet over a socket

Handles (channels, queues, mutexes, shared tables) may be passed to workers and sent through each other. Between processes of
one program any picklable object travels, arrays through shared memory and without a copy on the receiving side. What
servers and clients say over sockets is plain data: None, bool, int, float, str, bytes, lists and dicts of these, and
arrays of any size; nothing that arrives there is unpickled. Both sides need the same token: the ``token=`` argument, else
``SYNCLINE_TOKEN``, else a secret that all programs of one user on one host share through a file only this user can read.
"""

from __future__ import annotations

import os

from syncline._native import (
    Channel,
    Client,
    Flock,
    Mutex,
    Server,
    ServerClient,
    SharedTable,
    Spawn,
    Workqueue,
    WorkqueueItem,
    ipc_client,
    ipc_family_stats,
    ipc_flock,
    ipc_select,
    ipc_server,
    ipc_spawn,
    ipc_workqueue,
)
from syncline.ipc._nothing import NOTHING, Nothing

TYPE_CHECKING = False  # type checkers know the name; the module `typing` is slow to load
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from syncline.ipc._background import BackgroundTask, BackgroundTaskPool
    from syncline.ipc._failures import MapError, WorkerError
    from syncline.ipc._map import Map, Pool, map, map_extended, pool
    from syncline.ipc._marshal import Marshal, marshal

__all__ = [
    "NOTHING",
    "BackgroundTask",
    "BackgroundTaskPool",
    "Channel",
    "Client",
    "Flock",
    "Map",
    "MapError",
    "Marshal",
    "Mutex",
    "Nothing",
    "Pool",
    "Server",
    "ServerClient",
    "SharedTable",
    "Spawn",
    "WorkerError",
    "Workqueue",
    "WorkqueueItem",
    "channel",
    "client",
    "family_stats",
    "flock",
    "map",
    "map_extended",
    "marshal",
    "mutex",
    "pool",
    "select",
    "server",
    "sharedtable",
    "sharedtable_size",
    "spawn",
    "workqueue",
]

channel = Channel
mutex = Mutex

# What starts processes loads modules that a program without workers has no need of: when it is first asked for.
_LATER = {
    "_background": ("BackgroundTask", "BackgroundTaskPool"),
    "_failures": ("MapError", "WorkerError"),
    "_map": ("Map", "Pool", "map", "map_extended", "pool"),
    "_marshal": ("Marshal", "marshal"),
}


def __getattr__(name: str) -> Any:
    for module, names in _LATER.items():
        if name in names:
            from importlib import import_module

            found = getattr(import_module(f"{__name__}.{module}"), name)
            globals()[name] = found
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def server(
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    token: str | None = None,
    encrypt: bool | None = None,
    timeout: float = 300.0,
) -> tuple[Server, int]:
    """Listens for clients and returns ``(server, port)``; port 0 takes a free one.

    ``host`` is an IPv4 or IPv6 address or a name (``"0.0.0.0"``: all interfaces), or ``"unix:NAME"`` for a Unix socket,
    of which no file is made even if the name looks like a path. ``encrypt`` is on for TCP unless it listens on
    loopback only; either side may insist. ``timeout`` is how many seconds a call waits unless it says otherwise.
    """
    return ipc_server(host, port, token, encrypt, timeout)


def client(
    host: str | int = "127.0.0.1",
    port: int | None = None,
    *,
    token: str | None = None,
    encrypt: bool | None = None,
    timeout: float = 300.0,
) -> Client:
    """Connects to a server, which may start later: ``client(host, port)``, ``client(port)`` or ``client("unix:NAME")``.

    It is tried again until ``timeout`` seconds have passed; then Timeout says what happened at each address. A wrong
    token is an AuthError at once. Later calls wait ``timeout`` seconds too unless they say otherwise.
    """
    if isinstance(host, int):
        return client("127.0.0.1", host, token=token, encrypt=encrypt, timeout=timeout)
    if port is None and not host.startswith("unix:"):
        raise TypeError("client(host, port), client(port) or client('unix:NAME')")
    return ipc_client(host, port or 0, token, encrypt, timeout)


def workqueue(name: str | None = None, size: int | None = None, size_increment: int | None = None) -> tuple[Workqueue, bool]:
    """Opens a queue and returns ``(queue, creator)``; creator says whether this call made it.

    A name is known to all processes of the family: a second open attaches. Without one the queue is anonymous and is shared by
    passing it on. The thread that made it is its owner: it writes questions and reads answers, all others the
    reverse. ``size`` and ``size_increment`` are accepted as torch-ipc's; a queue takes the memory it needs.
    """
    return ipc_workqueue(name)


def select(channels: Sequence[Channel], *, timeout: float | None = None) -> tuple[Channel | None, int, Any]:
    """Waits until one of the channels has an item and returns ``(channel, status, item)``.

    ``(None, DRAINED, None)`` when all of them are drained. Where several have one, they are asked in turns.
    """
    given = list(channels)
    index, status, item = ipc_select(given, timeout)
    return None if index is None else given[index], status, item


def sharedtable(tbl: Mapping[Any, Any] | SharedTable | None = None, move: bool = False) -> SharedTable:
    """A mapping that threads and processes share, filled from ``tbl``, which ``move=True`` empties."""
    from collections.abc import Mapping

    if tbl is not None and not isinstance(tbl, Mapping | SharedTable):
        raise TypeError("sharedtable arg #1 expected a mapping or None")
    if move and tbl is not None and not hasattr(tbl, "clear"):
        raise TypeError("sharedtable arg #2: what cannot be emptied cannot be moved")
    made = SharedTable()
    if tbl is not None:
        made.update(tbl)
        if move:
            tbl.clear()  # type: ignore[union-attr]
    return made


def sharedtable_size(table: SharedTable) -> float:
    """How many KB a shared table takes, as torch-ipc counts; ``table.size()`` has bytes."""
    return table.size() / 1024


def family_stats() -> dict[str, int]:
    """What this process and those it shares objects with hold together: ``objects`` (channels, queues, … that somebody still has),
    ``blocks`` (of large values, in queues and in hands), ``members`` (processes), ``deaths`` and bytes of ``memory``.
    """
    return ipc_family_stats()


def flock(file: str | os.PathLike[str], no_block: bool = False, *, timeout: float | None = None) -> Flock | None:
    """Locks a file for this process alone, until the lock is closed or forgotten, or the process ends.

    It waits as long as another holds it, at most ``timeout`` seconds, and makes the file if it is not there. With
    ``no_block`` it does neither: None when it is held, not there or not ours to open.
    """
    return ipc_flock(os.fspath(file), no_block, timeout)


def spawn(file: str, args: Sequence[object] = (), env: Mapping[str, object] | None = None) -> Spawn:
    """Starts a program with pipes to its stdin and from its stdout; its stderr is ours. It ends with this process at the latest.

    A ``file`` with a slash is a path, any other is looked for in PATH. Arguments may be numbers. ``env``, unless it is
    empty, is the whole environment of the program.
    """
    from collections.abc import Mapping, Sequence

    if not isinstance(file, str | os.PathLike):
        raise TypeError("file: expected a string")
    if isinstance(args, str | bytes) or not isinstance(args, Sequence):
        raise TypeError("args: expected a sequence, or nothing")
    if env is not None and not isinstance(env, Mapping):
        raise TypeError("env: expected a mapping, or nothing")
    words = [each if isinstance(each, str) else os.fspath(each) if isinstance(each, os.PathLike) else str(each) for each in args]
    return ipc_spawn(os.fspath(file), words, [(str(name), str(value)) for name, value in (env or {}).items()])
