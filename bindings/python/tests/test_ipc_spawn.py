"""Programs that are started, files that are locked, values that are laid out once."""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from conftest import Stage, has_ended, interrupt_once_asleep

import syncline as sl
from syncline import ipc


def test_echo_by_line_all_at_once_and_in_bytes() -> None:
    echo = ipc.spawn(file="echo", args=["what", "up", "dawg"])
    assert echo.stdout() == "what up dawg"
    assert echo.stdout() is None
    assert echo.wait() == 0
    echo = ipc.spawn(file="echo", args=["what up dawg"])
    assert echo.stdout("*all") == "what up dawg\n"
    assert echo.stdout("*all") is None
    assert echo.wait() == 0
    echo = ipc.spawn(file="printf", args=["abcdefg"])
    pieces = list(iter(lambda: echo.stdout(3), None))
    assert b"".join(pieces) == b"abcdefg"
    assert all(0 < len(piece) <= 3 for piece in pieces)


def test_tee_repeats_what_it_is_told() -> None:
    tee = ipc.spawn(file="tee")
    for word in "abcd":
        tee.stdin(f"{word}\n")
        assert tee.stdout("*line") == word
    tee.stdin(b"bytes too\n")
    assert tee.stdout() == "bytes too"
    tee.stdin()
    assert tee.stdout() is None
    assert tee.wait() == 0


def test_numbers_become_arguments_and_a_dict_the_environment() -> None:
    assert ipc.spawn(file="echo", args=[1, 2.5, "x"]).stdout() == "1 2.5 x"
    child = ipc.spawn(file="/usr/bin/env", env={"SOME_VAR": 42})
    assert child.stdout("*all") == "SOME_VAR=42\n"
    assert child.wait() == 0
    assert ipc.spawn(file="printenv", args=["PATH"]).stdout() == os.environ["PATH"]


@pytest.mark.parametrize(("name", "number"), [("TERM", signal.SIGTERM), ("KILL", signal.SIGKILL)])
def test_a_signalled_child_counts_as_zero_and_tells_its_signal(name: str, number: int) -> None:
    """T15: the signal is told, and the old call still says 0."""
    child = ipc.spawn(file="sleep", args=[100])
    assert child.running()
    assert child.wait(name) == 0
    assert (child.exit_code, child.exit_signal, child.running()) == (None, number, False)
    with pytest.raises(sl.Closed, match="spawn was already closed"):
        child.wait()


def test_the_exit_code_is_the_programs_own() -> None:
    """T15: and not the last errno."""
    child = ipc.spawn(file="sh", args=["-c", "exit 7"])
    assert (child.wait(), child.exit_code, child.exit_signal) == (7, 7, None)
    assert ipc.spawn(file="cat", args=["/no/such/file"]).wait() != 0


def test_running_until_it_has_ended() -> None:
    child = ipc.spawn(file="sleep", args=[1])
    polls = 0
    while child.running():
        polls += 1
        time.sleep(0.2)
    assert 3 <= polls <= 7
    assert child.wait() == 0


def test_what_is_wrong_with_a_call_is_said() -> None:
    with pytest.raises(sl.ConfigurationError, match="no-such-program"):
        ipc.spawn(file="no-such-program")
    with pytest.raises(TypeError, match="file: expected a string"):
        ipc.spawn(file=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="args: expected"):
        ipc.spawn(file="echo", args="hello")
    with pytest.raises(TypeError, match="env: expected"):
        ipc.spawn(file="echo", env=["A=1"])  # type: ignore[arg-type]
    child = ipc.spawn(file="cat")
    with pytest.raises(sl.ConfigurationError, match="TERM and KILL"):
        child.wait("HUP")
    with pytest.raises(sl.Timeout, match=f"pid {child.pid()}") as late:
        child.stdout(timeout=0.02)
    assert late.value.pid == child.pid()
    assert child.wait() == 0


def test_megabytes_through_cat_lock_nobody_up() -> None:
    cat = ipc.spawn(file="cat")
    sent = bytes(range(256)) * (1 << 14)
    cat.stdin(sent)
    cat.stdin()
    got = b"".join(iter(lambda: cat.stdout(1 << 20), None))
    assert got == sent


def test_a_forgotten_child_is_ended() -> None:
    child = ipc.spawn(file="sleep", args=[100])
    pid = child.pid()
    del child
    gc.collect()
    assert not Path(f"/proc/{pid}").exists()


def test_a_waiting_read_lets_other_threads_run_and_hears_ctrl_c() -> None:
    cat = ipc.spawn(file="cat")
    interrupt_once_asleep()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        cat.stdout()
    assert time.monotonic() - began < 5
    cat.stdin("still there\n")
    assert cat.stdout() == "still there"


def test_ctrl_c_is_heard_while_there_is_something_to_log() -> None:
    for delay in (0.01, 0.05):
        ipc.spawn(file="cat")  # forgotten at once, which is worth a line in the log
        cat = ipc.spawn(file="cat")
        threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            cat.stdout(timeout=20)
        cat.wait()


def test_flock_keeps_others_out_until_it_is_closed(tmp_path: Path) -> None:
    """T14: locks are tested, and what is tested exists."""
    file = tmp_path / "lock"
    assert ipc.flock(file, True) is None
    assert not file.exists()
    lock = ipc.flock(file)
    assert lock is not None
    assert file.stat().st_mode & 0o777 == 0o600
    assert ipc.flock(str(file), no_block=True) is None
    with pytest.raises(sl.Timeout, match="another holds"):
        ipc.flock(file, timeout=0.02)
    code = "import sys\nfrom syncline import ipc\nprint(ipc.flock(sys.argv[1], True))"
    other = ipc.spawn(file=sys.executable, args=["-c", code, str(file)])
    assert other.stdout() == "None"
    lock.close()
    lock.close()
    with ipc.flock(file, True) as again:  # type: ignore[union-attr]
        assert again.path == file
    assert ipc.flock(file, True) is not None


def test_a_lock_is_released_with_its_object_and_with_its_process(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    lock = ipc.flock(file)
    del lock
    gc.collect()
    code = "import sys\nfrom syncline import ipc\nlock = ipc.flock(sys.argv[1])\nprint('held', flush=True)\nsys.stdin.read()"
    other = ipc.spawn(file=sys.executable, args=["-c", code, str(file)])
    assert other.stdout() == "held"
    assert ipc.flock(file, True) is None
    other.wait("KILL")
    assert ipc.flock(file, timeout=10) is not None


def test_a_program_ends_with_the_process_that_started_it(stage: Stage) -> None:
    """However that ends, and whichever of its threads has started it."""
    parent = stage.start(
        """
        import threading
        from syncline import ipc

        started = []
        thread = threading.Thread(target=lambda: started.append(ipc.spawn("sleep", [600])))
        thread.start()
        thread.join()
        print("child", started[0].pid(), flush=True)
        threading.Event().wait()
        """
    )
    pid = int(parent.wait_for_line("child").split()[1])
    assert not has_ended(pid, 0.2)
    parent.signal(signal.SIGKILL)
    assert has_ended(pid)


def test_a_program_can_wait_for_several_outputs_at_once() -> None:
    quick, slow = ipc.spawn("echo", ["now"]), ipc.spawn("cat")
    ready, _, _ = select.select([quick.stdout_descriptor(), slow.stdout_descriptor()], [], [], 20)
    assert ready == [quick.stdout_descriptor()] and quick.stdout() == "now"
    assert (quick.wait(), slow.wait()) == (0, 0)
