"""scikit-learn's models that learn step by step (``partial_fit``), kept the same on all workers.

    model = SGDClassifier().partial_fit(X[:1], y[:1], classes=range(10))    # so that it has parameters
    manager = sl.sklearn.ParamManager(model)
    for X_part, y_part in my_share:
        model.partial_fit(X_part, y_part)
        manager.sync()
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from syncline import _native, parameters
from syncline._errors import ConfigurationError

__all__ = ["ParamManager"]

USUAL = ("coef_", "intercept_", "coefs_", "intercepts_")  # linear models; multi-layer perceptrons


class ParamManager(parameters.ParamManager):
    """Exchanges a fitted model's ``coef_`` and ``intercept_``, ``coefs_`` and ``intercepts_``, or what ``names`` says.

    Workers add up their steps; with ``average`` each takes the mean of all models instead, which suits models that
    choose the size of their steps themselves.
    """

    def __init__(self, model: Any, names: Sequence[str] | None = None, *, average: bool = False) -> None:
        self.names = tuple(names) if names is not None else tuple(each for each in USUAL if hasattr(model, each))
        missing = [each for each in self.names if not hasattr(model, each)]
        if missing or not self.names:
            raise ConfigurationError(
                f"ParamManager: this {type(model).__name__} has no {' and no '.join(missing or USUAL)}\n"
                "hint: call its partial_fit once, with all classes, or name what it learns"
            )
        self.average = average
        super().__init__(model)

    def get_values(self) -> list[Any]:
        """Every array of every named attribute."""
        found: list[Any] = []
        for name in self.names:
            value = getattr(self.model, name)
            found.extend(value if isinstance(value, list) else [value])
        return [np.asarray(each) for each in found]

    def set_values(self, values: list[Any]) -> None:
        """Writes into the model's own arrays, which its other attributes may be views of."""
        for own, value in zip(self.get_values(), values, strict=True):
            np.copyto(own, value)

    def sync(self) -> None:
        """Adds everybody's changes up, or takes the mean of all models."""
        if not self.average:
            return super().sync()
        _native.job_tree().all_reduce(self.get_values(), "mean")  # in place
