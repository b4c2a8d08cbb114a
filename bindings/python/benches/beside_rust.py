"""The same work in Python and in Rust, turn by turn in one run, and what Python adds to it. Benches beside this file say which work."""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from typing import Protocol

#: What one call or loop takes, in µs, by name.
Figures = dict[str, float]


class Turn(Protocol):
    """One turn of one language."""

    def __call__(self, ranks: int, seconds: float) -> Figures: ...


def syncline(*arguments: str) -> str:
    """What the command says on its standard output."""
    found = shutil.which("syncline") or shutil.which("syncline", path=sys.prefix + "/bin")
    return subprocess.run([found or "syncline", *arguments], capture_output=True, text=True, check=True).stdout


def run_ranks(ranks: int, script: str, seconds: float) -> str:
    """What ``script`` says when each of ``ranks`` processes runs its own side of the bench."""
    return syncline("run", "-n", str(ranks), "--no-prefix", sys.executable, script, "--rank", "--secs", str(seconds))


def main(about: str | None, rank: Callable[[float], None], in_rust: Turn, in_python: Turn, ranks: list[int]) -> None:
    """The command line of a bench: ``rank`` is what each of its processes does, the two turns are what is compared."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--ranks", type=int, action="append", help=f"how many processes; may be repeated ({ranks})")
    parser.add_argument("--turns", type=int, default=3, help="of each language; the median counts (%(default)s)")
    parser.add_argument("--secs", type=float, default=0.2, help="of each figure in a turn (%(default)s)")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank:
        rank(args.secs)
        return
    for count in args.ranks or ranks:
        rust: dict[str, list[float]] = {}
        python: dict[str, list[float]] = {}
        for _ in range(args.turns):
            for way, turns in ((in_rust, rust), (in_python, python)):
                for name, figure in way(count, args.secs).items():
                    turns.setdefault(name, []).append(figure)
        print(f"{count:2} ranks             Rust µs                 Python µs                   x")
        for name in rust:
            one, two = statistics.median(rust[name]), statistics.median(python[name])
            spread = [f"({min(each):.2f}-{max(each):.2f})" for each in (rust[name], python[name])]
            print(f"{name:16} {one:9.2f} {spread[0]:19} {two:9.2f} {spread[1]:19} {two / one:5.2f}", flush=True)
