"""Tasks behind the caller's back, on processes and on threads."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from typing import Any

import pytest
from conftest import has_ended

import syncline as sl
from syncline import ipc

EITHER = pytest.mark.parametrize("processes", [True, False], ids=["processes", "threads"])


def several() -> tuple[str, int, bool]:
    return "done!", 42, True


def after(seconds: float, result: Any) -> Any:
    time.sleep(seconds)
    return result


def nothing() -> None:
    return None


def fail() -> None:
    raise ValueError("it went wrong")


def square(i: int) -> int:
    return i * i


def fail_at_one_of_eight(i: int) -> int:
    if i % 8 == 1:
        raise ValueError(f"{i} is wrong")
    return i


def tell(pids: ipc.Channel) -> None:
    pids.write(os.getpid())


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@EITHER
def test_a_task_gives_all_its_results_once(processes: bool) -> None:
    """T14: the call is get_result, as documented."""
    task = ipc.BackgroundTask(several, processes=processes)
    assert task.get_result() == ("done!", 42, True)
    assert task.get_result() is None
    assert task.is_done()
    assert ipc.BackgroundTask(several, processes=processes).get_results() == ("done!", 42, True)


@EITHER
def test_a_task_can_be_polled(processes: bool) -> None:
    task = ipc.BackgroundTask(after, 1.3, "late", processes=processes)
    polls = 0
    while not task.is_done():
        polls += 1
        time.sleep(0.1)
    assert 9 < polls < 40  # 16 on a machine with nothing else to do
    assert task.get_result() == "late"


@EITHER
def test_no_result_is_none_and_an_error_raises(processes: bool) -> None:
    assert ipc.BackgroundTask(nothing, processes=processes).get_result() is None
    with pytest.raises(ValueError, match="it went wrong"):
        ipc.BackgroundTask(fail, processes=processes).get_result()
    with pytest.raises(sl.Timeout, match="task 1, after"):
        ipc.BackgroundTask(after, 30.0, 1, processes=processes).get_result(timeout=0.05)


@EITHER
def test_a_thousand_tasks_on_twenty_workers(processes: bool) -> None:
    with ipc.BackgroundTaskPool(20 if not processes else 4, processes=processes) as pool:
        assert [pool.add_task(square, i) for i in range(1, 1001)] == list(range(1, 1001))
        assert [pool.get_result(i) for i in range(1000, 0, -1)] == [i * i for i in range(1000, 0, -1)]
        assert pool.is_done() and not pool.has_task()
        assert pool.get_result() is None


@EITHER
def test_errors_come_in_their_place(processes: bool) -> None:
    with ipc.BackgroundTaskPool(4, processes=processes) as pool:
        for i in range(1, 43):
            pool.add_task(fail_at_one_of_eight, i)
        for i in range(1, 43):
            assert pool.has_task()
            if i % 8 == 1:
                with pytest.raises(ValueError, match=f"{i} is wrong"):
                    pool.get_result()
            else:
                assert pool.get_result() == i


@EITHER
def test_a_pool_that_closes_with_its_last_task(processes: bool) -> None:
    pool = ipc.BackgroundTaskPool(2, True, processes=processes)
    ids = [pool.add_task(square, i) for i in (1, 2, 3)]
    assert [pool.get_result(id) for id in ids] == [1, 4, 9]
    with pytest.raises(sl.Closed, match="last task"):
        pool.add_task(square, 4)
    with pytest.raises(sl.UnknownKey):
        pool.is_done(4)
    pool.close()


def test_a_worker_that_dies_is_an_error_of_its_task_and_the_others_go_on() -> None:
    with ipc.BackgroundTaskPool(2) as pool:
        ids = [pool.add_task(die), *(pool.add_task(square, i) for i in range(10))]
        with pytest.raises(sl.PeerLost, match="SIGKILL") as lost:
            pool.get_result(ids[0])
        assert lost.value.pid is not None
        assert [pool.get_result(id) for id in ids[1:]] == [i * i for i in range(10)]


def test_what_is_no_function_is_refused() -> None:
    with ipc.BackgroundTaskPool(1, processes=False) as pool, pytest.raises(TypeError, match="expected a function"):
        pool.add_task(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one"):
        ipc.BackgroundTaskPool(0)


def workers_here() -> int:
    return sum(thread.name.startswith("syncline worker") for thread in threading.enumerate())


def test_a_task_that_nobody_asks_about_leaves_no_process() -> None:
    pids = ipc.channel()
    task = ipc.BackgroundTask(tell, pids)
    assert has_ended(pids.read(timeout=20)[1])  # not only when somebody asks, or forgets it
    assert task.is_done()


def test_a_pool_that_was_forgotten_does_its_tasks_and_leaves_no_process() -> None:
    pids = ipc.channel()
    pool = ipc.BackgroundTaskPool(2)
    for _ in range(6):
        pool.add_task(tell, pids)
    del pool
    gc.collect()
    seen = {pids.read(timeout=20)[1] for _ in range(6)}
    assert all(has_ended(pid) for pid in seen)


def test_tasks_that_were_forgotten_leave_no_thread() -> None:
    gc.collect()
    before, told = workers_here(), ipc.channel()
    ipc.BackgroundTask(tell, told, processes=False)
    pool = ipc.BackgroundTaskPool(2, processes=False)
    for _ in range(4):
        pool.add_task(tell, told)
    del pool
    gc.collect()
    assert [told.read(timeout=20)[1] for _ in range(5)] == [os.getpid()] * 5
    by = time.monotonic() + 20
    while workers_here() > before:
        assert time.monotonic() < by, "threads are left"
        time.sleep(0.005)
