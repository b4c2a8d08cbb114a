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
from syncline._job import Job, init
from syncline._native import (
    ArrayTable,
    Future,
    Host,
    KVTable,
    MatrixTable,
    Topology,
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

__all__ = [
    "ArrayTable",
    "AuthError",
    "Closed",
    "ConfigurationError",
    "ContractMismatch",
    "DTypeMismatch",
    "ForkError",
    "Future",
    "Host",
    "Job",
    "KVTable",
    "MatrixTable",
    "PeerLost",
    "ShapeMismatch",
    "SynclineError",
    "Timeout",
    "Topology",
    "UnknownKey",
    "__version__",
    "aggregate",
    "barrier",
    "empty_shared",
    "init",
    "ipc",
    "is_master_worker",
    "load",
    "local_rank",
    "num_workers",
    "rank",
    "save",
    "server_id",
    "shutdown",
    "size",
    "topology",
    "worker_id",
]
