"""A two-layer network on handwritten digits: the key-value store holds the weights, and Adam runs where they live.

Alone:               python digits_kvstore.py
Four processes:      syncline run -n 4 python digits_kvstore.py --type dist_sync
With servers:        syncline run -n 4 --servers 2 python digits_kvstore.py --type dist_async

Each worker learns from its share of the images, pushes the gradients of every layer and pulls the new weights. The
layers have priorities: what the next forward pass needs first travels first.
"""

from __future__ import annotations

import argparse
import os
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the processes are the parallelism

import numpy as np
from digits import accuracy, load
from progress import STYLES, Progress

import syncline as sl

CLASSES, HIDDEN = 10, 64
Network = dict[str, np.ndarray]


def new_network(inputs: int, seed: int) -> Network:
    random = np.random.default_rng(seed)
    return {
        "hidden_weight": (random.standard_normal((inputs, HIDDEN)) * np.sqrt(2 / inputs)).astype(np.float32),
        "output_weight": (random.standard_normal((HIDDEN, CLASSES)) * np.sqrt(1 / HIDDEN)).astype(np.float32),
        "output_bias": np.zeros(CLASSES, np.float32),
    }


def forward(network: Network, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    hidden = np.maximum(images @ network["hidden_weight"], 0)
    return hidden, hidden @ network["output_weight"] + network["output_bias"]


def gradients(network: Network, images: np.ndarray, labels: np.ndarray) -> tuple[Network, float]:
    """Of the mean loss over these images; and that loss."""
    hidden, scores = forward(network, images)
    likely = np.exp(scores - scores.max(axis=1, keepdims=True))
    likely /= likely.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -np.log(likely[rows, labels] + 1e-9).mean()
    likely[rows, labels] -= 1
    likely /= len(labels)
    back = (likely @ network["output_weight"].T) * (hidden > 0)
    slopes = {
        "hidden_weight": images.T @ back,
        "output_weight": hidden.T @ likely,
        "output_bias": likely.sum(axis=0),
    }
    return slopes, float(loss)


def train(kv: sl.kvstore.KVStore, images: np.ndarray, labels: np.ndarray, args: argparse.Namespace, chief: bool) -> Network:
    network = new_network(images.shape[1], args.seed)
    for name, weights in network.items():
        kv.init(name, weights)  # worker 0's counts
    if args.compress:
        kv.set_gradient_compression({"type": "2bit", "threshold": args.compress})
    # Steps of all workers are one: their gradients are summed, so each counts as its share.
    share_of_step = 1 / kv.num_workers if "sync" in kv.type else 1.0
    kv.set_optimizer(sl.optimizer.Adam(learning_rate=args.rate, rescale_grad=share_of_step))

    share = len(images) // kv.num_workers
    images, labels = images[kv.rank :: kv.num_workers][:share], labels[kv.rank :: kv.num_workers][:share]
    random = np.random.default_rng([args.seed, kv.rank])
    progress = Progress(args.epochs, args.progress) if chief else None
    for epoch in range(1, args.epochs + 1):
        order, losses = random.permutation(share), []
        for first in range(0, share, args.batch):
            batch = order[first : first + args.batch]
            slopes, loss = gradients(network, images[batch], labels[batch])
            for place, name in enumerate(network):
                kv.push(name, slopes[name], priority=-place)
            for place, name in enumerate(network):
                kv.pull(name, out=network[name], priority=-place)
            losses.append(loss)
        if progress:
            progress.show(epoch, f"loss {np.mean(losses):.4f}")
    kv.barrier()  # every step of everybody counts
    for name, weights in network.items():
        kv.pull(name, out=weights)
    return network


def right(network: Network, images: np.ndarray, labels: np.ndarray) -> float:
    hidden, _ = forward(network, images)
    scores = np.hstack([hidden, np.ones((len(hidden), 1), np.float32)])
    return accuracy(np.vstack([network["output_weight"], network["output_bias"]]), scores, labels)


def main(args: argparse.Namespace) -> None:
    images, labels, test_images, test_labels = load(args.seed)
    kv = sl.kvstore.create(args.type)
    chief = kv.rank == 0
    kv.barrier()
    started = time.perf_counter()
    network = train(kv, images, labels, args, chief)
    seconds = time.perf_counter() - started
    if chief:
        found, workers = right(network, test_images, test_labels), kv.num_workers
        print(f"{kv.type}, {workers} worker{'s'[: workers > 1]}: test accuracy {found:.4f} after {seconds:.2f} s")
    kv.barrier()  # worker 0 has pulled what it tests
    sl.shutdown()  # the others need not wait for what worker 0 does alone
    if chief and args.alone_too:
        started = time.perf_counter()
        network = train(sl.kvstore.create("local"), images, labels, args, chief=False)
        seconds = time.perf_counter() - started
        found = right(network, test_images, test_labels)
        print(f"local, 1 worker: test accuracy {found:.4f} after {seconds:.2f} s")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--type", default="dist_sync", help="of the store (%(default)s)")
    parser.add_argument("--epochs", type=int, default=30, help="how often each image is seen (%(default)s)")
    parser.add_argument("--batch", type=int, default=16, help="images of a worker's step (%(default)s)")
    parser.add_argument("--rate", type=float, default=0.003, help="learning rate (%(default)s)")
    parser.add_argument("--compress", type=float, default=0.0, help="threshold of 2-bit gradients (off)")
    parser.add_argument("--seed", type=int, default=0, help="of everything random (%(default)s)")
    parser.add_argument("--alone-too", action="store_true", help="then train once more in one process, on all images")
    parser.add_argument("--progress", choices=STYLES, default="auto", help="on standard error (%(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main(arguments())
