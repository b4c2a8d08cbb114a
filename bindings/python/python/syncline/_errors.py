"""The exceptions of Syncline: one base, one class per kind, each also of the built-in family it resembles.

The native module raises them by name; ``src/errors.rs`` says which kind becomes which class.
"""

from __future__ import annotations


class SynclineError(Exception):
    """Something between the processes of a job went wrong.

    ``rank``, ``host`` and ``pid`` name the process at fault; each is None where that is unknown.
    """

    __module__ = "syncline"

    def __init__(
        self,
        message: str = "",
        *,
        rank: int | None = None,
        host: str | None = None,
        pid: int | None = None,
    ) -> None:
        super().__init__(message)
        self.rank = rank
        self.host = host
        self.pid = pid


class PeerLost(SynclineError, ConnectionError):
    """A process of the job was killed, ended or was cut off."""

    __module__ = "syncline"


class Timeout(SynclineError, TimeoutError):
    """A process of the job is silent, or never came."""

    __module__ = "syncline"


class ContractMismatch(SynclineError):
    """Two processes called different things where the same was needed."""

    __module__ = "syncline"


class AuthError(SynclineError):
    """A process could not prove that it belongs to the job."""

    __module__ = "syncline"


class ShapeMismatch(SynclineError, ValueError):
    """An array has another shape or dtype than the operation needs."""

    __module__ = "syncline"


class DTypeMismatch(ShapeMismatch, TypeError):
    """An array's numbers are of a kind that cannot become the kind that is needed, such as 0.5 a whole number."""

    __module__ = "syncline"


class UnknownKey(SynclineError, KeyError, IndexError):
    """A key, row, table or name that does not exist."""

    __module__ = "syncline"

    # KeyError shows the repr of its argument, which puts quotes around a sentence.
    __str__ = Exception.__str__


class Closed(SynclineError):
    """This process is in no job: before ``init()``, or after ``shutdown()``."""

    __module__ = "syncline"


class ConfigurationError(SynclineError, ValueError):
    """A setting, or a variable of the launcher, makes no sense."""

    __module__ = "syncline"


class ForkError(SynclineError):
    """This process was forked from a member of the job and is not one itself."""

    __module__ = "syncline"
