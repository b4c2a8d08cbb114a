"""Joining, leaving and asking who is there, in Multiverso's words."""

from __future__ import annotations

from collections.abc import Sequence

import syncline

from multiverso import _flags, _theano_flags


def init(sync: bool | Sequence[str] = False, args: Sequence[str] | None = None) -> None:
    """Joins the job; every process calls it once.

    With ``sync`` the servers are synchronous: every process must then call ``add`` and ``get`` in the same order, and
    all get the same results. The oldest form, a list of flags such as ``["-sync=true"]``, is understood too.
    """
    switch = isinstance(sync, (bool, int))
    flags = _flags.parse(args or ([] if isinstance(sync, (bool, int)) else sync))
    syncline.init(sync=(switch and bool(sync)) or flags.sync)
    _flags.current = flags
    _theano_flags.prepare()


def shutdown() -> None:
    """Leaves the job; in synchronous mode nobody waits for this process any more."""
    syncline.shutdown()


def barrier() -> None:
    """Waits until every process has come here. All adds that were made before it are applied after it."""
    syncline.barrier()


def workers_num() -> int:
    """How many workers there are."""
    return syncline.num_workers()


def num_workers() -> int:
    """How many workers there are, as the Lua binding calls it."""
    return syncline.num_workers()


def worker_id() -> int:
    """The number of this worker, from 0; -1 in a process that is none."""
    return syncline.worker_id()


def server_id() -> int:
    """The number of this server, from 0; -1 in a process that is none."""
    return syncline.server_id()


def is_master_worker() -> bool:
    """Whether this is worker 0, which does what only one should do: initial values, validation, output."""
    return syncline.is_master_worker()
