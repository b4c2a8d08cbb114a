"""What Python adds to an all-reduce: the same arrays in Python and in Rust, turn by turn, in one run.

    python bindings/python/benches/all_reduce.py -n 2 -n 4

Prints what one call takes the slowest rank, in µs, for plain arrays and for those of ``empty_shared``. A turn of Rust
is one of ``syncline bench allreduce``, a turn of Python the same loop over ``tree.all_reduce``; the median turn counts.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time

SIZES = {"4K": 4 << 10, "64K": 64 << 10, "1M": 1 << 20, "16M": 16 << 20}


def measure(seconds: float) -> None:
    """The loops of one rank; worker 0 prints what one call takes the slowest of them."""
    import numpy as np
    import syncline as sl

    sl.init()
    tree = sl.tree()
    each: dict[str, float] = {}
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


def in_python(ranks: int, seconds: float) -> dict[str, float]:
    """One turn of Python."""
    command = [_syncline(), "run", "-n", str(ranks), sys.executable, __file__, "--rank", "--secs", str(seconds)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: dict[str, float] = json.loads(said[said.index("{") :])
    return found


def in_rust(ranks: int, seconds: float) -> dict[str, float]:
    """One turn of Rust."""
    found = {}
    for form in ("plain", "shared"):
        command = [_syncline(), "bench", "allreduce", "-n", str(ranks), "--sizes", ",".join(SIZES), "--json"]
        command += ["--runs", "1", "--secs", str(seconds), *(["--shared"] if form == "shared" else [])]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for name, line in zip(SIZES, said.splitlines(), strict=True):
            found[f"{form} {name}"] = float(json.loads(line)["time_us"])
    return found


def _syncline() -> str:
    beside = shutil.which("syncline") or shutil.which("syncline", path=sys.prefix + "/bin")
    return beside or "syncline"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--ranks", type=int, action="append")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--secs", type=float, default=0.2, help="of each size in a turn (%(default)s)")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank:
        measure(args.secs)
        return
    for ranks in args.ranks or [2]:
        rust: dict[str, list[float]] = {}
        python: dict[str, list[float]] = {}
        for _ in range(args.turns):
            for way, turns in ((in_rust, rust), (in_python, python)):
                for name, figure in way(ranks, args.secs).items():
                    turns.setdefault(name, []).append(figure)
        print(f"{ranks} ranks          Rust µs                 Python µs                   x")
        for name in rust:
            one, two = statistics.median(rust[name]), statistics.median(python[name])
            spread = [f"({min(each):.1f}-{max(each):.1f})" for each in (rust[name], python[name])]
            print(f"{name:12} {one:9.1f} {spread[0]:16} {two:9.1f} {spread[1]:16} {two / one:5.2f}", flush=True)


if __name__ == "__main__":
    main()
