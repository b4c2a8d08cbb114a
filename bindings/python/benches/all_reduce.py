"""What Python adds to an all-reduce: the same arrays in Python and in Rust, turn by turn, in one run.

    python bindings/python/benches/all_reduce.py -n 2 -n 4

Prints what one call takes the slowest rank, in µs, for plain arrays and for those of ``empty_shared``. A turn of Rust
is one of ``syncline bench allreduce``, a turn of Python the same loop over ``tree.all_reduce``; the median turn counts.
"""

from __future__ import annotations

import json
import time

from beside_rust import Figures, main, run_ranks, syncline

SIZES = {"4K": 4 << 10, "64K": 64 << 10, "1M": 1 << 20, "16M": 16 << 20}


def measure(seconds: float) -> None:
    """The loops of one rank; worker 0 prints what one call takes the slowest of them."""
    import numpy as np
    import syncline as sl

    sl.init()
    tree = sl.tree()
    each: Figures = {}
    for form in ("plain", "shared"):
        for name, size in SIZES.items():
            array = np.zeros(size // 4, np.float32) if form == "plain" else sl.empty_shared(size // 4)
            for _ in range(5):
                begun = time.perf_counter()
                tree.all_reduce(array)
            rounds = tree.broadcast(int(max(5, min(50_000, seconds / (time.perf_counter() - begun)))))
            tree.barrier()
            begun = time.perf_counter()
            for _ in range(rounds):
                tree.all_reduce(array)
            each[f"{form} {name}"] = 1e6 * (time.perf_counter() - begun) / rounds
    slowest, _ = tree.all_reduce(each, "max")
    if sl.worker_id() == 0:
        print(json.dumps(slowest))


def in_python(ranks: int, seconds: float) -> Figures:
    """One turn of Python."""
    said = run_ranks(ranks, __file__, seconds)
    found: Figures = json.loads(said[said.index("{") :])
    return found


def in_rust(ranks: int, seconds: float) -> Figures:
    """One turn of Rust."""
    found = {}
    for form in ("plain", "shared"):
        options = ["-n", str(ranks), "--sizes", ",".join(SIZES), "--runs", "1", "--secs", str(seconds), "--json"]
        said = syncline("bench", "allreduce", *options, *(["--shared"] if form == "shared" else []))
        for name, line in zip(SIZES, said.splitlines(), strict=True):
            found[f"{form} {name}"] = float(json.loads(line)["time_us"])
    return found


if __name__ == "__main__":
    main(__doc__, measure, in_rust, in_python, ranks=[2])
