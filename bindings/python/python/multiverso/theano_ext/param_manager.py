"""Managers of all parameters of a model, in Multiverso's words; nothing here needs a framework."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from syncline import parameters
from syncline._frameworks import keras_weights

__all__ = ["KerasParamManager", "MVModelParamManager"]


class MVModelParamManager(parameters.ParamManager):
    """Synchronises the parameters of one model; subclasses say how they are read and written."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.tbh = self._shared.tables[0] if self._shared.tables else None

    def get_all_param_values(self) -> Sequence[Any]:
        """A list of arrays: the parameters as they are now."""
        raise NotImplementedError(f"{type(self).__name__} does not say how a model's parameters are read")

    def set_all_param_values(self, params: list[Any]) -> None:
        """Gives the model these parameters."""
        raise NotImplementedError(f"{type(self).__name__} does not say how a model's parameters are written")

    def sync_all_param(self) -> None:
        """Adds what has changed since the last call, and takes over what all workers changed."""
        self.sync()

    @property
    def all_param_list(self) -> list[Any]:
        """All parameters as they were last synchronised, end to end."""
        return [number for value in self._shared.values() for number in np.ravel(value)]

    def get_values(self) -> Sequence[Any]:
        """``get_all_param_values`` by the name of ``syncline.parameters``."""
        return self.get_all_param_values()

    def set_values(self, values: list[Any]) -> None:
        """``set_all_param_values`` by the name of ``syncline.parameters``; the model gets arrays of its own."""
        self.set_all_param_values([np.array(value) for value in values])


class KerasParamManager(MVModelParamManager):
    """Synchronises a Keras model, of Keras 1, 2 or 3."""

    def get_all_param_values(self) -> Sequence[Any]:
        """``model.get_weights()``."""
        return keras_weights(self.model)

    def set_all_param_values(self, params: list[Any]) -> None:
        """``model.set_weights(params)``."""
        self.model.set_weights(params)
