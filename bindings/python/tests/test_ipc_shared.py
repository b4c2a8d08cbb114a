"""Workqueues, mutexes, shared tables and marshalled values, between threads and between processes."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import interrupt_once_asleep
from test_ipc_channel import ANYTHING, Point, top_level

import syncline as sl
from syncline import ipc
from syncline.ipc import NOTHING

EITHER = pytest.mark.parametrize("processes", [True, False], ids=["processes", "threads"])


def echo(queue: ipc.Workqueue, id: int) -> int:
    count = 0
    for item in queue:
        queue.write(item)
        count += 1
    return count


def echo_by_name(name: str, id: int) -> bool:
    queue, creator = ipc.workqueue(name)
    echo(queue, id)
    return creator


def add_up(queue: ipc.Workqueue, id: int) -> int:
    return sum(queue)


def call_it(queue: ipc.Workqueue, id: int) -> None:
    for function, argument in queue:
        queue.write(function(argument))


def read_one_and_die(queue: ipc.Workqueue, id: int) -> None:
    queue.read()
    os.kill(os.getpid(), signal.SIGKILL)


def read_one(queue: ipc.Workqueue, id: int) -> Any:
    return queue.read()


def square_slowly(queue: ipc.Workqueue, id: int) -> int:
    count = 0
    for number in queue:
        time.sleep(0.001)
        queue.write((number, number * number))
        count += 1
    return count


def announce_and_square(pids: ipc.Channel, queue: ipc.Workqueue, id: int) -> None:
    pids.write(os.getpid())
    square_slowly(queue, id)


def wait_in_read(queue: ipc.Workqueue, id: int) -> str:
    try:
        return repr(queue.read())
    except sl.Closed:
        return "closed"


def finish_late(queue: ipc.Workqueue, gate: str, id: int) -> None:
    for item in queue:
        while not os.path.exists(gate):
            time.sleep(0.002)
        queue.write(item)


def fill(mutex: ipc.Mutex, table: ipc.SharedTable, size: int, id: int) -> None:
    mutex.barrier(4)
    with mutex:
        with mutex:  # recursive
            array = np.array(table["array"])
            array[:] = id
            table["array"] = array
    mutex.barrier(4)


def count_up(mutex: ipc.Mutex, table: ipc.SharedTable, keys: int, id: int) -> None:
    mutex.barrier(10, timeout=60)  # all at once, or nobody would be in anybody's way
    for key in range(keys):
        with mutex:
            table[key] = table[key] + 1


def change_nested(outer: ipc.SharedTable, id: int) -> tuple[int, list[tuple[Any, Any]], dict[Any, Any]]:
    inner = outer["inner"]
    inner["x"] = inner["x"] + 1
    inner["from"] = ipc.sharedtable({"process": os.getpid()})
    moved = ipc.sharedtable(inner["moved"], True)
    outer["moved"] = moved
    return len(outer), inner["plain"].pairs(), moved.copy()


def hold_and_wait(queue: ipc.Workqueue, told: ipc.Channel, id: int) -> None:
    item = queue.take()
    told.write((os.getpid(), item.value))
    while True:
        time.sleep(60)


def answer_the_rest(queue: ipc.Workqueue, told: ipc.Channel, id: int) -> list[Any]:
    told.write(None)
    seen = []
    for question in queue:
        seen.append(question)
        queue.write(question)
    return seen


def address_of(value: ipc.Marshal | ipc.SharedTable, id: int) -> tuple[bool, float]:
    read = value.read if isinstance(value, ipc.Marshal) else lambda: value[0]
    first, second = read(), read()
    return bool(np.shares_memory(first, second)), float(first.sum())


def put(table: ipc.SharedTable, id: int) -> None:
    table[id] = id


def die_with_lock(mutex: ipc.Mutex, id: int) -> None:
    mutex.lock()
    os.kill(os.getpid(), signal.SIGKILL)


def pass_barriers(mutex: ipc.Mutex, log: ipc.Channel, rounds: int, n: int, id: int) -> None:
    for number in range(rounds):
        log.write(number)
        mutex.barrier(n)


def read_marshalled(value: ipc.Marshal, times: int, id: int) -> float:
    return sum(float(value.read()["weights"].sum()) for _ in range(times))


def closed_over(x: int) -> Any:
    def inside(y: int) -> int:
        return x * y

    return inside


@EITHER
def test_workers_give_back_what_they_are_told(processes: bool) -> None:
    queue, creator = ipc.workqueue()
    assert creator == 1
    worker = ipc.map(1, echo, queue, processes=processes)
    for item in [*ANYTHING[1:], [Point(1, 2)]]:
        queue.write(item)
        got = queue.read(timeout=60)
        assert got == item and type(got) is type(item)
    array = np.full(5000, 13.0)
    queue.write(array)
    assert np.array_equal(queue.read(timeout=60), array)
    queue.write(None)
    assert worker.join(timeout=60) == [len(ANYTHING) + 1]


@EITHER
def test_named_queues_are_made_once(processes: bool) -> None:
    """T11: named queues are counted like all others."""
    name = f"test {os.getpid()} {time.monotonic_ns()}"
    queue, creator = ipc.workqueue(name)
    again, second = ipc.workqueue(name, 16384)
    assert (creator, second, again == queue) == (1, 0, True)
    marker = ipc.channel()  # invites the processes into the family
    worker = ipc.map(1, named_after, marker, name, processes=processes)
    queue.write("question")
    assert queue.read(timeout=60) == "question"
    queue.write(None)
    assert worker.join(timeout=60) == [False]


def named_after(_: ipc.Channel, name: str, id: int) -> bool:
    return echo_by_name(name, id)


@EITHER
def test_drain_waits_for_items_in_progress(processes: bool, tmp_path: Path) -> None:
    """T7."""
    queue, _ = ipc.workqueue()
    gate = tmp_path / "gate"
    workers = ipc.map(2, finish_late, queue, str(gate), processes=processes)
    queue.write(*range(1, 14))
    with pytest.raises(sl.Timeout):
        queue.drain(timeout=0.1)
    assert queue.read(True) is NOTHING
    gate.touch()
    queue.drain(timeout=60)
    assert sorted(queue.read(True) for _ in range(13)) == list(range(1, 14))
    assert queue.read(True) is NOTHING
    queue.close()
    workers.join(timeout=60)


def test_drain_is_for_the_owner_only() -> None:
    queue, _ = ipc.workqueue()

    def drain(id: int) -> str:
        with pytest.raises(sl.SynclineError) as error:
            queue.drain(timeout=1)
        return str(error.value)

    assert "owner" in ipc.map(1, drain, processes=False).join()[0]


@EITHER
def test_a_tiny_queue_takes_a_hundred_items(processes: bool) -> None:
    queue, _ = ipc.workqueue(None, 16)
    workers = ipc.map(4, add_up, queue, processes=processes)
    queue.write(*range(1, 101))
    queue.write(*[None] * 4)
    assert sum(workers.join(timeout=60)) == 5050


@EITHER
def test_functions_travel_and_closures_with_writeup(processes: bool) -> None:
    queue, _ = ipc.workqueue()
    worker = ipc.map(1, call_it, queue, processes=processes)
    queue.write((top_level, 41))
    assert queue.read(timeout=60) == 42
    with pytest.raises(sl.ConfigurationError, match="cannot travel"):
        queue.write((closed_over(6), 7))
    queue.writeup((closed_over(6), 7), (lambda y: y + 1, 1))
    assert [queue.read(timeout=60), queue.read(timeout=60)] == [42, 2]
    queue.write(None)
    worker.join(timeout=60)


@EITHER
def test_close_wakes_readers(processes: bool) -> None:
    queue, _ = ipc.workqueue()
    workers = ipc.map(3, wait_in_read, queue, processes=processes)
    with pytest.raises(sl.Timeout):
        workers.join(timeout=0.3)
    queue.close()
    assert workers.join(timeout=60) == ["closed"] * 3
    with pytest.raises(sl.Closed):
        queue.write(1)
    with pytest.raises(sl.Closed):
        queue.read()


def test_an_item_in_the_hand_of_a_dead_worker_goes_to_the_next() -> None:
    queue, _ = ipc.workqueue()
    queue.write("precious")
    with pytest.raises(sl.PeerLost):
        ipc.map(1, read_one_and_die, queue).join(timeout=60)
    worker = ipc.map(1, echo, queue)
    assert queue.read(timeout=60) == "precious"
    queue.write(None)
    worker.join(timeout=60)


@EITHER
def test_an_item_whose_worker_returned_is_finished(processes: bool) -> None:
    queue, _ = ipc.workqueue()
    queue.write("one")
    assert ipc.map(1, read_one, queue, processes=processes).join(timeout=60) == ["one"]
    queue.drain(timeout=60)
    assert ipc.map(1, lambda _: queue.read(True), processes=False).join() == [NOTHING]


def test_items_can_be_taken_and_given_back() -> None:
    queue, _ = ipc.workqueue()
    queue.write("a", "b")

    def work(id: int) -> list[Any]:
        seen: list[Any] = []
        first = queue.take()
        seen += [first.value, first.attempts]
        first.give_back()
        with queue.take() as again:
            seen += [again.value, again.attempts, again.id == first.id]
        with pytest.raises(sl.Closed):
            again.done()
        second = queue.take()
        second.answer(second.value * 2)
        with pytest.raises(RuntimeError), queue.take(timeout=60) as third:
            seen.append(third.value)
            raise RuntimeError
        queue.take().done()
        return seen

    def later() -> None:
        queue.write("c")

    mapped = ipc.map(1, work, processes=False)
    later()
    assert mapped.join(timeout=60) == [["a", 0, "a", 1, True, "c"]]
    assert queue.read() == "bb"
    queue.drain(timeout=60)


@pytest.mark.timeout(120)
def test_no_item_is_lost_and_none_is_answered_twice_while_workers_are_killed() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    count = 2000
    queue, _ = ipc.workqueue()
    pids = ipc.channel()
    queue.write(*range(count))
    crews = [ipc.map(1, announce_and_square, pids, queue) for _ in range(3)]
    answers: dict[int, int] = {}
    killed = 0
    while len(answers) < count:
        try:
            number, squared = queue.read(timeout=0.05)
        except sl.Timeout:
            pass
        else:
            assert number not in answers, f"{number} was answered twice"
            answers[number] = squared
        if killed < 8 and len(answers) > (killed + 1) * count / 12:
            status, pid = pids.read(True)
            if pid is not NOTHING:
                time.sleep(chance.random() * 0.01)
                os.kill(pid, signal.SIGKILL)
                killed += 1
                crews.append(ipc.map(1, announce_and_square, pids, queue))
    assert answers == {number: number * number for number in range(count)}
    assert killed >= 5
    queue.drain(timeout=60)
    assert queue.read(True) is NOTHING  # every question is finished, so whatever was answered twice would be here
    queue.close()
    lost = 0
    for crew in crews:
        try:
            crew.join(timeout=30)
        except sl.PeerLost:
            lost += 1
    assert lost == killed


@EITHER
def test_two_barriers_and_a_locked_fill(processes: bool) -> None:
    mutex, table = ipc.mutex(), ipc.sharedtable({"array": np.zeros(10_000)})
    workers = ipc.map(3, fill, mutex, table, 10_000, processes=processes)
    mutex.barrier(4, timeout=60)
    mutex.barrier(4, timeout=60)
    workers.join(timeout=60)
    array = table["array"]
    assert (array == array[0]).all() and array[0] in (1, 2, 3)


@EITHER
def test_nobody_passes_a_barrier_early(processes: bool) -> None:
    """T6."""
    mutex, log = ipc.mutex(), ipc.channel()
    ipc.map(4, pass_barriers, mutex, log, 50, 4, processes=processes).join(timeout=60)
    log.close()
    seen = list(log)
    assert all(sorted(seen[i * 4 : i * 4 + 4]) == [i] * 4 for i in range(50)), seen


def test_a_mutex_survives_its_holder_and_says_so() -> None:
    mutex = ipc.mutex()
    with pytest.raises(sl.PeerLost):
        ipc.map(1, die_with_lock, mutex).join(timeout=60)
    began = time.monotonic()
    assert mutex.lock(timeout=60) is True
    assert time.monotonic() - began < 2
    mutex.unlock()
    assert mutex.lock() is False
    mutex.unlock()
    with pytest.raises(sl.SynclineError):
        mutex.unlock()


def test_a_mutex_that_another_thread_holds() -> None:
    mutex = ipc.mutex()
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with mutex:
            held.set()
            done.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(20)
    with pytest.raises(sl.Timeout):
        mutex.lock(timeout=0.05)
    interrupt_once_asleep()
    with pytest.raises(KeyboardInterrupt):
        mutex.lock()
    done.set()
    assert mutex.lock(timeout=60) is False
    mutex.unlock()
    thread.join()


def test_a_table_is_a_mapping() -> None:
    table = ipc.sharedtable({"two": 2, "three": 3, 4: "four"})
    assert len(table) == 3
    assert table["two"] == 2 and table[4] == "four"
    assert "two" in table and "five" not in table
    assert table.get("five") is None and table.get("five", 5) == 5
    with pytest.raises(KeyError):
        table["five"]
    with pytest.raises(sl.UnknownKey):
        del table["five"]
    table["five"] = [5, {"five": (5,)}]
    assert table["five"] == [5, {"five": (5,)}]
    table["five"] = None
    assert table["five"] is None and "five" in table and len(table) == 4
    del table["five"]
    assert sorted(map(str, table)) == ["4", "three", "two"]
    assert dict(table.items()) == dict(table.pairs()) == table.copy() == {"two": 2, "three": 3, 4: "four"}
    assert sorted(map(str, table.values())) == ["2", "3", "four"]
    assert table.pop("two") == 2 and table.pop("two", None) is None
    with pytest.raises(KeyError):
        table.pop("two")
    table.update([("a", 1)])
    assert table["a"] == 1
    table[(1, "x")] = "a tuple"
    assert table[(1, "x")] == "a tuple"
    with pytest.raises(TypeError):
        table[[]] = 1
    with pytest.raises(sl.ConfigurationError):
        table[None] = 1
    with pytest.raises(TypeError, match="expected a mapping"):
        ipc.sharedtable(3)  # type: ignore[arg-type]


def test_move_empties_the_source_and_size_grows() -> None:
    source = {i: i for i in (2, 3, 4)}
    table = ipc.sharedtable(source, True)
    assert source == {} and len(table) == 3
    before = ipc.sharedtable_size(table)
    table["large"] = np.zeros(1 << 17)
    assert ipc.sharedtable_size(table) - before >= 1024
    kept = {1: 1}
    assert len(ipc.sharedtable(kept)) == 1 and kept == {1: 1}
    again = ipc.sharedtable(table, move=True)
    assert len(table) == 0 and again.pop(3) == 3 and again["large"].shape == (1 << 17,)
    with pytest.raises(TypeError, match="cannot be moved"):
        ipc.sharedtable(types.MappingProxyType({1: 1}), True)
    again.clear()
    assert again.pairs() == [] and ipc.sharedtable_size(again) < before


@EITHER
def test_a_hundred_writers_of_one_table(processes: bool) -> None:
    table = ipc.sharedtable()
    ipc.map(100, put, table, processes=8 if processes else False).join(timeout=60)
    assert table.copy() == {i: i for i in range(1, 101)}


@EITHER
def test_locked_increments(processes: bool) -> None:
    mutex, table = ipc.mutex(), ipc.sharedtable({i: 0 for i in range(100)})
    ipc.map(10, count_up, mutex, table, 100, processes=processes).join(timeout=60)
    assert table.copy() == {i: 10 for i in range(100)}


def test_nested_tables_are_shared_and_nested_dicts_are_copies() -> None:
    outer = ipc.sharedtable({"inner": ipc.sharedtable({"x": 1}), "plain": {"x": 1}})
    inner = outer["inner"]
    inner["x"] = 2
    assert outer["inner"]["x"] == 2
    outer["plain"]["x"] = 2
    assert outer["plain"]["x"] == 1


@EITHER
def test_a_table_in_a_table_between_processes(processes: bool) -> None:
    inner = ipc.sharedtable({"x": 1, "plain": ipc.sharedtable({1: "one"}), "moved": ipc.sharedtable({"a": 1, "b": [2]})})
    outer = ipc.sharedtable({"inner": inner})
    assert ipc.map(1, change_nested, outer, processes=processes).join(timeout=60) == [(2, [(1, "one")], {"a": 1, "b": [2]})]
    assert inner["x"] == 2 and len(inner["moved"]) == 0 and len(inner) == 4
    assert outer["moved"].copy() == {"a": 1, "b": [2]}  # made there, and its maker is gone
    assert (inner["from"]["process"] == os.getpid()) is not processes


def test_the_last_question_of_a_closed_queue_comes_back_from_a_dead_worker() -> None:
    queue, _ = ipc.workqueue()
    told, ready = ipc.channel(), ipc.channel()
    queue.write("last")
    holder = ipc.map(1, hold_and_wait, queue, told)
    pid, value = told.read(timeout=60)[1]
    assert value == "last"
    queue.close()
    other = ipc.map(1, answer_the_rest, queue, ready)
    ready.read(timeout=60)
    with pytest.raises(sl.Timeout):
        other.join(timeout=0.3)  # closed and empty, and not over: somebody still works on it
    os.kill(pid, signal.SIGKILL)
    assert other.join(timeout=60) == [["last"]]
    assert queue.read(timeout=60) == "last"
    with pytest.raises(sl.PeerLost):
        holder.join(timeout=60)


@EITHER
def test_large_arrays_of_tables_and_marshalled_values_are_read_where_they_lie(processes: bool) -> None:
    array = np.arange(50_000.0)
    table = ipc.sharedtable({0: array})
    for value in (table, ipc.marshal(array)):
        assert ipc.map(2, address_of, value, processes=processes).join(timeout=60) == [(True, array.sum())] * 2
    kept = table[0]
    assert not kept.flags.writeable
    table[0] = np.zeros(50_000)
    assert np.array_equal(kept, array) and not table[0].any()


def test_a_marshalled_value_may_be_of_any_size() -> None:
    before = ipc.family_stats()
    value = ipc.marshal(np.ones(34_000_000))  # 272 MB
    assert value.read().sum() == 34_000_000
    assert ipc.family_stats()["blocks"] == before["blocks"] + 1
    del value
    after = ipc.family_stats()
    assert (after["blocks"], after["objects"]) == (before["blocks"], before["objects"])
    assert after["memory"] - before["memory"] < 130 << 20  # small blocks are kept for the next one, large ones are not


@EITHER
def test_marshalled_once_read_many_times(processes: bool) -> None:
    """T12: read many times, an array has many owners."""
    value = ipc.marshal({"weights": np.ones(5000), "f": top_level, "t": (1, 2)})
    first, second = value.read(), value.read()
    assert np.array_equal(first["weights"], second["weights"]) and first["t"] == (1, 2)
    assert ipc.map(3, read_marshalled, value, 20, processes=processes).join(timeout=60) == [100_000.0] * 3
    assert first["weights"].sum() == 5000
    with pytest.raises(ValueError, match="nothing to marshal"):
        ipc.marshal(None)
    with pytest.raises(sl.ConfigurationError):
        ipc.marshal(closed_over(2))
    assert ipc.marshal(closed_over(2), True).read()(3) == 6
    value.close()
    value.close()
    with pytest.raises(sl.Closed):
        value.read()
