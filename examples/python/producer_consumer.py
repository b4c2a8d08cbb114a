"""Producers and consumers with a channel between them: python examples/python/producer_consumer.py

The channel has room for eight items, so producers that are faster than the consumers wait for them: memory stays
bounded however many items there are. Arrays are written once and read where they lie.
"""

from __future__ import annotations

import numpy as np
from syncline import ipc

PRODUCERS, CONSUMERS, EACH = 2, 3, 200


def produce(items: ipc.Channel, id: int) -> None:
    random = np.random.default_rng(id)
    for number in range(EACH):
        items.write({"from": id, "number": number, "data": random.normal(size=10_000)})


def consume(items: ipc.Channel, id: int) -> tuple[int, float]:
    count, total = 0, 0.0
    for item in items:  # until the channel is closed and empty
        count += 1
        total += float(item["data"].sum())
    return count, total


def main() -> None:
    items = ipc.channel(capacity=8)
    consumers = ipc.map(CONSUMERS, consume, items)
    ipc.map(PRODUCERS, produce, items).join()
    items.close()
    results = consumers.join()
    for id, (count, total) in enumerate(results, 1):
        print(f"consumer {id}: {count} items, sum {total:.3f}")

    expected = sum(
        float(random.normal(size=10_000).sum())
        for random in (np.random.default_rng(id) for id in range(1, PRODUCERS + 1))
        for _ in range(EACH)
    )
    assert sum(count for count, _ in results) == PRODUCERS * EACH
    assert abs(sum(total for _, total in results) - expected) < 1e-6


if __name__ == "__main__":
    main()
