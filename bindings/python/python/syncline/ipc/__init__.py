"""Programs that talk to each other without being ranks of a job.

    from syncline import ipc

    server, port = ipc.server()              # one program
    client = ipc.client("127.0.0.1", port)   # another, before or after
    client.send({"loss": 0.25})
    server.clients(1, lambda each: print(each.recv()))

Messages are plain data: None, bool, int, float, str, bytes, lists and dicts of these, and arrays of any size. Nothing
is pickled. Both sides need the same token: the ``token=`` argument, else ``SYNCLINE_TOKEN``, else a secret that all
programs of one user on one host share through a file only this user can read: these need to be told nothing.
"""

from __future__ import annotations

from syncline._native import Client, Server, ServerClient, ipc_client, ipc_server

__all__ = ["NOTHING", "Client", "Nothing", "Server", "ServerClient", "client", "server"]


class Nothing:
    """The type of ``NOTHING``."""

    __module__ = "syncline.ipc"

    def __repr__(self) -> str:
        return "syncline.ipc.NOTHING"

    def __bool__(self) -> bool:
        return False


NOTHING = Nothing()
"""What ``recv_async()`` returns when no message is there: told apart from None, which is a message like any other."""


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
