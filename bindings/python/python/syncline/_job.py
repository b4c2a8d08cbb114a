"""Joining a job, and leaving it however the program ends."""

from __future__ import annotations

from types import TracebackType

from syncline import _ending, _native


class Job:
    """The job this process takes part in, as ``init()`` returns it; a context manager that leaves it at the end."""

    __module__ = "syncline"

    def __init__(self, sync: bool) -> None:
        self.sync = sync

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _ending.leave(error)

    def __repr__(self) -> str:
        if not _native.is_open():
            return "<syncline.Job: ended>"
        return f"<syncline.Job: rank {_native.rank()} of {_native.size()}>"


def init(sync: bool = False, *, timeout: float | None = None, on_peer_loss: str | None = None) -> Job:
    """Joins the job this process was started in: by ``syncline run``, mpirun, srun, or alone.

    ``sync`` makes tables advance in step: the i-th get of every worker then returns the same bytes. ``timeout`` is how
    long, in seconds, any wait lasts before it names who is missing; None takes ``SYNCLINE_TIMEOUT``, else 30. When a
    worker dies, those who wait for it ``"raise"`` PeerLost or ``"continue"`` without it, as ``on_peer_loss`` says, the
    same in all processes; None takes ``SYNCLINE_ON_PEER_LOSS``, else they raise. Calling init twice is an error.

    The job is left when Python exits, by ``shutdown()``, or by the end of ``with sl.init():``. A program that ends with
    an exception or a non-zero status tells the others so, and they raise ``PeerLost`` naming it.
    """
    _native.open(sync, timeout, on_peer_loss)
    _ending.watch()
    return Job(sync)


def tree() -> _native.Tree:
    """The tree of all workers of the job; worker w is node w + 1. Joins the job first if ``init`` was not called."""
    if not _native.is_open():
        init()
    return _native.job_tree()
