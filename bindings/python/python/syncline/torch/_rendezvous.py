"""How ``init_process_group`` finds the other processes: in Syncline's job, where it was told of no other way.

``init_process_group("syncline")`` reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, which torchrun sets. Under any
other launcher these are missing, and the job knows as much. ``init_method="syncline://"`` asks for the job in any case.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from syncline import _native
from syncline._job import tree as job_tree
from syncline._neighbours import addresses, common_file, machine
from syncline.torch._store import job_store

_torch: Any = importlib.import_module("torch.distributed.rendezvous")  # the name itself is a function
VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
MINUTES = timedelta(minutes=5)
_kept: list[Any] = []  # stores and their files, for as long as the process lives


def register() -> None:
    """Adds ``syncline://``, and makes ``env://`` ask the job where it would fail otherwise."""
    _torch.register_rendezvous_handler("syncline", _by_job)
    handlers: dict[str, Any] = getattr(_torch, "_rendezvous_handlers", {})
    by_environment = handlers.get("env")
    if by_environment is None:
        return

    def by_environment_or_job(url: str, **options: Any) -> Iterator[Any]:
        told = "rank=" in url or "world_size=" in url or any(name in os.environ for name in VARIABLES)
        return by_environment(url, **options) if told else _by_job(url, **options)

    handlers["env"] = by_environment_or_job


def _by_job(url: str, timeout: timedelta = MINUTES, **_options: Any) -> Iterator[Any]:
    tree = job_tree()
    yield _store(tree, timeout), tree.node - 1, tree.nodes
    raise RuntimeError("a job of Syncline cannot be joined a second time")


def _store(tree: _native.Tree, timeout: timedelta) -> Any:
    """A store that all processes of the job reach. PyTorch keeps little in it, and only while groups are made."""
    if tree.nodes == 1:
        return dist.HashStore()
    hosts = _native.topology().hosts
    if len(hosts) == 1:
        # FileStore opens its file anew each time, which neighbours can do with one that has no name.
        file, path, _ = common_file(tree, "torch-store")
        _kept.append(file)
        return dist.FileStore(path, tree.nodes)
    store = job_store(tree, addresses(), timeout)
    _kept.append(store)  # PyTorch keeps its own half of it, and asks for ours
    return store


def agreed(store: Any, rank: int, size: int, says: bool) -> bool:
    """Whether all processes of a group say so."""
    store.set(f"syncline/whole/{rank}", b"1" if says else b"0")
    return all(store.get(f"syncline/whole/{each}") == b"1" for each in range(size))


def together(store: Any, rank: int, size: int) -> bool:
    """Whether all processes of a group are on one host."""
    store.set(f"syncline/host/{rank}", machine().encode())
    return len({bytes(store.get(f"syncline/host/{each}")) for each in range(size)}) == 1


def through(store: Any) -> tuple[Callable[[str, int], None], Callable[[], tuple[str, int]]]:
    """How the first process of a group tells the others where it listens."""

    def publish(host: str, port: int) -> None:
        store.set("syncline/address", f"{host} {port}".encode())

    def query() -> tuple[str, int]:
        host, port = bytes(store.get("syncline/address")).decode().rsplit(" ", 1)
        return host, int(port)

    return publish, query
