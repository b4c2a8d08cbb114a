"""A worker that answers questions of other hosts' workers in a thread of its own, whatever its user does meanwhile.

It listens for those who know the job's own secret and for nobody else: a server of ``syncline.ipc``, whose token is
made by one worker and handed round through the job.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from syncline import ipc
from syncline._errors import AuthError, SynclineError, Timeout

FOREVER = 10.0 * 365 * 86_400
PATIENCE = 30.0  # seconds for one question and its answer
LOOK = 0.05  # seconds until somebody who has connected meanwhile is listened to


def serve(
    owner: Any, token: str, answer: Callable[[ipc.ServerClient, Any], Any], lost: Callable[[ipc.Server], None]
) -> int:
    """Serves for as long as ``owner`` lives, and returns the port.

    ``answer(client, question)`` is called for each question; ``lost(server)`` when somebody who asked is gone.
    """
    server, port = ipc.server("0.0.0.0", 0, token=token, timeout=FOREVER)
    ended = threading.Event()
    thread = threading.Thread(target=_run, args=(server, answer, lost, ended), name="syncline-service", daemon=True)
    thread.start()
    # Also when the program ends: a thread that wakes up in native code after the interpreter would end badly.
    weakref.finalize(owner, _end, server, thread, ended)
    return port


def reach(known: list[str], port: int, token: str, patience: float = PATIENCE) -> ipc.Client:
    """A connection to whoever serves there, by the first of its addresses that answers."""
    until = time.monotonic() + patience
    while True:
        for address in known:
            try:
                return ipc.client(address, port, token=token, timeout=2.0)
            except AuthError:
                raise
            except (SynclineError, OSError) as error:
                if time.monotonic() > until:
                    where = ", ".join(known)
                    raise Timeout(f"nobody answers at {where}, port {port}, within {patience:g} s") from error


def ask(client: ipc.Client, question: Any) -> Any:
    """One question and its answer."""
    client.send(question, timeout=PATIENCE)
    return client.recv(timeout=PATIENCE)


def _run(
    server: ipc.Server,
    answer: Callable[[ipc.ServerClient, Any], Any],
    lost: Callable[[ipc.Server], None],
    ended: threading.Event,
) -> None:
    while True:
        try:
            _let_in(server)
            question, client = server.recv_any(timeout=LOOK)
            client.send(answer(client, question), timeout=PATIENCE)
        except Timeout:
            continue
        except SynclineError:
            # The program ends; or somebody is gone, or does not take its answer.
            if ended.is_set():
                return
            lost(server)


def _let_in(server: ipc.Server) -> None:
    """Whoever has come; waits for the first."""
    try:
        while True:
            there = len(server)
            server.clients(there + 1, lambda client: None, timeout=1e-3 if there else FOREVER)
    except Timeout:
        return


def _end(server: ipc.Server, thread: threading.Thread, ended: threading.Event) -> None:
    ended.set()
    server.close()
    if thread is not threading.current_thread():
        thread.join()
