"""Word vectors from a book: skip-gram with negative sampling, on two tables of which each step moves a few rows.

Alone:               python embeddings.py
Four processes:      syncline run -n 4 python embeddings.py
Under an MPI:        mpirun -np 4 python embeddings.py

A word's vector should say which words stand around it. Each worker reads its part of the book; a step pulls the rows
of its words, of their neighbours and of some random words, and pushes back only what it changed in those rows.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the processes are the parallelism

import numpy as np
from progress import STYLES, Progress, in_bytes

import syncline as sl

BOOK = Path(__file__).parents[1] / "data" / "alice.txt"
RARE = 4  # words that occur less often teach nothing
WINDOW = 5
NEGATIVES = 5
ASKED = ("turtle", "march", "rabbit", "king", "cat")


class Book:
    """The words of a text as numbers, the most frequent first."""

    def __init__(self, text: str) -> None:
        words = re.findall(r"[a-z]+(?:'[a-z]+)?", text.lower())
        counts = {word: count for word, count in Counter(words).most_common() if count >= RARE}
        self.vocabulary = list(counts)
        self.number = {word: number for number, word in enumerate(counts)}
        self.words = np.array([self.number[word] for word in words if word in counts])
        share = np.array(list(counts.values())) / sum(counts.values())
        self.kept = np.minimum(1, np.sqrt(1e-3 / share))  # "the" need not be seen each time
        self.drawn = np.cumsum(share**0.75 / (share**0.75).sum())

    def pairs(self, words: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Each word with some of its neighbours, the near ones more often, in random order."""
        words = words[random.random(len(words)) < self.kept[words]]
        centers, contexts = [], []
        for distance in range(1, WINDOW + 1):
            taken = random.random(len(words) - distance) < 1 - (distance - 1) / WINDOW
            left, right = words[:-distance][taken], words[distance:][taken]
            centers += [left, right]
            contexts += [right, left]
        order = random.permutation(sum(map(len, centers)))
        return np.concatenate(centers)[order], np.concatenate(contexts)[order]

    def random_words(self, shape: tuple[int, int], random: np.random.Generator) -> np.ndarray:
        return np.minimum(np.searchsorted(self.drawn, random.random(shape)), len(self.vocabulary) - 1)


def step(
    inputs: sl.MatrixTable, outputs: sl.MatrixTable, centers: np.ndarray, others: np.ndarray, rate: float
) -> tuple[float, int]:
    """Pulls the rows of these words, moves them a little, pushes the change. Returns the loss and the bytes moved.

    `others` has one row per center: first the word that does stand beside it, then words that do not.
    """
    rows_in, where_in = np.unique(centers, return_inverse=True)
    rows_out, where_out = np.unique(others, return_inverse=True)
    where_out = where_out.reshape(others.shape)
    pulled_in, pulled_out = inputs.get(rows_in), outputs.get(rows_out)

    near, far = pulled_in[where_in], pulled_out[where_out]
    likely = 1 / (1 + np.exp(-np.einsum("bd,bkd->bk", near, far)))
    loss = -(np.log(likely[:, 0] + 1e-9) + np.log(1 - likely[:, 1:] + 1e-9).sum(axis=1)).mean()
    likely[:, 0] -= 1
    change_in, change_out = np.zeros_like(pulled_in), np.zeros_like(pulled_out)
    np.add.at(change_in, where_in, -rate * np.einsum("bk,bkd->bd", likely, far))
    np.add.at(change_out, where_out, -rate * likely[:, :, None] * near[:, None, :])

    inputs.add(change_in, rows_in)
    outputs.add(change_out, rows_out)
    return float(loss), 2 * (change_in.nbytes + change_out.nbytes)


def batches(centers: np.ndarray, contexts: np.ndarray, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for first in range(0, len(centers), size):
        yield centers[first : first + size], contexts[first : first + size]


def neighbours(book: Book, vectors: np.ndarray, word: str, count: int = 4) -> list[str]:
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    nearest = np.argsort(-unit @ unit[book.number[word]])
    return [book.vocabulary[number] for number in nearest if book.vocabulary[number] != word][:count]


def main(args: argparse.Namespace) -> None:
    book = Book(BOOK.read_text())
    shape = (len(book.vocabulary), args.dimension)
    start = (np.random.default_rng(args.seed).random(shape, dtype=np.float32) - 0.5) / args.dimension
    with sl.init():
        inputs = sl.MatrixTable(*shape, init_value=start, name="inputs")  # worker 0's values count
        outputs = sl.MatrixTable(*shape, name="outputs")
        worker, workers, chief = sl.worker_id(), sl.num_workers(), sl.is_master_worker()
        random = np.random.default_rng([args.seed, worker])
        part = np.array_split(book.words, workers)[worker]
        progress = Progress(args.epochs, args.progress) if chief else None
        seen = moved = 0
        curve = []
        sl.barrier()
        started = time.perf_counter()
        for epoch in range(1, args.epochs + 1):
            losses = []
            for centers, contexts in batches(*book.pairs(part, random), args.batch):
                others = book.random_words((len(centers), 1 + NEGATIVES), random)
                others[:, 0] = contexts
                loss, traffic = step(inputs, outputs, centers, others, args.rate)
                losses.append(loss)
                seen += len(centers)
                moved += traffic
            curve.append(float(np.mean(losses)))
            if progress:
                speed = seen * workers / (time.perf_counter() - started)
                text = f"loss {curve[-1]:.4f}  {speed:,.0f} pairs/s  {in_bytes(moved * workers)} moved"
                progress.show(epoch, text)
        sl.barrier()  # every add of everybody is in the tables
        if chief:
            seconds = time.perf_counter() - started
            vectors = inputs.get()
            print(f"{workers} worker{'s'[: workers > 1]}: loss {curve[0]:.4f} -> {curve[-1]:.4f} in {seconds:.2f} s")
            for word in ASKED:
                print(f"  {word:>8}: {', '.join(neighbours(book, vectors, word))}")
        sl.barrier()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=15, help="how often the book is read (%(default)s)")
    parser.add_argument("--batch", type=int, default=256, help="pairs of a step (%(default)s)")
    parser.add_argument("--dimension", type=int, default=32, help="numbers of a word's vector (%(default)s)")
    parser.add_argument("--rate", type=float, default=0.05, help="learning rate (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first vectors and of each worker's order (%(default)s)")
    parser.add_argument("--progress", choices=STYLES, default="auto", help="on standard error (%(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main(arguments())
