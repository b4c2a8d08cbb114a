"""Who learns from which samples.

    for batch in sl.data.shard(len(images), batch=32, shuffle=True):      # this worker's share of one epoch
        train(images[batch], labels[batch])

The samples are split evenly: all workers make the same number of batches. ``leases=True`` hands them out piece by
piece to whoever is ready instead, so a slow worker holds nobody up and each sample is still seen once per epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncline._errors import ConfigurationError
from syncline._job import tree as job_tree
from syncline._leases import Leases

__all__ = ["Shard", "shard"]

REMAINDERS = ("drop", "repeat", "keep")


def shard(
    samples: Any,
    *,
    batch: int | None = None,
    shuffle: bool = False,
    seed: int = 0,
    leases: bool = False,
    remainder: str = "drop",
    lease: int | None = None,
) -> Shard:
    """This worker's share of ``samples``, epoch by epoch: each loop over it is the next one.

    ``samples`` is a number, and the shard yields indices below it; or a sequence (a list, an array, a data set with
    ``len()`` and ``[]``), and it yields items. With ``batch`` it yields arrays of that many indices, or lists of items
    (of arrays: arrays). ``shuffle`` mixes all samples anew each epoch, the same way on every worker, by ``seed``.

    Evenly split, ``remainder`` says what becomes of samples and batches that do not go round: ``"drop"`` leaves them
    out this epoch and ``"repeat"`` gives some workers a sample twice, so that all make the same number of steps;
    ``"keep"`` gives the first workers one more, so that each sample is seen exactly once.

    With ``leases`` workers take ``lease`` samples at a time (as a rule a few batches) when they are ready for them.
    Each sample is seen once per epoch; how many a worker gets is not known before. What a killed worker had taken goes
    to another one that still asks. Each host begins with a part by the number of its workers, and who finds nothing
    left there takes from the others. All workers call ``shard`` together then.
    """
    return Shard(samples, batch, shuffle, seed, leases, remainder, lease)


class Shard:
    """What ``shard`` returns: a share of the samples that can be looped over, once per epoch."""

    def __init__(
        self, samples: Any, batch: int | None, shuffle: bool, seed: int, leases: bool, remainder: str, lease: int | None
    ) -> None:
        number = isinstance(samples, (int, np.integer)) and not isinstance(samples, bool)
        self._items: Sequence[Any] | None = None if number else samples
        self.samples = int(samples) if number else len(samples)
        if self.samples < 0:
            raise ConfigurationError(f"shard: {self.samples} is no number of samples")
        if batch is not None and batch < 1:
            raise ConfigurationError(f"shard: batch={batch} is no number of samples")
        if remainder not in REMAINDERS:
            raise ConfigurationError(f"shard: remainder={remainder!r} is not one of {', '.join(REMAINDERS)}")
        if lease is not None and lease < 1:
            raise ConfigurationError(f"shard: lease={lease} is no number of samples")
        self.epoch = 0
        self._batch, self._shuffle, self._seed, self._remainder = batch, shuffle, seed, remainder
        self._tree = job_tree()
        self._leases: Leases | None = None
        if leases:
            # Eight batches of each worker's share or so, but whole batches, and never more than the share.
            share = max(1, self.samples // self._tree.nodes)
            usual = max(1, share // 16) if batch is None else max(1, share // batch // 8) * batch
            self._leases = Leases(self._tree, self.samples, lease or usual)

    def __iter__(self) -> Iterator[Any]:
        """The next epoch's share."""
        order = self._order(self.epoch)
        epoch, self.epoch = self.epoch, self.epoch + 1
        if self._leases is None:
            yield from self._presented(self._even(order))
            return
        for first, end in self._leases.of_epoch(epoch):
            yield from self._presented(order[first:end])

    def __len__(self) -> int:
        """How many samples or batches an epoch has for this worker; unknown with leases."""
        if self._leases is not None:
            raise TypeError("with leases nobody knows how many samples this worker will get")
        count = len(self._even(np.arange(self.samples)))
        return count if self._batch is None else -(-count // self._batch)

    def indices(self, epoch: int | None = None) -> NDArray[np.int64]:
        """The indices of this worker's samples in an epoch, by default the next one; unknown with leases."""
        if self._leases is not None:
            raise TypeError("with leases nobody knows which samples this worker will get")
        return self._even(self._order(self.epoch if epoch is None else epoch))

    def _order(self, epoch: int) -> NDArray[np.int64]:
        if not self._shuffle:
            return np.arange(self.samples)
        return np.random.default_rng([self._seed, epoch]).permutation(self.samples)

    def _even(self, order: NDArray[np.int64]) -> NDArray[np.int64]:
        worker, workers = self._tree.node - 1, self._tree.nodes
        own = order[worker::workers]
        if self._remainder == "drop":
            return own[: self.samples // workers]
        if self._remainder == "repeat" and self.samples and len(own) < -(-self.samples // workers):
            return np.append(own, order[(worker + len(own) * workers) % self.samples])
        return own

    def _presented(self, indices: NDArray[np.int64]) -> Iterator[Any]:
        if self._batch is None:
            for index in indices.tolist():
                yield index if self._items is None else self._items[index]
            return
        for first in range(0, len(indices), self._batch):
            batch = indices[first : first + self._batch]
            if self._items is None:
                yield batch
            elif isinstance(self._items, np.ndarray):
                yield self._items[batch]
            else:
                yield [self._items[index] for index in batch.tolist()]
