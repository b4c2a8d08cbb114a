"""Channels and maps of Python beside what Python and others have, turn by turn, in one run.

    python bindings/python/benches/ipc.py [--rounds 5] [--secs 0.5] [--only channel|map]

Channels: one producer and one consumer process; small objects (64 bytes, a tuple, a dict) and NumPy arrays of 1 MB, beside
``multiprocessing.Queue`` and, where it is installed, ``faster-fifo`` without its calls for many items at once. Maps: 1000 trivial calls
over 4 processes in a program of their own, which is small or has imported NumPy, beside ``ProcessPoolExecutor`` as it is (up to Python
3.13 it forks the program) and with a server; the first map includes what is loaded and started for it. Each figure is the median of
rounds that take turns, its spread beside it; the ratio is ours over theirs, larger is better. On a machine that does something else
meanwhile only the ratios mean something, and those little.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from syncline import ipc

ITEMS = {
    "64 bytes": lambda: b"x" * 64,
    "array of 64 bytes": lambda: ones(16),
    "tuple": lambda: (1, "two", 3.0),
    "dict": lambda: {"id": 7, "loss": 0.5},
    "array of 1 MB": lambda: ones(1 << 18),
}
CALLS, PROCESSES = 1000, 4

# --- channels ----------------------------------------------------------------------------------------------------


def ones(count: int) -> Any:
    import numpy as np

    return np.ones(count, np.float32)


def produce(kind: str, queue: Any, name: str) -> None:
    item = ITEMS[name]()
    put: Callable[[Any], Any] = queue.write if kind == "syncline" else queue.put
    if kind == "faster-fifo":
        put = lambda item: queue.put(item, timeout=60.0)  # noqa: E731  its own default gives up after ten seconds
    while True:
        put(item)


def consume(kind: str, queue: Any, count: Any) -> None:
    get: Callable[[], Any] = (lambda: queue.read()[1]) if kind == "syncline" else queue.get
    if kind == "faster-fifo":
        get = lambda: queue.get(timeout=60.0)  # noqa: E731
    while True:
        item = get()
        if hasattr(item, "dtype"):
            item[::16].sum()  # a number of each cache line
        count.value += 1


def per_second(kind: str, name: str, secs: float) -> float:
    context = multiprocessing.get_context("forkserver")
    large = name.endswith("MB")
    queue: Any
    if kind == "syncline":
        queue = ipc.channel(capacity=16 if large else 1000)
    elif kind == "faster-fifo":
        import faster_fifo
        import faster_fifo_reduction  # noqa: F401  lets it be given to processes

        queue = faster_fifo.Queue(max_size_bytes=64 << 20 if large else 1 << 20)
    else:
        queue = context.Queue(16 if large else 1000)
    count = context.Value("q", 0, lock=False)
    crew = [
        context.Process(target=consume, args=(kind, queue, count), daemon=True),
        context.Process(target=produce, args=(kind, queue, name), daemon=True),
    ]
    for process in crew:
        process.start()
    by = time.monotonic() + 60
    while not count.value:
        assert time.monotonic() < by, f"{kind}: nothing arrives"
        time.sleep(0.01)
    time.sleep(0.2)
    before, began = count.value, time.perf_counter()
    time.sleep(secs)
    rate = (count.value - before) / (time.perf_counter() - began)
    for process in crew:
        process.kill()
        process.join()
    return float(rate)


# --- maps --------------------------------------------------------------------------------------------------------


PROGRAM = """
import json, time
{imports}
began = time.perf_counter()
{library}

def same(number):
    return number

if __name__ == "__main__":
    took = []
    for _ in range({maps}):
{map}
        assert results == list(range(1, {calls} + 1))
        ended = time.perf_counter()
        took.append(ended - began)
        began = ended
    print(json.dumps(took))
"""
OURS = """
        results = ipc.map({calls}, same, processes={processes}, start_method={method!r}).join()
"""
THEIRS = """
        context = multiprocessing.get_context({method!r}) if {method!r} else None
        with ProcessPoolExecutor({processes}, mp_context=context) as executor:
            results = list(executor.map(same, range(1, {calls} + 1)))
"""


def map_in_a_new_program(kind: str, imports: str) -> tuple[float, float]:
    """Calls per second of the first map of a program, what is loaded and started for it included, and of the later ones."""
    whose, _, method = kind.partition(" ")
    ours = whose == "syncline"
    fill = {"calls": CALLS, "processes": PROCESSES, "method": method or None}
    program = PROGRAM.format(
        imports=imports,
        library="from syncline import ipc" if ours else "import multiprocessing\nfrom concurrent.futures import ProcessPoolExecutor",
        map=(OURS if ours else THEIRS).format(**fill),
        maps=5,
        calls=CALLS,
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "program.py"
        file.write_text(program)
        said = subprocess.run([sys.executable, file], capture_output=True, text=True, check=True).stdout
    first, *later = json.loads(said)
    return CALLS / first, CALLS / statistics.median(later)


# --- in turns ----------------------------------------------------------------------------------------------------


def show(what: str, figures: dict[str, list[float]], unit: str) -> None:
    ours = statistics.median(figures["syncline"])
    for kind, rates in figures.items():
        middle = statistics.median(rates)
        ratio = "" if kind == "syncline" else f"   ours x {ours / middle:.1f}"
        print(f"{what:>24} {kind:>20} {middle:>12,.0f} {unit}  ({min(rates):,.0f}..{max(rates):,.0f}){ratio}", flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--secs", type=float, default=0.5, help="seconds of each round of a channel")
    arguments.add_argument("--only", choices=["channel", "map"])
    given = arguments.parse_args()
    if given.only != "map":
        kinds = ["syncline", "Queue", *(["faster-fifo"] if importlib.util.find_spec("faster_fifo") else [])]
        for name in ITEMS:
            rates: dict[str, list[float]] = {kind: [] for kind in kinds}
            for _ in range(given.rounds):
                for kind in kinds:
                    rates[kind].append(per_second(kind, name, given.secs))
            show(name, rates, "items/s")
    if given.only != "channel":
        for what, imports, kinds in [
            ("small program", "", ["syncline", "executor", "executor forkserver", "syncline fork"]),
            ("with NumPy", "import numpy", ["syncline", "executor", "executor forkserver"]),
        ]:
            first: dict[str, list[float]] = {kind: [] for kind in kinds}
            later: dict[str, list[float]] = {kind: [] for kind in kinds}
            for _ in range(given.rounds):
                for kind in kinds:
                    rate = map_in_a_new_program(kind, imports)
                    first[kind].append(rate[0])
                    later[kind].append(rate[1])
            show(f"{what}, first map", first, "calls/s")
            show("later maps", later, "calls/s")


if __name__ == "__main__":
    main()
