"""Synchronises a Keras model while it learns.

    model.fit(X_train, Y_train, callbacks=[MVCallback(model)])
"""

from __future__ import annotations

from typing import Any

from syncline.keras import Callback, checked_frequency

from multiverso.theano_ext.param_manager import KerasParamManager

__all__ = ["MVCallback"]


class MVCallback(Callback):  # type: ignore[misc]  # whichever Keras there is
    """Synchronises all weights after every ``freq`` mini-batches. One model per callback; all workers make it."""

    def __init__(self, model: Any, freq: int = 1) -> None:
        self.freq = checked_frequency(freq, "freq")
        super().__init__()
        self.cur_n = 0
        self.kpm = KerasParamManager(model)

    def on_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Counts the batch; Keras calls it after each."""
        self.cur_n = (self.cur_n + 1) % self.freq
        if self.cur_n == 0:
            self.kpm.sync_all_param()
