"""Keeps the parameters of one model the same in many processes.

    import syncline as sl

    sl.init()
    table = sl.ArrayTable(10)
    table.add([1.0] * 10)
    sl.barrier()
    print(sl.rank(), table.get())

The same script runs alone, under ``syncline run -n 4``, under ``mpirun -np 4`` and under ``srun``.
Every wait ends: with its result, with the name of the process that is missing, or with Ctrl-C.
"""

from __future__ import annotations

from syncline import ipc
from syncline._errors import (
    AuthError,
    Closed,
    ConfigurationError,
    ContractMismatch,
    DTypeMismatch,
    ForkError,
    PeerLost,
    ShapeMismatch,
    SynclineError,
    Timeout,
    UnknownKey,
)
from syncline._job import Job, init, tree
from syncline._native import (
    ArrayTable,
    DiscoveredTree,
    Future,
    Host,
    KVTable,
    LocalhostTree,
    MatrixTable,
    NullTree,
    SlurmTree,
    StaticTree,
    Topology,
    Tree,
    __version__,
    aggregate,
    barrier,
    is_master_worker,
    load,
    local_rank,
    num_workers,
    rank,
    save,
    server_id,
    shutdown,
    size,
    topology,
    worker_id,
)
from syncline._shared import empty_shared

TYPE_CHECKING = False  # type checkers know the name; the module `typing` is slow to load
if TYPE_CHECKING:
    from typing import Any

    from syncline import kvstore, lr_scheduler, optimizer
    from syncline._rows import RowSparse

_ON_DEMAND = (
    "data",
    "jax",
    "keras",
    "kvstore",
    "lr_scheduler",
    "optimizer",
    "parameters",
    "progress",
    "sklearn",
    "theano",
    "torch",
)

__all__ = [
    "ArrayTable",
    "AuthError",
    "Closed",
    "ConfigurationError",
    "ContractMismatch",
    "DTypeMismatch",
    "DiscoveredTree",
    "ForkError",
    "Future",
    "Host",
    "Job",
    "KVTable",
    "LocalhostTree",
    "MatrixTable",
    "NullTree",
    "PeerLost",
    "RowSparse",
    "ShapeMismatch",
    "SlurmTree",
    "StaticTree",
    "SynclineError",
    "Timeout",
    "Topology",
    "Tree",
    "UnknownKey",
    "__version__",
    "aggregate",
    "barrier",
    "empty_shared",
    "init",
    "ipc",
    "is_master_worker",
    "kvstore",
    "load",
    "local_rank",
    "lr_scheduler",
    "num_workers",
    "optimizer",
    "rank",
    "save",
    "server_id",
    "shutdown",
    "size",
    "topology",
    "tree",
    "worker_id",
]


def __getattr__(name: str) -> Any:
    """``sl.torch`` and its like are loaded when they are first used: nobody pays for what is not.

    One whose framework is missing is no attribute, so that ``hasattr``, ``help`` and completion work; the text says what to
    install. ``import syncline.torch`` raises an ImportError with the same words.
    """
    from importlib import import_module

    from syncline._frameworks import FrameworkMissing

    if name in _ON_DEMAND:
        try:
            return import_module(f"syncline.{name}")
        except FrameworkMissing as missing:
            raise AttributeError(str(missing)) from missing
    if name == "RowSparse":
        made = import_module("syncline._rows").RowSparse
        globals()[name] = made
        return made
    raise AttributeError(f"module 'syncline' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ON_DEMAND})
