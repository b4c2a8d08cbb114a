"""Keeps the parameters of one model the same in many processes.

    import syncline as sl

    sl.init()
    print(sl.rank(), sl.size())
    sl.barrier()

The same script runs alone, under ``syncline run -n 4``, under ``mpirun -np 4`` and under ``srun``.
Every wait ends: with its result, with the name of the process that is missing, or with Ctrl-C.
"""

from syncline._errors import (
    AuthError,
    Closed,
    ConfigurationError,
    ContractMismatch,
    ForkError,
    PeerLost,
    ShapeMismatch,
    SynclineError,
    Timeout,
    UnknownKey,
)
from syncline._job import Job, init
from syncline._native import (
    Host,
    Topology,
    __version__,
    barrier,
    is_master_worker,
    local_rank,
    num_workers,
    rank,
    server_id,
    shutdown,
    size,
    topology,
    worker_id,
)

__all__ = [
    "AuthError",
    "Closed",
    "ConfigurationError",
    "ContractMismatch",
    "ForkError",
    "Host",
    "Job",
    "PeerLost",
    "ShapeMismatch",
    "SynclineError",
    "Timeout",
    "Topology",
    "UnknownKey",
    "__version__",
    "barrier",
    "init",
    "is_master_worker",
    "local_rank",
    "num_workers",
    "rank",
    "server_id",
    "shutdown",
    "size",
    "topology",
    "worker_id",
]
