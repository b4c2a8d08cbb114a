"""A forward pass in a pipeline: each process has some layers of a network, channels carry the activations between them.

    python examples/python/pipeline.py [stages]

While one stage works on a batch, the one before it has the next: with as many cores as stages, and stages that take equally long, the
pipeline is that many times as fast as one process. The sequential time is measured beside it, and the results are the same bits.
"""

from __future__ import annotations

import os
import sys
import time

for library in ("OMP", "OPENBLAS", "MKL"):  # one core per stage; otherwise they compete for all of them
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

import numpy as np
from syncline import ipc

LAYERS, WIDTH, BATCH, BATCHES = 8, 512, 128, 60


def layer(number: int) -> np.ndarray:
    return np.random.default_rng(number).normal(scale=WIDTH**-0.5, size=(WIDTH, WIDTH)).astype(np.float32)


def forward(weights: list[np.ndarray], activation: np.ndarray) -> np.ndarray:
    for matrix in weights:
        activation = np.maximum(activation @ matrix, 0.0)
    return activation


def batches() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.normal(size=(BATCH, WIDTH)).astype(np.float32) for _ in range(BATCHES)]


def stage(channels: list[ipc.Channel], stages: int, ready: ipc.Channel, id: int) -> None:
    inflow, outflow = channels[id - 1], channels[id]
    weights = [layer(number) for number in range(LAYERS * (id - 1) // stages, LAYERS * id // stages)]
    ready.write(id)
    for activation in inflow:
        outflow.write(forward(weights, activation))
    outflow.close()


def main(stages: int) -> None:
    inputs = batches()
    weights = [layer(number) for number in range(LAYERS)]
    forward(weights, inputs[0])
    started = time.perf_counter()
    expected = [forward(weights, each) for each in inputs]
    alone = time.perf_counter() - started

    channels, ready = [ipc.channel(capacity=4) for _ in range(stages + 1)], ipc.channel()
    workers = ipc.map(stages, stage, channels, stages, ready)
    for _ in range(stages):
        ready.read()
    started = time.perf_counter()
    feeder = ipc.BackgroundTask(feed, channels[0], inputs, processes=False)
    outputs = list(channels[-1])
    piped = time.perf_counter() - started
    feeder.get_result()
    workers.join()

    assert all(np.array_equal(*pair) for pair in zip(outputs, expected, strict=True))
    print(f"{BATCHES} batches through {LAYERS} layers: one process {alone:.3f} s, {stages} stages {piped:.3f} s ({alone / piped:.2f} x)")


def feed(channel: ipc.Channel, inputs: list[np.ndarray]) -> None:
    for each in inputs:
        channel.write(each)
    channel.close()


if __name__ == "__main__":
    main(*(int(given) for given in sys.argv[1:] or (2,)))
