"""What went wrong in a worker, on its way home and raised there."""

from __future__ import annotations

from syncline._errors import PeerLost, SynclineError

TYPE_CHECKING = False  # type checkers know the name; the module `typing` is slow to load
if TYPE_CHECKING:
    from typing import Any


class MapError(SynclineError):
    """Workers of a map have failed; ``errors`` has what each of them raised, in order.

    It is also an instance of each kind of error that occurred: ``except ValueError`` catches a map in which one did.
    ``pid`` is that of the first worker that died without a word, if any did.
    """

    __module__ = "syncline.ipc"

    errors: list[BaseException]

    def __reduce__(self) -> Any:
        return raised, (self.errors, str(self))


class WorkerError(SynclineError):
    """An error of a worker that cannot be rebuilt here; its text is in the message."""

    __module__ = "syncline.ipc"


def raised(errors: list[BaseException], text: str) -> MapError:
    """A MapError that is also of the kinds of ``errors``, as far as Python lets classes be combined."""
    kinds: tuple[type, ...] = (MapError,)
    for kind in dict.fromkeys(type(error) for error in errors if isinstance(error, Exception)):
        if any(issubclass(each, kind) for each in kinds):
            continue
        try:
            kinds = type("MapError", _most_special_first((*kinds, kind)), {}).__bases__
        except TypeError:
            pass  # this one does not combine; it is still in `errors`
    try:
        combined: Any = type("MapError", kinds, {"__module__": "syncline.ipc"}) if len(kinds) > 1 else MapError
        made = _made(combined, text)
    except Exception:  # a class whose constructor is not like those of its family
        made = _made(MapError, text)
    made.errors = errors
    lost = [error for error in errors if isinstance(error, PeerLost)]
    made.pid = lost[0].pid if lost else None
    return made


def _most_special_first(kinds: tuple[type, ...]) -> tuple[type, ...]:
    return tuple(kind for kind in kinds if not any(kind is not other and issubclass(other, kind) for other in kinds))


def _made(kind: type[MapError], text: str) -> MapError:
    made = kind.__new__(kind, text)
    SynclineError.__init__(made, text)
    return made


def packed(error: BaseException) -> tuple[bytes | None, str]:
    """An exception as it travels: itself, if it survives the way, and its traceback as text."""
    import pickle
    import traceback  # needed by those who fail, and slow to load

    # The frames of the worker itself are no news to anybody.
    frames = error.__traceback__.tb_next if error.__traceback__ is not None else None
    text = "".join(traceback.format_exception(type(error), error, frames))
    try:
        data = pickle.dumps(error, 5)
        pickle.loads(data)
    except Exception:
        return None, text
    return data, text


def unpacked(parcel: tuple[bytes | None, str], where: str) -> BaseException:
    """The exception again, with a note that says where it was raised."""
    import pickle

    data, text = parcel
    error: BaseException
    try:
        if data is None:
            raise ValueError
        error = pickle.loads(data)
    except Exception:
        error = WorkerError(text.strip().splitlines()[-1] if text.strip() else "an error without a text")
    error.add_note(f"in {where}:\n{text.rstrip()}")
    return error


def died(where: str, pid: int | None, code: int | None) -> PeerLost:
    """The error for a worker that ended without a word."""
    import signal

    if code is not None and code < 0:
        try:
            how = f"was killed by {signal.Signals(-code).name} (signal {-code})"
        except ValueError:
            how = f"was killed by signal {-code}"
    else:
        how = f"ended with exit code {code}"
    return PeerLost(f"{where} {how} before it had a result", pid=pid)


def line(error: BaseException) -> str:
    """An error in one line."""
    text = str(error).strip().splitlines()
    kind = type(error).__name__
    return f"{kind}: {text[0]}" if text else kind
