"""Replays a story in Python: python replay.py STORY"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

import syncline as sl

tables: dict[str, Any] = {}
shared: dict[str, Any] = {}  # channels and queues
stores: list[Any] = []
mode = "async"
STATES = {"open": sl.ipc.channel.OPEN, "closed": sl.ipc.channel.CLOSED, "drained": sl.ipc.channel.DRAINED}


def numbers(words: list[str]) -> np.ndarray:
    return np.array([float(word) for word in words])


def expected(words: list[str]) -> np.ndarray:
    plus = words.index("+")
    return numbers(words[:plus]) + sl.num_workers() * numbers(words[plus + 1 :])


def compare(got: np.ndarray, words: list[str]) -> None:
    same(got, expected(words))


def same(got: np.ndarray, wanted: np.ndarray) -> None:
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
        case "reduce_scatter":
            equals, tree = rest.index("="), sl.tree()
            wanted = np.array_split(expected(rest[equals + 1 :]), tree.nodes)[tree.node - 1]  # the first take the remainder
            same(tree.reduce_scatter(numbers(rest[1:equals]), rest[0]), wanted)
        case "walk":
            table = tables[rest[0]]
            like = table.get()
            for step in range(1, int(rest[1]) + 1):
                table.add(np.full_like(like, 0.1 * (sl.worker_id() + 1) * step), sync=mode == "async")
                table.get()
        case "bits":
            print(f"bits {rest[0]} {tables[rest[0]].get().tobytes().hex()}")
        case "broadcast" | "gather" | "all_gather" | "all_to_all" | "meet":
            gather_round(command, rest)
        case "store" | "rule" | "init" | "push" | "pull":
            keep(command, rest)
        case _:
            pass_on(command, rest)


def gather_round(command: str, rest: list[str]) -> None:
    """What trees do beside reductions; node k brings k times the numbers."""
    tree = sl.tree()
    if command == "meet":
        return tree.barrier()
    rooted = command in ("broadcast", "gather")
    root = 0 if not rooted else tree.nodes if rest[0] == "last" else int(rest[0])
    given = numbers(rest[1:] if rooted else rest)
    mine = given * tree.node
    everybody = [given * node for node in range(1, tree.nodes + 1)]
    match command:
        case "broadcast":
            same(tree.broadcast(mine, root=root), given * root)
        case "gather":
            gathered = tree.gather(mine, root=root)
            assert (gathered is not None) == (root == tree.node), "what was gathered is at another node"
            for got, wanted in zip(gathered or everybody, everybody, strict=True):
                same(got, wanted)
        case "all_gather":
            for got, wanted in zip(tree.all_gather(mine), everybody, strict=True):
                same(got, wanted)
        case "all_to_all":
            for got, wanted in zip(tree.all_to_all([mine * node for node in range(1, tree.nodes + 1)]), everybody, strict=True):
                same(got, wanted * tree.node)


def keep(command: str, rest: list[str]) -> None:
    """The key-value store."""
    values = rest[1:]
    match command:
        case "store":
            stores.append(sl.kvstore.create(rest[0]))
        case "rule":
            options = {name: float(value) for name, value in (word.split("=") for word in values)}
            stores[-1].set_optimizer(sl.optimizer.create(rest[0], **options))
        case "init":
            stores[-1].init(rest[0], numbers(values).astype("float32"))
        case "push":
            stores[-1].push(rest[0], numbers(values).astype("float32"))
        case "pull":
            same(stores[-1].pull(rest[0]), expected(values).astype("float32"))


def answer_all(queue: Any, factor: float, failed: list[BaseException]) -> None:
    """Answers every question with so many times its number, until there are no more."""
    try:
        while True:
            question = queue.take(timeout=30)
            question.answer(question.value * factor)
    except sl.Closed:
        pass
    except BaseException as error:
        failed.append(error)


def pass_on(command: str, rest: list[str]) -> None:
    """Channels and workqueues."""
    name, values = rest[0], rest[1:]
    match command:
        case "channel":
            shared[name] = sl.ipc.channel(int(values[0]) or None)
        case "queue":
            shared[name], _ = sl.ipc.workqueue()
        case "write":
            status = shared[name].write(*(float(value) for value in values[1:]), timeout=30)
            assert status == STATES[values[0]], f"the channel says {status}"
        case "read":
            status, item = shared[name].read(nonblocking=len(values) == 1, timeout=None if len(values) == 1 else 30)
            assert status == STATES[values[0]], f"the channel says {status}"
            nothing = item is sl.ipc.NOTHING or item is None
            assert nothing if len(values) == 1 else item == float(values[1]), f"{item} should be {values[1:]}"
        case "close":
            shared[name].close()
        case "ask":
            shared[name].write(*(float(value) for value in values), timeout=30)
        case "drain":
            shared[name].drain(timeout=30)
        case "work":
            failed: list[BaseException] = []
            worker = threading.Thread(target=answer_all, args=(shared[name], float(values[0]), failed))
            worker.start()
            worker.join()
            assert not failed, failed
        case "answers":
            got = [shared[name].read(timeout=30) for _ in values]
            assert got == [float(value) for value in values], got
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
        if not words or words[0] in ("#", "for"):
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
