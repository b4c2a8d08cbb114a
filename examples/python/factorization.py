"""A factorisation machine that predicts clicks: every step touches a few rows of a table that is larger than the step.

Alone:               python factorization.py
Four processes:      syncline run -n 4 python factorization.py --type dist_async

An impression is a user, an ad, an hour and a site; each of their thousands of values has a weight and a short vector,
and who clicks depends on which vectors point the same way. A step pulls the rows of its batch, and pushes a
row-sparse gradient for them; Adam, which runs where the rows live, touches no others.
"""

from __future__ import annotations

import argparse
import os
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the processes are the parallelism

import numpy as np
from progress import STYLES, Progress

import syncline as sl

FIELDS = (2000, 600, 24, 50)  # users, ads, hours, sites
FEATURES, RANK = sum(FIELDS), 8


def impressions(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Features of each impression, one per field, and whether it was clicked: by a machine whose vectors nobody knows."""
    random = np.random.default_rng(seed)
    vectors = random.standard_normal((FEATURES, 3)).astype(np.float32)
    weights = random.standard_normal((FEATURES, 1)).astype(np.float32) * 0.3
    starts = np.cumsum((0, *FIELDS[:-1]))
    features = np.stack([random.integers(0, size, count) + start for size, start in zip(FIELDS, starts)], axis=1)
    return features, (scores(0.0, weights[features], vectors[features]) > 0).astype(np.float32)


def scores(bias: float, weights: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Of impressions whose features have these weights (n x fields x 1) and vectors (n x fields x rank)."""
    together = vectors.sum(axis=1)
    pairs = (together**2 - (vectors**2).sum(axis=1)).sum(axis=1) / 2  # every pair of fields once
    return bias + weights.sum(axis=(1, 2)) + pairs


class Machine:
    """The model, of which a step has only the rows it needs."""

    def __init__(self, kv: sl.kvstore.KVStore, args: argparse.Namespace) -> None:
        self.kv = kv
        random = np.random.default_rng(args.seed)
        start = {
            "weights": np.zeros((FEATURES, 1), np.float32),
            "vectors": (random.standard_normal((FEATURES, RANK)) * 0.1).astype(np.float32),
        }
        every = np.arange(FEATURES)
        kv.init("bias", np.zeros(1, np.float32))
        for name, values in start.items():
            kv.init(name, sl.RowSparse(every, values, values.shape))
        self.rows = {name: sl.RowSparse.zeros(values.shape) for name, values in start.items()}
        share_of_step = 1 / kv.num_workers if "sync" in kv.type else 1.0
        kv.set_optimizer(sl.optimizer.Adam(learning_rate=args.rate, rescale_grad=share_of_step))

    def look_up(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The ids of the rows that these impressions need, and where each stands among them."""
        ids, places = np.unique(features, return_inverse=True)
        for name, rows in self.rows.items():
            self.kv.row_sparse_pull(name, out=rows, row_ids=ids)
        return ids, places.reshape(features.shape)

    def predict(self, features: np.ndarray) -> np.ndarray:
        _, places = self.look_up(features)
        bias = self.kv.pull("bias")[0]
        return scores(bias, self.rows["weights"].values[places], self.rows["vectors"].values[places])

    def step(self, features: np.ndarray, clicked: np.ndarray) -> float:
        ids, places = self.look_up(features)
        weights, vectors = self.rows["weights"].values[places], self.rows["vectors"].values[places]
        predicted = 1 / (1 + np.exp(-scores(self.kv.pull("bias")[0], weights, vectors)))
        wrong = ((predicted - clicked) / len(clicked)).astype(np.float32)[:, None, None]
        slopes = {
            "weights": np.broadcast_to(wrong, weights.shape),
            "vectors": wrong * (vectors.sum(axis=1, keepdims=True) - vectors),
        }
        for name, slope in slopes.items():
            total = np.zeros((len(ids), slope.shape[2]), np.float32)
            np.add.at(total, places.ravel(), slope.reshape(-1, slope.shape[2]))
            self.kv.push(name, sl.RowSparse(ids, total, self.rows[name].shape))
        self.kv.push("bias", wrong.sum(keepdims=True).reshape(1))
        likely = np.where(clicked > 0, predicted, 1 - predicted)
        return float(-np.log(likely + 1e-9).mean())


def train(kv: sl.kvstore.KVStore, features: np.ndarray, clicked: np.ndarray, args: argparse.Namespace, chief: bool) -> Machine:
    machine = Machine(kv, args)
    share = len(features) // kv.num_workers
    features, clicked = features[kv.rank :: kv.num_workers][:share], clicked[kv.rank :: kv.num_workers][:share]
    random = np.random.default_rng([args.seed, kv.rank])
    progress = Progress(args.epochs, args.progress) if chief else None
    for epoch in range(1, args.epochs + 1):
        order, losses = random.permutation(share), []
        for first in range(0, share, args.batch):
            batch = order[first : first + args.batch]
            losses.append(machine.step(features[batch], clicked[batch]))
        if progress:
            progress.show(epoch, f"loss {np.mean(losses):.4f}")
    kv.barrier()  # every step of everybody counts
    return machine


def main(args: argparse.Namespace) -> None:
    features, clicked = impressions(args.impressions, args.seed)
    learn = len(features) * 4 // 5
    kv = sl.kvstore.create(args.type)
    chief = kv.rank == 0

    def report(store: sl.kvstore.KVStore) -> None:
        started = time.perf_counter()
        machine = train(store, features[:learn], clicked[:learn], args, chief and store is kv)
        seconds = time.perf_counter() - started
        if chief:
            right = float(((machine.predict(features[learn:]) > 0) == clicked[learn:]).mean())
            workers = f"{store.num_workers} worker{'s'[: store.num_workers > 1]}"
            print(f"{store.type}, {workers}: test accuracy {right:.4f} after {seconds:.2f} s")

    kv.barrier()
    report(kv)
    kv.barrier()  # worker 0 has tested what is in the store
    sl.shutdown()  # the others need not wait for what worker 0 does alone
    if chief and args.alone_too:
        report(sl.kvstore.create("local"))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--type", default="dist_sync", help="of the store (%(default)s)")
    parser.add_argument("--impressions", type=int, default=50_000, help="to learn from and to test (%(default)s)")
    parser.add_argument("--epochs", type=int, default=6, help="how often each is seen (%(default)s)")
    parser.add_argument("--batch", type=int, default=100, help="impressions of a worker's step (%(default)s)")
    parser.add_argument("--rate", type=float, default=0.02, help="learning rate (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of everything random (%(default)s)")
    parser.add_argument("--alone-too", action="store_true", help="then train once more in one process, on everything")
    parser.add_argument("--progress", choices=STYLES, default="auto", help="on standard error (%(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main(arguments())
