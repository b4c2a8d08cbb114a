"""The store in which PyTorch's processes on several hosts meet: a table at worker 0 that only the job reaches.

PyTorch's own listens on every address and asks nobody for a token. This one is a server of ``syncline.ipc``: who has
not proven the token, which worker 0 makes and hands round, is not let in, and what travels is encrypted.
"""

from __future__ import annotations

import secrets
import threading
import time
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from syncline import _native, ipc
from syncline._errors import Timeout
from syncline._service import ask, reach, serve

LOOK = 0.002  # seconds between two looks for a key that is not there yet, at first
LONGEST_LOOK = 0.05


class JobStore(dist.Store):  # type: ignore[misc]  # no types in some versions
    """PyTorch's view of the table: keys are texts, values bytes."""

    def __init__(self, reach: Any, timeout: timedelta) -> None:
        super().__init__()
        self._reach, self._patience = reach, timeout

    @property
    def timeout(self) -> timedelta:
        """How long a key is waited for."""
        return self._patience

    def set_timeout(self, timeout: timedelta) -> None:
        """Changes how long a key is waited for."""
        self._patience = timeout

    def set(self, key: str, value: str | bytes) -> None:
        """Gives a key its value."""
        self._reach("set", key, _bytes(value))

    def get(self, key: str) -> bytes:
        """A key's value, for which it waits."""
        self.wait([key])
        return bytes(self._reach("get", key))

    def add(self, key: str, amount: int) -> int:
        """Adds to a number, 0 at first, and returns it."""
        return int(self._reach("add", key, int(amount)))

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Changes a value if it is what is expected, and returns what it is then."""
        return bytes(self._reach("compare_set", key, _bytes(expected), _bytes(desired)))

    def append(self, key: str, value: str | bytes) -> None:
        """Adds to the end of a value."""
        self._reach("append", key, _bytes(value))

    def check(self, keys: list[str]) -> bool:
        """Whether all of these keys have values."""
        return bool(self._reach("check", list(keys)))

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Returns when all of these keys have values."""
        patience = (timeout or self._patience).total_seconds()
        until, look = time.monotonic() + patience, LOOK
        while not self.check(keys):
            if time.monotonic() > until:
                raise Timeout(f"torch.distributed: nobody set {', '.join(keys)} within {patience:g} s")
            time.sleep(look)
            look = min(2 * look, LONGEST_LOOK)

    def delete_key(self, key: str) -> bool:
        """Forgets a key; whether there was one."""
        return bool(self._reach("delete", key))

    def num_keys(self) -> int:
        """How many keys have values."""
        return int(self._reach("count"))


class _Table:
    """The keys themselves, at worker 0."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def __call__(self, what: str, *given: Any) -> Any:
        """What one process asks for; whatever it sends is taken as data."""
        with self._lock:
            return getattr(self, f"_{what}")(*given) if what in _ASKED else None

    def _set(self, key: str, value: bytes) -> None:
        self._values[key] = value

    def _get(self, key: str) -> bytes:
        return self._values.get(key, b"")

    def _add(self, key: str, amount: int) -> int:
        number = int(self._values.get(key, b"0")) + amount
        self._values[key] = str(number).encode()
        return number

    def _compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        if self._values.get(key, b"") == expected:
            self._values[key] = desired
        return self._values.get(key, expected)

    def _append(self, key: str, value: bytes) -> None:
        self._values[key] = self._values.get(key, b"") + value

    def _check(self, keys: list[str]) -> bool:
        return all(key in self._values for key in keys)

    def _delete(self, key: str) -> bool:
        return self._values.pop(key, None) is not None

    def _count(self) -> int:
        return len(self._values)


_ASKED = ("set", "get", "add", "compare_set", "append", "check", "delete", "count")


class _Served:
    """The table for those who reach it over a connection."""

    def __init__(self, client: ipc.Client) -> None:
        self._client, self._lock = client, threading.Lock()

    def __call__(self, what: str, *given: Any) -> Any:
        with self._lock:  # one question at a time; none of them takes long, since nobody waits for a key over there
            return ask(self._client, [what, *given])


def job_store(tree: _native.Tree, addresses: list[str], timeout: timedelta) -> JobStore:
    """The store of all processes of ``tree``, which call this together; ``addresses`` are those of this host."""
    if tree.node > 1:
        known, port, token = tree.broadcast()
        return JobStore(_Served(reach(known, port, token, timeout.total_seconds())), timeout)
    token, table = secrets.token_hex(32), _Table()
    port = serve(table, token, _answer(weakref.ref(table)), lambda server: None)
    tree.broadcast([[*addresses, "127.0.0.1"], port, token])
    return JobStore(table, timeout)


def _answer(table: weakref.ref[_Table]) -> Callable[[ipc.ServerClient, Any], Any]:
    def answer(_client: ipc.ServerClient, question: Any) -> Any:
        there = table()
        return None if there is None else there(*question)

    return answer


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
