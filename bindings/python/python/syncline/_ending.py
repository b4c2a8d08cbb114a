"""How this process leaves its job: politely when it succeeds, with the reason when it fails.

Four ways lead out. ``with sl.init():`` ends; an exception reaches the top, which ``sys.excepthook`` sees; a process of
``multiprocessing`` ends, which skips the C library's exit handlers after a fork; all others end in ``src/exit.rs``,
which knows the exit status. Whichever comes first counts. Trees with a job of their own go the same ways.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType

from syncline import _native

_watching = False


def watch() -> None:
    """Sees to it that the job is left whichever way this process ends; called once it is joined."""
    global _watching
    if not _watching:
        _watching = True
        os.register_at_fork(after_in_child=_native.forget_in_child)
        import atexit  # now that it is needed

        atexit.register(_native.interpreter_ends)
        _chain_excepthook()
    _leave_with_multiprocessing()


def leave(error: BaseException | None) -> None:
    """Leaves the job; with an ``error`` that ends the program, the others hear of it."""
    if error is None or (isinstance(error, SystemExit) and not error.code):
        _native.shutdown()
    else:
        _native.abort(in_words(error))


def _chain_excepthook() -> None:
    shown_by = sys.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        try:
            shown_by(kind, error, traceback)
        finally:
            # At a prompt the program goes on after an exception. Elsewhere it ends, but not before its threads do,
            # and these may be waiting for the others: so they hear of it now.
            if not hasattr(sys, "ps1") and not sys.flags.interactive:
                _native.abandon_trees(in_words(error))
                if _native.is_open():
                    leave(error)

    sys.excepthook = excepthook


def _leave_with_multiprocessing() -> None:
    if "multiprocessing.process" not in sys.modules:
        return
    from multiprocessing import process, util

    if process.parent_process() is not None:
        # Runs while the target's exception, if there is one, is still on its way out.
        util.Finalize(None, _leave_all, exitpriority=0)


def _leave_all() -> None:
    error = sys.exc_info()[1]
    leave(error)
    if error is not None and not (isinstance(error, SystemExit) and not error.code):
        _native.abandon_trees(in_words(error))
    else:
        _native.close_trees()


def in_words(error: BaseException) -> str:
    """What the others are told of an exception that ends this process."""
    try:
        text = str(error)
    except Exception:
        text = ""
    name = type(error).__name__
    return f"{name}: {text}"[:1000] if text else name
