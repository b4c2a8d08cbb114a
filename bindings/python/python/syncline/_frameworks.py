"""Finds the framework that a glue module is made for, or says what to install."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any


class FrameworkMissing(ImportError):
    """A module of Syncline needs a framework that is not installed; the text says which, and how to get it."""

    __module__ = "syncline"


def framework(needed_by: str, *choices: str, install: str) -> ModuleType:
    """The first of ``choices`` that is installed."""
    for name in choices:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:  # it is there, and something that it needs itself is not
                raise
    raise FrameworkMissing(f"{needed_by} needs {' or '.join(choices)}, which is not installed\nhint: {install}")


def keras_weights(model: Any) -> list[Any]:
    """``model.get_weights()`` of any Keras, in the middle of its training too."""
    # On JAX the weights of Keras 3 live in the training loop, and are put back into the model on request.
    put_back = getattr(model, "jax_state_sync", None)
    if put_back is not None:
        put_back()
    return list(model.get_weights())
