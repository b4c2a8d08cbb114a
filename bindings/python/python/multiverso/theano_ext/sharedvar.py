"""Theano's shared variables in Multiverso's words.

    from multiverso.theano_ext import sharedvar

    W = sharedvar.mv_shared(value=numpy.zeros((n_in, n_out), dtype=theano.config.floatX), name="W", borrow=True)
    W.mv_sync()
    sharedvar.sync_all_mv_shared_vars()

``W`` is the shared variable itself, so it takes part in expressions, updates and functions as ever. Only the master's
initial value counts.
"""

from __future__ import annotations

from typing import Any

from syncline import theano as _theano

__all__ = ["MVSharedVariable", "mv_shared", "sync_all_mv_shared_vars"]

_created: list[Any] = []


class MVSharedVariable:
    """A shared variable and what keeps it the same on all workers; everything else is the variable's own."""

    def __init__(self, svobj: Any) -> None:
        if not isinstance(svobj, _theano.library.compile.SharedVariable):
            raise TypeError(f"MVSharedVariable: a shared variable is needed, not {type(svobj).__name__}")
        self._svobj = svobj
        self._sync = _theano.Synchroniser(svobj)

    def mv_sync(self) -> None:
        """Adds what has changed since the last sync, and sets the variable to the sum of all workers' changes."""
        self._sync()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_svobj" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._svobj, name)

    def _as_TensorVariable(self) -> Any:
        return self._svobj  # what Theano asks for when it meets the object in an expression


def mv_shared(*args: Any, **options: Any) -> Any:
    """``theano.shared`` of a value that all workers share: the variable, with ``mv_sync()``. All workers call it."""
    variable = _theano.common(_theano.library.shared(*args, **options), "mv_sync")
    _created.append(variable)
    return variable


mv_shared.shared_vars = _created  # type: ignore[attr-defined]  # where the original keeps them


def sync_all_mv_shared_vars() -> None:
    """``mv_sync()`` for every variable that ``mv_shared`` made, in the order in which they were made."""
    for variable in list(_created):
        variable.mv_sync()
