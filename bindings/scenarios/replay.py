"""Replays a story in Python: python replay.py STORY"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

import syncline as sl

tables: dict[str, Any] = {}
mode = "async"


def numbers(words: list[str]) -> np.ndarray:
    return np.array([float(word) for word in words])


def expected(words: list[str]) -> np.ndarray:
    plus = words.index("+")
    return numbers(words[:plus]) + sl.num_workers() * numbers(words[plus + 1 :])


def compare(got: np.ndarray, words: list[str]) -> None:
    wanted = expected(words)
    assert got.size == wanted.size and (got.reshape(-1) == wanted).all(), f"{got} should be {wanted}"


def ids(word: str) -> list[int]:
    return [int(one) for one in word.split(",")]


def do(words: list[str]) -> None:
    command, *rest = words
    match command:
        case "array":
            name, updater, dtype, *values = rest
            initial = numbers(values).astype(dtype)
            tables[name] = sl.ArrayTable(len(values), initial, updater=updater, dtype=dtype, name=name)
        case "matrix":
            name, updater, dtype, rows, cols = rest
            tables[name] = sl.MatrixTable(int(rows), int(cols), updater=updater, dtype=dtype, name=name)
        case "add":
            tables[rest[0]].add(typed(rest[0], rest[1:]), sync=mode == "async")
        case "add_rows":
            tables[rest[0]].add(typed(rest[0], rest[2:]), row_ids=ids(rest[1]), sync=mode == "async")
        case "get":
            compare(tables[rest[0]].get(), rest[1:])
        case "get_rows":
            compare(tables[rest[0]].get(row_ids=ids(rest[1])), rest[2:])
        case "barrier":
            sl.barrier()
        case "reduce":
            equals = rest.index("=")
            value, _ = sl.tree().all_reduce(numbers(rest[1:equals]), rest[0])
            compare(value, rest[equals + 1 :])
        case "walk":
            table = tables[rest[0]]
            like = table.get()
            for step in range(1, int(rest[1]) + 1):
                table.add(np.full_like(like, 0.1 * (sl.worker_id() + 1) * step), sync=mode == "async")
                table.get()
        case "bits":
            print(f"bits {rest[0]} {tables[rest[0]].get().tobytes().hex()}")
        case _:
            raise AssertionError(f"what is {command}?")


def typed(name: str, words: list[str]) -> np.ndarray:
    table = tables[name]
    return numbers(words).astype(kept[name]) if table is not None else numbers(words)


kept: dict[str, str] = {}


def main(story: Path) -> None:
    global mode
    for number, line in enumerate(story.read_text().splitlines(), 1):
        words = line.split()
        if not words or words[0] == "#":
            continue
        try:
            if words[0] in ("array", "matrix"):
                kept[words[1]] = words[3]
            if words[0] == "mode":
                mode = words[1]
                sl.init(sync=mode == "sync")
            elif words[0] == "fails":
                try:
                    do(words[2:])
                except sl.SynclineError as error:
                    assert type(error).__name__ == words[1], f"it failed with {type(error).__name__}: {error}"
                else:
                    raise AssertionError("it worked")
            else:
                do(words)
        except AssertionError as error:
            sys.exit(f"{story}:{number}: {error}")
    sl.shutdown()
    print("replayed")


main(Path(sys.argv[1]))
