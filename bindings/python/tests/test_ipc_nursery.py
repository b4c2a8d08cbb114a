"""The process that workers are forked from, and what workers find."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from multiprocessing import Manager, current_process, parent_process
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Stage, environment, has_ended

import syncline as sl
from syncline import ipc
from syncline.ipc import _children


def number(id: int) -> int:
    return id


def born_of(_: int) -> int:
    return os.getppid()


def born_of_inside(_: int) -> list[int]:
    return [os.getppid(), *ipc.map(2, born_of).join()]


def variable(_: int) -> str | None:
    return os.environ.get("SEEN_BY_WORKERS")


def tell_and_wait(told: ipc.Channel, gate: ipc.Channel, _: int) -> None:
    told.write(os.getpid())
    gate.read()


def put(shared: Any, memory: str, id: int) -> tuple[str, bool]:
    shared[id] = id * id
    attached: Any = SharedMemory(memory)
    attached.buf[id] = id
    attached.close()
    parent = parent_process()
    assert parent is not None
    return current_process().name, parent.is_alive()


def leave_a_thread(path: str, _: int) -> None:
    import threading

    threading.Thread(target=lambda: Path(path).write_text("ended")).start()


def test_workers_and_the_workers_of_workers_are_forked_from_one_nursery() -> None:
    (first,) = set(ipc.map(2, born_of).join())
    assert first != os.getpid()
    assert ipc.map(2, born_of_inside).join() == [[first] * 3] * 2


def test_workers_see_the_environment_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEEN_BY_WORKERS", raising=False)
    assert ipc.map(1, variable).join() == [None]
    monkeypatch.setenv("SEEN_BY_WORKERS", "since a moment")
    assert ipc.map(1, variable).join() == ["since a moment"]


def test_no_two_workers_draw_the_same_random_numbers(stage: Stage) -> None:
    ended = stage.run(
        """
        import sys
        already = "numpy.random" in sys.modules
        import multiprocessing, random
        from syncline import ipc

        def draw(_):
            import numpy.random
            return already, random.random(), numpy.random.random()

        if __name__ == "__main__":
            multiprocessing.set_forkserver_preload(["numpy.random"])
            loaded, *drawn = zip(*ipc.map(4, draw).join())
            print(loaded, *(len(set(each)) for each in drawn))
        """
    )
    assert (ended.status, ended.out) == (0, "(True, True, True, True) 4 4\n"), ended


def test_after_the_nursery_was_killed_its_workers_are_lost_and_another_takes_its_place() -> None:
    told, gate = ipc.channel(), ipc.channel()
    mapped = ipc.map(2, tell_and_wait, told, gate)
    pids = [told.read(timeout=20)[1] for _ in range(2)]
    (nursery,) = set(ipc.map(1, born_of).join())
    os.kill(nursery, signal.SIGKILL)
    with pytest.raises(sl.PeerLost, match="2 of 2 failed"):
        mapped.join(timeout=20)
    assert all(has_ended(pid) for pid in pids)
    (other,) = set(ipc.map(1, born_of).join())
    assert other != nursery


def test_managers_and_shared_memory_of_multiprocessing_work_in_workers() -> None:
    memory: Any = SharedMemory(create=True, size=8)
    try:
        with Manager() as manager:
            shared = manager.dict()
            expected = [(f"syncline worker {id}", True) for id in (1, 2)]
            assert ipc.map(2, put, shared, memory.name).join() == expected
            assert dict(shared) == {1: 1, 2: 4}
        assert bytes(memory.buf[:3]) == b"\0\1\2"
        SharedMemory(memory.name).close()  # a worker that ended has not removed it
    finally:
        memory.close()
        memory.unlink()


def test_a_worker_waits_for_threads_that_it_has_started(tmp_path: Path) -> None:
    file = tmp_path / "file"
    ipc.map(1, leave_a_thread, str(file)).join()
    assert file.read_text() == "ended"


def test_a_small_program_and_its_workers_load_nothing_of_multiprocessing(stage: Stage) -> None:
    """That is most of what a first map would take."""
    ended = stage.run(
        """
        import sys
        from syncline import ipc

        class Result:
            def __init__(self, loaded):
                self.loaded = loaded

        def loaded(_):
            return Result([name for name in ("multiprocessing", "typing", "socket", "numpy") if name in sys.modules])

        if __name__ == "__main__":
            (result,) = ipc.map(1, loaded).join()
            print(type(result) is Result, result.loaded, loaded(0).loaded)
        """
    )
    assert (ended.status, ended.out, ended.err) == (0, "True [] []\n", ""), ended


def test_an_unguarded_script_is_told_what_it_lacks(stage: Stage) -> None:
    ended = stage.run(
        """
        from syncline import ipc

        def number(id):
            return id

        print(ipc.map(2, number).join(timeout=20))
        """
    )
    assert ended.status != 0 and "if __name__ == '__main__':" in ended.err, ended


def test_workers_run_with_the_options_of_the_program_and_its_main_module(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        """
import sys, warnings
from syncline import ipc

def flags(_):
    return sys.flags.optimize, sys.flags.dev_mode, sys.warnoptions, __name__, sys.argv[1:]

if __name__ == "__main__":
    print(*ipc.map(1, flags).join())
"""
    )
    for how, expected in [
        (["-O", "-m", "program"], "(1, False, [], '__mp_main__', ['x'])"),
        (["-OO", "program.py"], "(2, False, [], '__mp_main__', ['x'])"),
        (["-W", "error", "-X", "dev", "program.py"], "(0, True, ['default', 'error'], '__mp_main__', ['x'])"),
    ]:
        ended = subprocess.run(
            [sys.executable, *how, "x"], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60, check=False
        )
        assert (ended.stdout, ended.stderr) == (f"{expected}\n", ""), how


def test_where_there_can_be_no_nursery_the_server_of_multiprocessing_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert not _children.possible()
    monkeypatch.setattr(_children, "possible", lambda: False)
    monkeypatch.delattr(sys, "frozen")
    assert ipc.map(2, number).join() == [1, 2]
    array = np.arange(1 << 16)
    with pytest.raises(sl.PeerLost, match="SIGKILL"):
        ipc.map(1, kill_oneself, array).join()


def kill_oneself(array: Any, _: int) -> None:
    assert array.sum() > 0
    os.kill(os.getpid(), signal.SIGKILL)
