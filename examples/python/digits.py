"""Softmax regression on handwritten digits: each process learns from its share, one table holds the weights.

Alone:               python digits.py
Four processes:      syncline run -n 4 python digits.py --sync
Under an MPI:        mpirun -np 4 python digits.py --async

With --sync all workers take a step together, and the final weights are the same bits in every run (--hash shows it).
With --async each goes at its own pace, on weights that the others may have changed a moment ago.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from collections.abc import Callable

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the processes are the parallelism

import numpy as np
from progress import STYLES, Progress, in_bytes
from sklearn.datasets import load_digits

import syncline as sl

CLASSES = 10


def load(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images with a constant 1 at the end of each, and labels: four fifths to learn from, the rest to test."""
    digits = load_digits()
    images = np.hstack([digits.data / 16, np.ones((len(digits.data), 1))]).astype(np.float32)
    order = np.random.default_rng(seed).permutation(len(images))
    learn, test = np.split(order, [len(order) * 4 // 5])
    return images[learn], digits.target[learn], images[test], digits.target[test]


def gradient(weights: np.ndarray, images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, float]:
    """Of the mean loss over these images; and that loss."""
    scores = images @ weights
    scores -= scores.max(axis=1, keepdims=True)
    likely = np.exp(scores)
    likely /= likely.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -np.log(likely[rows, labels] + 1e-9).mean()
    likely[rows, labels] -= 1
    return images.T @ likely / len(labels), float(loss)


def train(
    weights: np.ndarray,
    exchange: Callable[[np.ndarray], None],
    images: np.ndarray,
    labels: np.ndarray,
    args: argparse.Namespace,
    worker: int = 0,
    workers: int = 1,
    progress: Progress | None = None,
) -> float:
    """Learns from every `workers`-th image; `exchange` passes a step on and leaves the new weights. Returns seconds."""
    share = len(images) // workers  # the same for all, so that all take the same number of steps
    images, labels = images[worker::workers][:share], labels[worker::workers][:share]
    random = np.random.default_rng([args.seed, worker])
    steps = moved = 0
    started = time.perf_counter()
    for epoch in range(1, args.epochs + 1):
        order = random.permutation(share)
        losses = []
        for first in range(0, share, args.batch):
            batch = order[first : first + args.batch]
            slope, loss = gradient(weights, images[batch], labels[batch])
            exchange(slope * np.float32(-args.rate / workers))
            losses.append(loss)
        steps += len(losses)
        moved = 2 * steps * weights.nbytes * workers  # one add and one get of all weights by each worker
        if progress:
            speed = epoch * share * workers / (time.perf_counter() - started)
            text = f"loss {np.mean(losses):.4f}  {speed:,.0f} samples/s  {in_bytes(moved)} moved"
            progress.show(epoch, text)
    return time.perf_counter() - started


def accuracy(weights: np.ndarray, images: np.ndarray, labels: np.ndarray) -> float:
    return float((np.argmax(images @ weights, axis=1) == labels).mean())


def main(args: argparse.Namespace) -> None:
    images, labels, test_images, test_labels = load(args.seed)
    with sl.init(sync=args.sync):
        table = sl.MatrixTable(images.shape[1], CLASSES, name="weights")
        weights = table.get()

        def exchange(step: np.ndarray) -> None:
            table.add(step)
            table.get(out=weights)

        chief = sl.is_master_worker()
        progress = Progress(args.epochs, args.progress) if chief else None
        sl.barrier()  # everybody has read the images: now the clock may run
        started = time.perf_counter()
        train(weights, exchange, images, labels, args, sl.worker_id(), sl.num_workers(), progress)
        sl.barrier()  # and every step of everybody is in the table
        seconds = time.perf_counter() - started
        table.get(out=weights)
        if chief:
            mode, workers = "sync" if args.sync else "async", sl.num_workers()
            right = accuracy(weights, test_images, test_labels)
            print(f"{mode}, {workers} worker{'s'[: workers > 1]}: test accuracy {right:.4f} after {seconds:.2f} s")
            if args.hash:
                print("weights", hashlib.sha256(weights.tobytes()).hexdigest())
            if args.alone_too:
                train_alone(images, labels, test_images, test_labels, args)
        sl.barrier()  # nobody leaves while worker 0 is still at it


def train_alone(
    images: np.ndarray, labels: np.ndarray, test_images: np.ndarray, test_labels: np.ndarray, args: argparse.Namespace
) -> None:
    """The same without Syncline: one process, all images, the weights in an array of its own."""
    weights = np.zeros((images.shape[1], CLASSES), dtype=np.float32)

    def exchange(step: np.ndarray) -> None:
        np.add(weights, step, out=weights)

    seconds = train(weights, exchange, images, labels, args)
    right = accuracy(weights, test_images, test_labels)
    print(f"alone, plain NumPy: test accuracy {right:.4f} after {seconds:.2f} s")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--sync", action="store_true", help="all workers take each step together")
    mode.add_argument("--async", action="store_false", dest="sync", help="each at its own pace (the default)")
    parser.add_argument("--epochs", type=int, default=200, help="how often each image is seen (%(default)s)")
    parser.add_argument("--batch", type=int, default=32, help="images of a worker's step (%(default)s)")
    parser.add_argument("--rate", type=float, default=0.5, help="learning rate (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the split and of each worker's order (%(default)s)")
    parser.add_argument("--hash", action="store_true", help="print a hash of the final weights")
    parser.add_argument("--alone-too", action="store_true", help="then train once more in one process, without Syncline")
    parser.add_argument("--progress", choices=STYLES, default="auto", help="on standard error (%(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main(arguments())
