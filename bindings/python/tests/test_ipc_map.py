"""One function on many workers: processes and threads."""

from __future__ import annotations

import functools
import gc
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Stage, has_ended, interrupt_once_asleep

import syncline as sl
from syncline import ipc

EITHER = pytest.mark.parametrize("processes", [True, False], ids=["processes", "threads"])
METHOD = pytest.mark.parametrize("method", ["forkserver", "spawn"])

seen_here = 56


def number(*args: Any) -> int:
    return int(args[-1])


def echo(*args: Any) -> tuple[Any, ...]:
    return args


def what_is_global(_: int) -> int:
    return seen_here


def tell(pids: ipc.Channel, _: int) -> None:
    pids.write(os.getpid())


def process_of(_: int) -> int:
    return os.getpid()


def fail_if_first(gate: str, id: int) -> int:
    if id == 1:
        raise ValueError("the first one fails")
    while not os.path.exists(gate):
        time.sleep(0.005)
    return 42


class NeedsMore:
    """Says of itself that one argument is enough to make it anew."""

    def __init__(self, one: int, two: int) -> None:
        self.sum = one + two

    def __reduce__(self) -> Any:
        return NeedsMore, (self.sum,)


def unreadable_if_second(id: int) -> object:
    return [NeedsMore(1, 2)] if id == 2 else id


def generate(id: int) -> Any:
    yield id


def fail_often(id: int) -> int:
    if id % 3 == 1:
        raise ValueError(f"{id} is wrong")
    if id % 3 == 2:
        raise KeyError(id)
    return id


def die(id: int) -> int:
    if id == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return id


def leave(id: int) -> int:
    if id == 2:
        os._exit(3)
    return id


def array_of(shape: tuple[int, ...], id: int) -> Any:
    return np.full(shape, id, np.float32)


def total(array: Any, id: int) -> float:
    return float(array.sum()) + id


def unpicklable(_: int) -> Any:
    return threading.Lock()


def sleep_long(id: int) -> int:
    time.sleep(60)
    return id


def set_global() -> None:
    global seen_here
    seen_here = 57


def fail_to_begin() -> None:
    raise RuntimeError("no state")


def quit_quietly(id: int) -> None:
    raise SystemExit(3)


def nested(id: int) -> list[int]:
    return ipc.map(2, number).join()


class Broken(Exception):
    """It cannot be rebuilt from its arguments."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def raise_broken(_: int) -> None:
    raise Broken(1, 2)


@EITHER
def test_results_come_in_order_and_the_number_is_the_last_argument(processes: bool) -> None:
    assert ipc.map(4, number, processes=processes).join() == [1, 2, 3, 4]
    sent = ("hi", 42, {"k": 2}, None, (1, [2.5, "three"]))
    assert ipc.map(3, echo, *sent, processes=processes).join() == [(*sent, id) for id in (1, 2, 3)]
    assert ipc.map(0, number, processes=processes).join() == []


@METHOD
def test_both_ways_to_start_processes(method: str) -> None:
    mapped = ipc.map(2, process_of, start_method=method)
    pids = mapped.join()
    assert len({*pids, os.getpid()}) == 3
    assert mapped.join() == []
    assert [stats["pid"] for stats in mapped.statistics()] == pids
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids), "a worker is left behind"


def test_a_thousand_threads_and_a_thousand_calls_on_four_processes() -> None:
    assert sum(ipc.map(1000, echo, processes=False).join(), ()) == tuple(range(1, 1001))
    mapped = ipc.map(1000, echo, processes=4)
    assert sum(mapped.join(), ()) == tuple(range(1, 1001))
    assert sum(stats["tasks"] for stats in mapped.statistics()) == 1000


def test_forty_processes() -> None:
    assert sum(ipc.map(40, number).join()) == 820


def test_what_the_parent_changed_is_invisible_to_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("test_ipc_map.seen_here", 3)
    assert ipc.map(2, what_is_global).join() == [56, 56]


@EITHER
def test_check_errors_raises_while_the_others_still_run(processes: bool, tmp_path: Path) -> None:
    gate = tmp_path / "open"
    mapped = ipc.map(2, fail_if_first, str(gate), processes=processes)
    with pytest.raises(ValueError, match="the first one fails") as caught:
        while True:
            mapped.check_errors()
            time.sleep(0.005)
    assert isinstance(caught.value, ipc.MapError)
    assert [type(error) for error in caught.value.errors] == [ValueError]
    mapped.check_errors()
    with pytest.raises(sl.Timeout, match=r"number 2\n"):  # and not the one that has failed
        mapped.join(timeout=0.05)
    gate.touch()
    assert mapped.join() == [42]


@EITHER
def test_join_reports_every_error(processes: bool) -> None:
    """T13: not only the last one."""
    with pytest.raises(ipc.MapError, match="6 of 8 failed") as caught:
        ipc.map(8, fail_often, processes=processes).join()
    assert [type(error) for error in caught.value.errors] == [ValueError, KeyError] * 3
    assert "fail_often(7): ValueError: 7 is wrong" in str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, KeyError)
    assert isinstance(caught.value, sl.SynclineError)


def test_an_error_shows_the_line_that_raised_it_and_one_that_cannot_travel_its_text() -> None:
    with pytest.raises(ipc.MapError) as caught:
        ipc.map(1, fail_often).join()
    notes = "\n".join(caught.value.__notes__)
    assert "worker 1 (pid" in notes
    assert 'raise ValueError(f"{id} is wrong")' in notes
    with pytest.raises(ipc.MapError, match="1 and 2"):
        ipc.map(1, raise_broken).join()
    with pytest.raises(ipc.MapError, match="TypeError: cannot pickle"):
        ipc.map(1, unpicklable).join()
    with pytest.raises(ipc.MapError, match="SystemExit: 3"):
        ipc.map(1, quit_quietly).join()


@METHOD
def test_a_worker_that_is_killed_is_named_with_pid_signal_and_number(method: str) -> None:
    began = time.monotonic()
    with pytest.raises(sl.PeerLost, match=r"die\(2\)") as caught:
        ipc.map(3, die, start_method=method).join()
    assert time.monotonic() - began < 60  # most of it is two interpreters that start
    assert isinstance(caught.value, ipc.MapError)
    (lost,) = caught.value.errors
    assert isinstance(lost, sl.PeerLost)
    assert lost.pid is not None and caught.value.pid == lost.pid
    assert f"pid {lost.pid}" in str(lost) and "SIGKILL" in str(lost) and "die(2)" in str(lost)
    with pytest.raises(sl.PeerLost, match="exit code 3"):
        ipc.map(2, leave, start_method=method).join()


def test_only_the_number_in_the_hand_of_a_dead_worker_is_lost() -> None:
    mapped = ipc.map(200, die, processes=2)
    with pytest.raises(sl.PeerLost, match="1 of 200 failed"):
        mapped.join()
    stats = mapped.statistics()
    assert sum(each["tasks"] for each in stats) == 199
    assert sum(each["failed"] for each in stats) == 1
    assert len(stats) >= 2


def test_arrays_go_and_come_through_shared_memory() -> None:
    array = np.arange(1 << 18, dtype=np.float64)
    assert ipc.map(2, total, array).join() == [array.sum() + 1, array.sum() + 2]
    for id, made in enumerate(ipc.map(2, array_of, (512, 512)).join(), 1):
        assert made.shape == (512, 512) and made.dtype == np.float32 and (made == id).all()


@EITHER
def test_init_runs_first_as_function_or_source(processes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("test_ipc_map.seen_here", 56)
    assert ipc.map_extended(2, set_global, what_is_global, processes=processes).join() == [57, 57]
    assert ipc.map_extended(2, "seen_here = 58", what_is_global, processes=processes).join() == [58, 58]
    assert ipc.map_extended(1, None, number, processes=processes).join() == [1]
    applied = functools.partial(what_is_global)
    assert ipc.map_extended(2, "seen_here = 59", applied, processes=processes).join() == [59, 59]
    with pytest.raises(RuntimeError, match="no state"):
        ipc.map_extended(2, fail_to_begin, number, processes=processes).join()


def test_what_cannot_be_mapped_is_refused() -> None:
    with pytest.raises(TypeError, match="map arg #2 expected a function"):
        ipc.map(2, 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="map arg #1"):
        ipc.map("2", number)  # type: ignore[arg-type]
    captured = 1
    with pytest.raises(sl.ConfigurationError, match="top level of a module"):
        ipc.map(2, lambda id: captured + id)
    assert ipc.map(2, lambda id: captured + id, processes=False).join() == [2, 3]
    with pytest.raises(sl.ConfigurationError, match="cannot travel"):
        ipc.map(2, number, threading.Lock())
    with pytest.raises(sl.ConfigurationError, match="none of"):
        ipc.map(2, number, start_method="teleport")


def test_fork_is_refused_while_other_threads_run() -> None:
    """T16."""
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        with pytest.raises(sl.ConfigurationError, match="other threads run"):
            ipc.map(2, number, start_method="fork")
    finally:
        stop.set()
        thread.join()


def test_fork_works_where_nothing_else_runs(stage: Stage) -> None:
    ended = stage.run(
        """
        from syncline import ipc

        def number(id):
            return id

        print(ipc.map(3, number, start_method="fork").join())
        """
    )
    assert (ended.status, ended.out, ended.err) == (0, "[1, 2, 3]\n", ""), ended


def test_a_map_inside_a_map() -> None:
    assert ipc.map(2, nested).join() == [[1, 2], [1, 2]]


def test_a_map_that_nobody_joined_ends_with_the_program(stage: Stage) -> None:
    """T13: it leaks nothing."""
    ended = stage.run(
        """
        import os, time
        from syncline import ipc

        def work(folder, id):
            open(f"{folder}/{os.getpid()}", "w").close()
            time.sleep(100)

        if __name__ == "__main__":
            import tempfile
            with tempfile.TemporaryDirectory() as folder:
                ipc.map(2, work, folder)
                while len(os.listdir(folder)) < 2:
                    time.sleep(0.01)
                print(*os.listdir(folder))
        """
    )
    assert ended.status == 0 and ended.seconds < 15, ended
    assert all(not Path(f"/proc/{pid}").exists() for pid in ended.out.split()), ended


def test_workers_end_when_their_program_is_killed(stage: Stage) -> None:
    program = stage.start(
        """
        import os, time
        from syncline import ipc

        def work(channel, id):
            channel.write(os.getpid())
            time.sleep(100)

        if __name__ == "__main__":
            channel = ipc.channel()
            mapped = ipc.map(2, work, channel)
            print("pids", channel.read()[1], channel.read()[1], flush=True)
            mapped.join()
        """
    )
    pids = program.wait_for_line("pids").split()[1:]
    program.signal(signal.SIGKILL)
    by = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < by, "a worker outlives its program"
        time.sleep(0.01)


def test_ctrl_c_ends_a_join_and_a_second_one_may_follow() -> None:
    mapped = ipc.map(2, sleep_long)
    interrupt_once_asleep()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        mapped.join()
    assert time.monotonic() - began < 5
    mapped.terminate()
    with pytest.raises(sl.PeerLost, match="2 of 2 failed"):
        mapped.join()


def test_an_unguarded_script_is_told_what_it_lacks(stage: Stage) -> None:
    ended = stage.run(
        """
        from syncline import ipc

        def number(id):
            return id

        print(ipc.map(2, number, start_method="spawn").join(timeout=20))
        """
    )
    assert ended.status != 0 and "__main__" in ended.err, ended


@pytest.mark.parametrize("shared", [False, True], ids=["one each", "pool"])
def test_a_result_that_cannot_be_read_is_an_error_of_its_number_and_nobody_waits_for_it(shared: bool) -> None:
    pool = ipc.pool(2) if shared else None
    started = pool.map(3, unreadable_if_second) if pool else ipc.map(3, unreadable_if_second)
    with pytest.raises(ipc.MapError, match=r"1 of 3 failed\n.*unreadable_if_second\(2\): TypeError: .*'two'") as raised:
        started.join(timeout=20)
    assert "what worker" in raised.value.errors[0].__notes__[0]
    if pool:
        assert pool.map(3, number).join(timeout=20) == [1, 2, 3]
        pool.close()


def test_the_number_of_workers_may_be_numpys() -> None:
    assert ipc.map(np.int64(2), number, processes=False).join() == [1, 2]


def test_a_result_that_cannot_travel_is_named_by_its_own_type() -> None:
    with pytest.raises(ipc.MapError, match="what the function returned, of type generator, cannot travel"):
        ipc.map(1, generate).join()



@pytest.mark.parametrize("how", ["-c", "-"])
def test_functions_of_a_session_travel_by_their_code(stage: Stage, how: str) -> None:
    code = """
import math
import numpy as np
from syncline import ipc

offset = 10

def helper(x, power=2):
    return math.pow(x, power) + offset

def factorial(n):
    return 1 if n < 2 else n * factorial(n - 1)

def work(array, id):
    return helper(id) + float(np.sum(array)), factorial(id), [helper(x) for x in range(2)]

print(ipc.map(2, work, np.ones(4)).join())
class Local: pass
try:
    ipc.map(1, work, Local())
except Exception as error:
    print(type(error).__name__, "session" in str(error))
"""
    import subprocess
    import sys

    from conftest import environment

    command = [sys.executable, how, *([code] if how == "-c" else [])]
    ended = subprocess.run(command, input=code, capture_output=True, text=True, env=environment(), timeout=60, check=False)
    assert ended.stdout == "[(15.0, 1, [10.0, 11.0]), (18.0, 2, [10.0, 11.0])]\nConfigurationError True\n", ended


def test_a_bar_shows_progress(capsys: pytest.CaptureFixture[str]) -> None:
    ipc.map(20, number, processes=2, progress=True).join()
    assert "number ████████████████████████ 20/20" in capsys.readouterr().err


def test_a_pool_serves_many_maps_with_the_same_processes() -> None:
    with ipc.pool(2) as pool:
        pids = set(pool.map(20, process_of).join())
        assert len(pids) <= 2
        first, second = pool.map(5, number), pool.map(5, echo, "x")
        assert second.join() == [("x", id) for id in range(1, 6)]
        assert first.join() == [1, 2, 3, 4, 5]
        with pytest.raises(ValueError, match="1 is wrong"):
            pool.map(1, fail_often).join()
        with pytest.raises(sl.PeerLost, match=r"die\(2\)"):
            pool.map(4, die).join()
        assert pool.map(4, number).join() == [1, 2, 3, 4]
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    with pytest.raises(sl.Closed):
        pool.map(1, number)


def test_a_pooled_map_goes_on_while_nobody_waits() -> None:
    mapped = ipc.map(300, number, processes=2)
    by = time.monotonic() + 20
    while sum(stats["tasks"] for stats in mapped.statistics()) < 200:
        assert time.monotonic() < by, mapped.statistics()
        time.sleep(0.01)
    assert mapped.join() == list(range(1, 301))


def test_the_next_map_uses_the_same_processes_unless_it_could_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = set(ipc.map(20, process_of, processes=2).join())
    mapped = ipc.map(20, process_of, processes=2)
    assert set(mapped.join()) <= first | {each["pid"] for each in mapped.statistics()}
    assert {each["pid"] for each in mapped.statistics()} >= first
    assert sum(each["tasks"] for each in mapped.statistics()) == 20
    # Another folder is seen, and so are other processes.
    monkeypatch.chdir(tmp_path)
    assert set(ipc.map(4, folder, processes=2).join()) == {str(tmp_path)}
    assert not first & set(ipc.map(20, process_of, processes=2).join())
    monkeypatch.setenv("SEEN_BY_WORKERS", "yes")
    assert first.isdisjoint(ipc.map(20, process_of, processes=2).join())
    # A map whose worker died leaves nothing behind for the next one.
    with pytest.raises(sl.PeerLost):
        ipc.map(4, die, processes=2).join()
    assert ipc.map(4, number, processes=2).join() == [1, 2, 3, 4]


def test_workers_that_rest_too_long_go_home_and_others_take_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    from syncline.ipc import _crew, _job

    made = _crew.ProcessCrew(2)
    resting = made.workers[0]
    resting.tasks.close()  # as a worker does that goes home
    job = _job.Job(6, number, ())
    made.submit(job)
    for _ in _crew.until(lambda: job.over, made, 20):
        pass
    assert [job.results[each] for each in range(1, 7)] == [1, 2, 3, 4, 5, 6]
    made.end()


def folder(_: int) -> str:
    return os.getcwd()


def test_a_map_that_nobody_joins_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncline.ipc._crew.IDLE", 0.05)
    pids = ipc.channel()
    mapped = ipc.map(6, tell, pids, processes=2)  # kept, and not joined
    assert all(has_ended(pid) for pid in {pids.read(timeout=20)[1] for _ in range(6)})
    assert mapped.join() == [None] * 6
    ipc.map(6, tell, pids, processes=2)
    assert all(has_ended(pid) for pid in {pids.read(timeout=20)[1] for _ in range(6)})


def test_a_pool_that_was_forgotten_ends_when_its_last_map_has() -> None:
    mapped = ipc.pool(2).map(6, process_of)
    gc.collect()
    assert all(has_ended(pid) for pid in mapped.join())
    before = threading.active_count()
    assert ipc.pool(2, processes=False).map(6, number).join() == [1, 2, 3, 4, 5, 6]
    by = time.monotonic() + 20
    while threading.active_count() > before:
        assert time.monotonic() < by, "threads are left"
        time.sleep(0.005)


def test_without_the_global_lock_workers_are_threads_unless_told_otherwise(stage: Stage) -> None:
    ended = stage.run(
        """
        import os, sys
        sys._is_gil_enabled = lambda: False
        from syncline import ipc

        def process_of(_):
            return os.getpid()

        if __name__ == "__main__":
            assert set(ipc.map(2, process_of).join()) == {os.getpid()}
            assert os.getpid() not in ipc.map(2, process_of, processes=True).join()
        """
    )
    assert ended.status == 0, ended


def test_installed_packages_are_imported_once_for_all_workers(stage: Stage, tmp_path: Path) -> None:
    """And modules of the program by each: a worker that starts after they were changed sees that."""
    (tmp_path / "own.py").write_text("value = 1\n")
    ended = stage.run(
        """
        import sys
        already = "numpy" in sys.modules, "own" in sys.modules
        import numpy, own
        from syncline import ipc

        def look(_):
            return already, own.value

        if __name__ == "__main__":
            assert ipc.map(2, look).join() == [((True, False), 1)] * 2
            with open(own.__file__, "w") as file:
                file.write("value = 22")
            assert ipc.map(2, look).join() == [((True, False), 22)] * 2
        """
    )
    assert ended.status == 0, ended
