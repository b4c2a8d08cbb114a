"""Keras models kept the same on all workers: one callback more in ``fit``.

    model.fit(my_share, callbacks=[sl.keras.SyncCallback()])

For Keras 3 (on JAX, PyTorch or TensorFlow) and for the Keras of old.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from syncline import _native, parameters
from syncline._errors import ConfigurationError, ContractMismatch
from syncline._frameworks import framework, keras_weights

library = framework("syncline.keras", "keras", install="pip install keras jax")
Callback: Any = library.callbacks.Callback

__all__ = ["Callback", "ParamManager", "SyncCallback", "checked_frequency", "library", "only_master"]


class ParamManager(parameters.ParamManager):
    """Exchanges all weights of a model, those that are not trained (means of batches, say) included."""

    def get_values(self) -> Sequence[Any]:
        """``model.get_weights()``."""
        return keras_weights(self.model)

    def set_values(self, values: list[Any]) -> None:
        """``model.set_weights(values)``, of copies."""
        self.model.set_weights([value.copy() for value in values])

    def begin_again(self) -> None:
        """What worker 0 has done to its weights since the last exchange counts, and what others have is forgotten."""
        if not _native.is_master_worker():
            self.set_values(self._shared.values())  # so that only the master brings a change
        self.sync()
        _native.barrier()
        self.sync()
        _native.barrier()  # all have read it before anybody changes it


class SyncCallback(Callback):  # type: ignore[misc]  # whichever Keras there is
    """Exchanges the model's weights after every ``every`` batches and at the end, and averages metrics over workers.

    Every ``fit`` starts from worker 0's weights. With ``average`` workers take the mean of their weights; otherwise their
    changes are added up, as Multiverso does it, which takes larger steps the more workers there are. Metrics in the
    logs of an epoch become the means over the workers that have them (all, or the master alone where only that
    validates), on all workers, for this and every callback after it. Workers other than the master show no progress; callbacks that write files are for the master alone: ``only_master``.

    With ``average``, or under ``sl.init(sync=True)``, all workers make the same number of batches: ``sl.data.shard``.
    """

    def __init__(self, every: int = 1, *, average: bool = True) -> None:
        self.every = checked_frequency(every, "every")
        super().__init__()
        self.average = average
        self._manager: ParamManager | None = None
        self._since = 0

    def set_params(self, params: dict[str, Any]) -> None:
        """Keras tells what it is about to do; one bar is enough for all workers."""
        if not _native.is_master_worker():
            params["verbose"] = 0
        super().set_params(params)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Everybody starts from worker 0's weights."""
        if self._manager is None or self._manager.model is not self.model:
            self._manager = (_Average if self.average else ParamManager)(self.model)
        else:
            self._manager.begin_again()
        self._since = 0

    def on_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Counts the batch, and exchanges the weights when it is time."""
        self._since += 1
        if self._since == self.every:
            self._exchange()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Makes the epoch's metrics the means over the workers that have them, and gives them to all."""
        own = {
            name: float(value)
            for name, value in (logs or {}).items()
            if isinstance(value, (int, float)) or hasattr(value, "dtype")
        }
        with _in_step():
            everybody = _native.job_tree().all_gather(own)
        if logs is None:
            return
        for name in sorted({name for each in everybody for name in each}):
            values = [each[name] for each in everybody if name in each]
            logs[name] = sum(values) / len(values)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """What is left of the last batches."""
        if self._since:
            self._exchange()

    def _exchange(self) -> None:
        self._since = 0
        assert self._manager is not None
        with _in_step():
            self._manager.sync()


class _Average(ParamManager):
    """Means instead of sums: no table, one reduction."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self._tree = _native.job_tree()
        self.begin_again()

    def begin_again(self) -> None:
        self.set_values(self._tree.broadcast(self.get_values()))

    def sync(self) -> None:
        values = [value.copy() for value in self.get_values()]
        # Counters are no matter of averages: each worker keeps its own.
        self._tree.all_reduce([value for value in values if value.dtype.kind not in "biu"], "mean")
        self.set_values(values)


@contextmanager
def _in_step() -> Iterator[None]:
    """Says what the calls that differ have to do with ``fit``, of which the error knows nothing."""
    try:
        yield
    except ContractMismatch as error:
        error.add_note("hint: all workers fit the same number of batches and epochs; sl.data.shard splits samples so")
        raise


def only_master(*callbacks: Any) -> list[Any]:
    """These callbacks on the master worker, none elsewhere: for ``ModelCheckpoint`` and others that write."""
    return list(callbacks) if _native.is_master_worker() else []


def checked_frequency(number: Any, name: str) -> int:
    """A number of batches: 1 or more."""
    if isinstance(number, bool) or not hasattr(number, "__index__") or number.__index__() < 1:
        raise ConfigurationError(f"Frequency must be an integer greater than 0: {name}={number!r}")
    return int(number.__index__())
