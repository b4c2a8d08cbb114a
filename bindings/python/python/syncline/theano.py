"""Theano's shared variables, and those of its successor PyTensor, kept the same on all workers.

    W = sl.theano.shared(numpy.zeros((n_in, n_out), dtype=theano.config.floatX), name="W", borrow=True)
    ...                        # build and train the model as ever: W is an ordinary shared variable
    W.sync()                   # adds what this worker changed, and takes over what all did
    sl.theano.sync_all()       # the same for every variable made here

Theano is used where it is installed, else PyTensor.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from syncline._errors import Closed, DTypeMismatch
from syncline._frameworks import framework
from syncline.parameters import Shared

library = framework(
    "syncline.theano", "theano", "pytensor", install="pip install pytensor (or Theano==1.0.5, see docs/frameworks.md)"
)

__all__ = ["Synchroniser", "library", "shared", "sync_all"]

_made: list[Synchroniser] = []


class Synchroniser:
    """What makes a shared variable a common one: called, it exchanges this worker's changes for everybody's."""

    def __init__(self, variable: Any) -> None:
        value = variable.get_value(borrow=True)
        if not isinstance(value, (np.ndarray, np.generic, float, int)):
            raise DTypeMismatch(f"shared: a variable of {type(value).__name__} has no numbers that could be added")
        self.variable = variable
        self._shared: Shared | None = Shared([np.asarray(value)])
        self._write(self._shared.values())

    def __call__(self) -> None:
        """Adds what has changed since the last call, and sets the variable to the sum of all workers' changes."""
        if self._shared is None:
            raise Closed(
                f"sync: {self.variable} was loaded or copied, and shares nothing\nhint: make it anew with shared()"
            )
        self._write(self._shared.exchange([np.asarray(self.variable.get_value(borrow=True))]))

    def _write(self, values: list[Any]) -> None:
        self.variable.set_value(np.array(values[0]), borrow=True)  # a copy already, and nobody else's

    def __getstate__(self) -> dict[str, Any]:
        """A variable that is pickled or copied keeps its numbers; what all workers share stays with the original."""
        return {"variable": self.variable, "_shared": None}


def shared(*args: Any, **options: Any) -> Any:
    """``theano.shared`` of a value that starts as worker 0's, with ``sync()`` to exchange it; all workers call it."""
    return common(library.shared(*args, **options), "sync")


def sync_all() -> None:
    """``sync()`` for every variable that was made here, in the order in which they were made."""
    for each in list(_made):
        each()


def common(variable: Any, name: str) -> Any:
    """The variable itself, with a method of this name that exchanges it."""
    synchroniser = Synchroniser(variable)
    setattr(variable, name, synchroniser)
    _made.append(synchroniser)
    return variable
