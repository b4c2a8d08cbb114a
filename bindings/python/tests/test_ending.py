"""However a program ends, its job ends too: politely after success, with the reason after failure, and never slowly."""

from __future__ import annotations

import pytest
from conftest import Stage

JOIN = """
    import os, signal, sys, threading, time
    import syncline as sl
    sl.init()
    sl.barrier()
"""

# Rank 0 ends in some way; rank 1 waits for it and says what it hears.
LISTEN = """
    if sl.rank() == 1:
        try:
            sl.barrier()
        except sl.PeerLost as error:
            assert isinstance(error, ConnectionError)
            assert f"rank {error.rank}" in str(error), error
            print("lost", error.rank, error.pid is not None, str(error).replace(chr(10), " "), flush=True)
            os._exit(0)
        sys.exit("nobody was missed")
"""


def test_three_lines_end_quietly_without_shutdown(stage: Stage) -> None:
    ended = stage.run(
        """
        import syncline as sl
        sl.init(); print(sl.rank(), sl.size()); sl.barrier()
        """
    )
    assert (ended.status, ended.out, ended.err) == (0, "0 1\n", ""), ended


@pytest.mark.parametrize(
    ("ending", "status", "reason"),
    [
        ("raise ValueError('bad batch')", 1, "ValueError: bad batch"),
        ("raise SystemExit(3)", 3, "status 3"),
        ("sys.exit('out of luck')", 1, "status 1"),
        ("os._exit(4)", 4, ""),
        ("os.kill(os.getpid(), 9)", -9, ""),
    ],
)
def test_a_rank_that_fails_is_named_by_the_others_with_its_reason(
    stage: Stage, ending: str, status: int, reason: str
) -> None:
    failing, listening = stage.start_ranks(2, JOIN + LISTEN + f"    {ending}\n", timeout=15.0)
    failed, heard = failing.end(), listening.end()
    assert failed.status == status, failed
    assert heard.status == 0, heard
    assert heard.out.startswith("lost 0 True"), heard
    assert reason in heard.out, heard
    assert heard.seconds < 10.0, heard


def test_the_block_that_fails_is_heard_even_when_the_program_goes_on(stage: Stage) -> None:
    failing, listening = stage.start_ranks(
        2,
        """
        import os, sys, signal
        import syncline as sl
        try:
            with sl.init():
                sl.barrier()
                if sl.rank() == 0:
                    raise ValueError("bad batch")
                sl.barrier()
        except ValueError:
            signal.pause()
        except sl.PeerLost as error:
            print("lost", error.rank, "bad batch" in str(error), flush=True)
        """,
        timeout=15.0,
    )
    assert listening.wait_for_line("lost") == "lost 0 True"
    assert listening.end().status == 0
    assert failing.process.poll() is None


def test_a_failure_is_heard_although_threads_keep_the_program_alive(stage: Stage) -> None:
    failing, listening = stage.start_ranks(
        2,
        JOIN
        + LISTEN
        + """
    def work():
        try:
            threading.main_thread().join()     # until the failure has been told
            sl.barrier()
            sl.barrier()
        except (sl.Closed, sl.PeerLost) as error:
            print("thread:", type(error).__name__, flush=True)
    threading.Thread(target=work).start()
    raise ValueError("bad batch")
""",
        timeout=15.0,
    )
    heard = listening.end()
    assert "bad batch" in heard.out, heard
    failed = failing.end()
    assert failed.status == 1, failed
    assert failed.out.startswith("thread:"), failed


@pytest.mark.parametrize(("ending", "status"), [("pass", 0), ("raise ValueError", 1), ("sys.exit(5)", 5)])
def test_a_daemon_thread_in_a_barrier_does_not_hold_up_the_end(stage: Stage, ending: str, status: int) -> None:
    _, leaving = stage.start_ranks(
        2,
        JOIN
        + f"""
    if sl.rank() == 0:
        print("here", flush=True)
        signal.pause()
    waiting = threading.Thread(target=sl.barrier, daemon=True)
    waiting.start()
    asleep = 0
    while asleep < 3:      # it sleeps although it could have the interpreter: in the barrier
        time.sleep(0.001)
        with open(f"/proc/self/task/{{waiting.native_id}}/stat") as file:
            asleep = asleep + 1 if file.read().rpartition(")")[2].split()[0] == "S" else 0
    print("leaving", flush=True)
    {ending}
""",
        timeout=60.0,
    )
    leaving.wait_for_line("leaving")
    ended = leaving.end(patience=10.0)
    assert ended.status == status, ended


def test_another_programs_excepthook_still_runs(stage: Stage) -> None:
    ended = stage.run(
        """
        import sys
        import syncline as sl
        sys.excepthook = lambda kind, error, traceback: print("seen", error)
        sl.init()
        raise ValueError("bad batch")
        """
    )
    assert (ended.status, ended.out, ended.err) == (1, "seen bad batch\n", ""), ended


def test_a_mistake_at_a_prompt_does_not_end_the_job(stage: Stage) -> None:
    ended = stage.run(
        """
        import code, sys
        import syncline as sl
        sl.init()
        lines = iter(["1/0", "sl.barrier()", "print('still rank', sl.rank())"])
        def typed(prompt):
            try:
                return next(lines)
            except StopIteration:
                raise EOFError
        code.interact(banner="", readfunc=typed, local={"sl": sl}, exitmsg="")
        """
    )
    assert ended.status == 0, ended
    assert "ZeroDivisionError" in ended.err, ended
    assert "still rank 0" in ended.out, ended
