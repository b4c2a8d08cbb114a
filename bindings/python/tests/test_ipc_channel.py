"""Channels between threads and between processes."""

from __future__ import annotations

import collections
import multiprocessing
import os
import pickle
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Stage, interrupt_once_asleep, once_asleep

import syncline as sl
from syncline import ipc
from syncline.ipc import NOTHING

EITHER = pytest.mark.parametrize("processes", [True, False], ids=["processes", "threads"])
METHOD = pytest.mark.parametrize("method", ["forkserver", "spawn"])
OPEN, CLOSED, DRAINED = ipc.channel.OPEN, ipc.channel.CLOSED, ipc.channel.DRAINED


class Point:
    """Something that only pickle knows how to carry."""

    def __init__(self, x: int, y: int) -> None:
        self.x, self.y = x, y

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and (self.x, self.y) == (other.x, other.y)

    def __hash__(self) -> int:
        return hash((self.x, self.y))


def top_level(x: int) -> int:
    return x + 1


def read_until_drained(channel: ipc.Channel, id: int) -> list[tuple[int, Any]]:
    seen: list[tuple[int, Any]] = []
    while True:
        status, item = channel.read()
        if status == DRAINED:
            return seen
        seen.append((status, item))


def generate(channel: ipc.Channel, count: int, id: int) -> None:
    for value in range(1, count + 1):
        assert channel.write(value) == OPEN


def relay(source: ipc.Channel, target: ipc.Channel, id: int) -> int:
    count = 0
    for item in source:
        target.write(item)
        count += 1
    return count


def answer(questions: ipc.Channel, answers: ipc.Channel, id: int) -> None:
    for item in questions:
        answers.write("pong" if item == "ping" else item)


def answer_on(inbox: ipc.Channel, id: int) -> None:
    outbox = inbox.read()[1]
    outbox.write({"from": id, "back": inbox})


def bounce(source: ipc.Channel, target: ipc.Channel) -> None:
    """For processes that somebody else starts."""
    relay(source, target, 0)
    target.close()


def die_after_reading(channel: ipc.Channel, id: int) -> None:
    channel.read()
    os.kill(os.getpid(), signal.SIGKILL)


def test_statuses_are_torch_ipcs() -> None:
    assert (OPEN, CLOSED, DRAINED) == (0, 1, 2)


def test_items_come_in_order_and_none_is_an_item() -> None:
    """T18: nothing and None are told apart."""
    channel = ipc.channel()
    assert channel.write(10, None) == OPEN
    assert channel.num_items() == 2
    assert channel.read() == (OPEN, 10)
    assert channel.read() == (OPEN, None)
    assert channel.read(True) == (OPEN, NOTHING)
    assert channel.read(nonblocking=True)[1] is NOTHING
    assert channel.write(*range(12)) == OPEN
    assert [channel.read()[1] for _ in range(12)] == list(range(12))


def test_a_closed_channel_gives_out_what_is_left() -> None:
    channel = ipc.channel()
    assert not channel.closed() and not channel.drained()
    channel.write(1, 2)
    channel.close()
    channel.close()
    assert channel.closed() and not channel.drained()
    assert channel.write(3) == CLOSED
    assert channel.read() == (CLOSED, 1)
    assert channel.read() == (CLOSED, 2)
    assert channel.drained()
    assert channel.read() == (DRAINED, None)
    assert channel.read(True) == (DRAINED, None)
    assert channel.write(4) == DRAINED
    empty = ipc.channel()
    empty.close()
    assert empty.drained()


@EITHER
def test_ten_blocked_readers_are_woken_by_close(processes: bool) -> None:
    channel = ipc.channel()
    readers = ipc.map(10, read_until_drained, channel, processes=processes)
    with pytest.raises(sl.Timeout):
        readers.join(timeout=0.3)
    channel.close()
    assert readers.join(timeout=60) == [[]] * 10


@EITHER
def test_one_write_of_many_items_wakes_as_many_readers(processes: bool) -> None:
    """T5."""
    channel = ipc.channel()
    done = ipc.channel()
    readers = ipc.map(4, relay, channel, done, processes=processes)
    for _ in range(20):
        channel.write(1, 2, 3, 4)
        assert sorted(done.read(timeout=60)[1] for _ in range(4)) == [1, 2, 3, 4]
    channel.close()
    assert sum(readers.join(timeout=60)) == 80


@EITHER
def test_ten_generators_through_five_workers(processes: bool) -> None:
    source, target = ipc.channel(), ipc.channel()
    workers = ipc.map(5, relay, source, target, processes=processes)
    generators = ipc.map(10, generate, source, 100, processes=processes)
    generators.join(timeout=60)
    source.close()
    assert sum(workers.join(timeout=60)) == 1000
    target.close()
    assert collections.Counter(target) == {value: 10 for value in range(1, 101)}


@EITHER
def test_ping_pong(processes: bool) -> None:
    questions, answers = ipc.channel(), ipc.channel()
    worker = ipc.map(1, answer, questions, answers, processes=processes)
    for _ in range(10):
        questions.write("ping")
        assert answers.read(timeout=60) == (OPEN, "pong")
    questions.close()
    worker.join(timeout=60)


ANYTHING: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    2**62,
    2**200,
    42.13,
    float("inf"),
    "text",
    "\udc80 half a pair",
    b"bytes",
    b"x" * 5000,
    "y" * 5000,
    [1, [2.5, "three", None], {"k": [True]}],
    {"a": 1, 2: "b", 3.5: None, b"c": {}},
    (1, (2, [3])),
    {1, 2, 3},
    Point(3, 4),
    [Point(1, 2), (3,)],
    top_level,
    1 + 2j,
    slice(1, 2),
    range(5),
]


@EITHER
def test_anything_picklable_arrives_as_it_was(processes: bool) -> None:
    questions, answers = ipc.channel(), ipc.channel()
    worker = ipc.map(1, relay, questions, answers, processes=processes)
    for item in ANYTHING:
        questions.write(item)
        got = answers.read(timeout=60)[1]
        assert got == item and type(got) is type(item), item
    questions.close()
    assert worker.join(timeout=60) == [len(ANYTHING)]


ARRAYS = [
    np.arange(10).astype(dtype)
    for dtype in ("f4", "f8", "f2", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "c16", "?", ">f4")
] + [
    np.float32(1.5) * np.ones((3, 4, 5), np.float32),
    np.zeros((0, 3)),
    np.array(7.0),
    np.arange(24).reshape(4, 6)[::2, 1:5],
    np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    np.arange(100_000, dtype=np.float64),
    np.array([("a", 1)], dtype=[("name", "U4"), ("n", "i4")]),
]


@EITHER
def test_arrays_of_any_kind_and_layout(processes: bool) -> None:
    questions, answers = ipc.channel(), ipc.channel()
    worker = ipc.map(1, relay, questions, answers, processes=processes)
    for array in ARRAYS:
        for item in (array, {"in": [array, "a dict"]}, (array, array)):
            questions.write(item)
            got = answers.read(timeout=60)[1]
            for one in [got] if item is array else got["in"][:1] if isinstance(got, dict) else got:
                assert one.dtype == array.dtype and one.shape == array.shape
                assert np.array_equal(one, array)
    questions.close()
    worker.join(timeout=60)


def test_a_received_array_is_the_readers_own_and_lies_in_shared_memory() -> None:
    """T17: what was sent is not shared with its writer."""
    channel = ipc.channel()
    sent = np.arange(1 << 16, dtype=np.float32)
    channel.write(sent)
    got = channel.read()[1]
    assert got.base is not None, "a view of memory that something else owns"
    got += 1
    assert np.array_equal(got, sent + 1) and sent[0] == 0
    channel.write(sent)
    again = channel.read()[1]
    del got
    assert np.array_equal(again, sent)


def test_threads_are_given_frozen_arrays_where_they_lie_and_copies_of_others() -> None:
    """T17: nothing that its writer can still change changes under a reader."""
    frozen = np.arange(5000.0)
    frozen.flags.writeable = False
    of_bytes = np.frombuffer(b"x" * 20_000, np.uint8)
    changing = np.arange(5000.0)
    view = changing.view()
    view.flags.writeable = False  # as pandas hands out what it goes on changing
    given = [frozen, frozen[1000:3000].reshape(2, -1), of_bytes, changing, view]
    channel = ipc.channel()
    for lies_here in (True, False):
        channel.write(*given, {"inside": [frozen]})
        read = [channel.read()[1] for _ in given]
        for array, arrived in zip(given, read, strict=True):
            assert (array == arrived).all() and array.shape == arrived.shape
            by_reference = lies_here and array is not changing and array is not view
            assert np.shares_memory(array, arrived) is by_reference
            assert arrived.flags.writeable is not by_reference
        assert np.shares_memory(channel.read()[1]["inside"][0], frozen) is lies_here
        changing += 1
        assert (read[3] + 1 == changing).all() and (read[4] + 1 == changing).all()
        pickle.dumps(channel)  # other processes may reach it from now on


def test_a_list_that_contains_itself_arrives_as_such() -> None:
    """T17: cycles are found, not followed for ever."""
    channel = ipc.channel()
    circle: list[Any] = [1]
    circle.append(circle)
    channel.write(circle)
    got = channel.read()[1]
    assert got[0] == 1 and got[1] is got


def test_what_cannot_travel_is_refused_and_nothing_is_written() -> None:
    channel = ipc.channel()
    with pytest.raises(sl.ConfigurationError, match=r"(?s)lock.*picklable"):
        channel.write(1, threading.Lock())
    assert channel.num_items() == 0


@EITHER
def test_handles_travel_through_channels(processes: bool) -> None:
    inbox, outbox = ipc.channel(), ipc.channel()
    worker = ipc.map(1, answer_on, inbox, processes=processes)
    inbox.write(outbox)
    got = outbox.read(timeout=60)[1]
    assert got["from"] == 1 and got["back"] == inbox
    worker.join(timeout=60)
    inner = ipc.channel()
    inner.write("inside")
    outbox.write([(inner,)])
    del inner
    assert outbox.read()[1][0][0].read() == (OPEN, "inside")


@METHOD
def test_a_channel_given_to_a_process_of_multiprocessing(method: str) -> None:
    there, back = ipc.channel(), ipc.channel()
    context: Any = multiprocessing.get_context(method)
    process = context.Process(target=bounce, args=(there, back))
    process.start()
    there.write(1, "two", np.arange(3000))
    there.close()
    got = list(back)
    process.join(20)
    assert process.exitcode == 0
    assert got[:2] == [1, "two"] and np.array_equal(got[2], np.arange(3000))


def test_a_forked_child_is_told_that_it_has_no_part(stage: Stage) -> None:
    """T16."""
    ended = stage.run(
        """
        import os
        import syncline as sl
        from syncline import ipc

        channel = ipc.channel()
        channel.write(1)
        child = os.fork()
        if child == 0:
            for call in [channel.read, lambda: channel.write(2), channel.close]:
                try:
                    call()
                except sl.ForkError as error:
                    print("ForkError", "give it the handle" in str(error), flush=True)
            own = ipc.channel()
            own.write("its own")
            print(own.read(), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print(channel.read())
        """
    )
    assert (ended.status, ended.out) == (0, "ForkError True\n" * 3 + "(0, 'its own')\n(0, 1)\n"), ended


def test_a_full_channel_holds_its_writers_back() -> None:
    """T18: back-pressure."""
    channel = ipc.channel(capacity=2)
    assert channel.capacity == 2
    channel.write(1, 2)
    with pytest.raises(sl.Timeout, match="room"):
        channel.write(3, timeout=0.05)
    assert channel.num_items() == 2
    reader = once_asleep(channel.read)
    assert channel.write(3, timeout=60) == OPEN
    reader.join()
    assert [channel.read()[1] for _ in range(2)] == [2, 3]
    for wrong in (0, -1):
        with pytest.raises(ValueError, match=f"a capacity of {wrong} lets nothing through"):
            ipc.channel(capacity=wrong)


def test_waits_end_by_timeout_and_by_ctrl_c() -> None:
    """T18: time-outs."""
    channel = ipc.channel()
    with pytest.raises(sl.Timeout, match="item in the channel"):
        channel.read(timeout=0.02)
    with pytest.raises(TimeoutError):
        channel.read(False, 0.02)
    for wait in (channel.read, lambda: ipc.select([channel]), lambda: next(iter(channel))):
        interrupt_once_asleep()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            wait()
        assert time.monotonic() - began < 5
    channel.write("still works")
    assert channel.read() == (OPEN, "still works")


def test_select_takes_from_whichever_has_something() -> None:
    """T18: select."""
    first, second = ipc.channel(), ipc.channel()
    second.write("b")
    assert ipc.select([first, second]) == (second, OPEN, "b")
    with pytest.raises(sl.Timeout):
        ipc.select([first, second], timeout=0.02)
    once_asleep(first.write, "a")
    assert ipc.select([first, second], timeout=60) == (first, OPEN, "a")
    first.write(None)
    first.close()
    assert ipc.select([first, second]) == (first, CLOSED, None)
    second.close()
    assert ipc.select([first, second]) == (None, DRAINED, None)


def test_channels_can_be_iterated_and_close_at_the_end_of_a_block() -> None:
    with ipc.channel() as channel:
        channel.write(1, 2, 3)
    assert list(channel) == [1, 2, 3]
    channel = ipc.channel()
    channel.write(*range(10))
    channel.close()
    assert channel.read_many(4) == [0, 1, 2, 3]
    assert channel.read_many() == [4, 5, 6, 7, 8, 9]
    assert channel.read_many() == []


def test_a_reader_that_is_killed_harms_nobody() -> None:
    channel = ipc.channel()
    channel.write(*range(10))
    with pytest.raises(sl.PeerLost, match="2 of 2"):
        ipc.map(2, die_after_reading, channel).join(timeout=60)
    channel.close()
    assert len(list(channel)) == 8


def test_a_channel_that_nobody_holds_is_freed() -> None:
    def used() -> int:
        fields = dict(line.split(":") for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
        return int(fields["Pss"].split()[0])

    for _ in range(3):
        ipc.channel().write(np.zeros(1 << 20))
    before = used()
    for _ in range(50):
        ipc.channel().write(np.zeros(1 << 20))  # 8 MB each
    assert used() - before < 100_000


PIPE = """
    import resource
    import numpy as np
    from syncline import ipc

    COUNT, SIZE, CAPACITY = 10_000, 1 << 20, 8

    def make(channel, id):
        array = np.empty(SIZE, np.uint8)
        before = peak()
        for number in range(COUNT):
            array[:-8] = number % 251
            array[-8:] = np.frombuffer(number.to_bytes(8, "little"), np.uint8)
            channel.write(array)
        channel.close()
        return peak() - before

    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

    if __name__ == "__main__":
        channel = ipc.channel(capacity=CAPACITY)
        producer = ipc.map(1, make, channel)
        before, family = peak(), 0
        for number, array in enumerate(channel):
            assert array.nbytes == SIZE and (array[:-8] == number % 251).all(), number
            assert int.from_bytes(array[-8:].tobytes(), "little") == number
            if number % 100 == 0:
                family = max(family, ipc.family_stats()["memory"] >> 20)
        assert number == COUNT - 1
        print("grown", peak() - before, producer.join(timeout=60)[0], family)
"""


@pytest.mark.timeout(300)
def test_ten_thousand_arrays_of_a_megabyte_with_bounded_memory(stage: Stage) -> None:
    """In processes of its own: what others have used before would hide what grows."""
    ended = stage.start(PIPE).end(280)
    assert ended.status == 0, ended
    _, consumer, producer, family = ended.out.split()
    # Eight in the channel, one in each hand, and what the allocators of two interpreters do.
    assert int(consumer) < 48 and int(producer) < 48 and int(family) < 32, ended


def read_all_statuses(channel: ipc.Channel, id: int) -> list[Any]:
    return [channel.write("late"), channel.read(), channel.read(), channel.read(), channel.write("late"), channel.read(True)]


def select_all(channels: list[ipc.Channel], id: int) -> list[tuple[int | None, int, Any]]:
    seen: list[tuple[int | None, int, Any]] = []
    while True:
        channel, status, item = ipc.select(channels, timeout=60)
        seen.append((None if channel is None else channels.index(channel), status, item))
        if channel is None:
            return seen


@EITHER
def test_statuses_are_seen_by_other_processes(processes: bool) -> None:
    channel = ipc.channel()
    channel.write(1, [2])
    channel.close()
    seen = ipc.map(1, read_all_statuses, channel, processes=processes).join(timeout=60)
    assert seen == [[CLOSED, (CLOSED, 1), (CLOSED, [2]), (DRAINED, None), DRAINED, (DRAINED, None)]]


@EITHER
def test_select_between_processes(processes: bool) -> None:
    first, second = ipc.channel(), ipc.channel(capacity=1)
    reader = ipc.map(1, select_all, [first, second], processes=processes)
    for number in range(5):
        second.write(number)  # waits until the one before was read
    first.write(np.arange(3.0), None)
    second.close()
    first.close()
    (seen,) = reader.join(timeout=60)
    assert seen.pop() == (None, DRAINED, None)
    assert [item for index, _, item in seen if index == 1] == [0, 1, 2, 3, 4]
    array, nothing = [item for index, _, item in seen if index == 0]
    assert np.array_equal(array, np.arange(3.0)) and nothing is None
    assert {status for _, status, _ in seen} <= {OPEN, CLOSED}


def test_pickling_outside_of_a_channel_carries_an_invitation() -> None:
    channel = ipc.channel()
    channel.write(5)
    assert pickle.loads(pickle.dumps(channel)).read() == (OPEN, 5)
    assert pickle.loads(pickle.dumps(channel)) == channel
    assert len({channel, pickle.loads(pickle.dumps(channel))}) == 1
    assert pickle.loads(pickle.dumps(NOTHING)) is NOTHING
