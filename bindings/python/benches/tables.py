"""What Python adds to tables: the same adds and gets in Python and in Rust, turn by turn, in one run.

    python bindings/python/benches/tables.py -n 1 -n 2 -n 4

Prints what one loop takes all workers together, in µs: an add and a get of the whole array (``dense``), of 1,000 random rows of a
million (``rows``), or one get of 16 floats by worker 0 (``pull``; ``pull, new`` returns a new array instead of filling one). A turn of
Rust is one of ``syncline bench pb``; the median turn counts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from beside_rust import Figures, main, run_ranks, syncline

SIZES = {"4K": 4 << 10, "1M": 1 << 20, "16M": 16 << 20, "64M": 64 << 20}


def measure(seconds: float) -> None:
    """The loops of one worker; worker 0 prints what one of them takes all workers together."""
    import numpy as np
    import syncline as sl

    sl.init()
    tree = sl.tree()

    def per_loop(once: Callable[[], object]) -> float:
        for _ in range(3):
            once()
        tree.barrier()
        loops, begun = 0, time.perf_counter()
        while (now := time.perf_counter()) < begun + seconds:
            once()
            loops += 1
        rate, _ = tree.all_reduce(loops / (now - begun))
        return 1e6 / float(rate)

    found: Figures = {}
    for name, size in SIZES.items():
        table = sl.ArrayTable(size // 4)
        delta, fetched = np.ones(size // 4, np.float32), np.empty(size // 4, np.float32)

        def dense() -> None:
            table.add(delta)
            table.get(out=fetched)

        found[f"dense {name}"] = per_loop(dense)
    matrix = sl.MatrixTable(1_000_000, 64)
    rng = np.random.default_rng(sl.worker_id())
    drawn = [rng.integers(0, 1_000_000, 1000) for _ in range(64)]
    change, wanted = np.ones((1000, 64), np.float32), np.empty((1000, 64), np.float32)
    turn = 0

    def rows() -> None:
        nonlocal turn
        turn += 1
        matrix.add(change, row_ids=drawn[turn % 64])
        matrix.get(drawn[turn % 64], out=wanted)

    found["rows"] = per_loop(rows)
    few, into = sl.ArrayTable(16), np.empty(16, np.float32)
    sl.barrier()
    if sl.worker_id() == 0:
        pulls: dict[str, Callable[[], object]] = {"pull": lambda: few.get(out=into), "pull, new": lambda: few.get()}
        for name, once in pulls.items():
            times = []
            for _ in range(20_000):
                begun = time.perf_counter()
                once()
                times.append(time.perf_counter() - begun)
            found[name] = 1e6 * sorted(times)[len(times) // 2]
        print(json.dumps(found))
    sl.barrier()


def in_python(ranks: int, seconds: float) -> Figures:
    """One turn of Python."""
    said = run_ranks(ranks, __file__, seconds)
    found: Figures = json.loads(said[said.index("{") :])
    return found


def in_rust(ranks: int, seconds: float) -> Figures:
    """One turn of Rust."""

    def ranks_of(*workload: str) -> list[dict[str, float]]:
        lines = syncline("bench", "pb", *workload, f"n={ranks}", f"secs={seconds}").splitlines()
        return [{key: float(value) for key, value in (each.split("=") for each in line.split()[2:])} for line in lines]

    def per_loop(*workload: str) -> float:
        return 1e6 / sum(each["iters"] / each["elapsed"] for each in ranks_of(*workload))

    found = {f"dense {name}": per_loop("w2", f"size={size}") for name, size in SIZES.items()}
    found["rows"] = per_loop("w3")
    found["pull"] = found["pull, new"] = 1e6 * ranks_of("w4", "what=pull")[0]["p50"]
    return found


if __name__ == "__main__":
    main(__doc__, measure, in_rust, in_python, ranks=[1, 2, 4])
