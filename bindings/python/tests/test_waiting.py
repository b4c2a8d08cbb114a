"""While a process waits, Python lives: other threads run, and signals are heard within a tenth of a second."""

from __future__ import annotations

import signal

import numpy as np
import pytest
import syncline as sl
from conftest import Stage

# The signal comes from a thread, which can only run when the waiting one has let the interpreter go.
SIGNAL_SOON = """
    import os, signal, threading, time
    import syncline as sl

    sent = []
    def send(number):
        time.sleep(0.3)
        sent.append(time.monotonic())
        os.kill(os.getpid(), number)
    def signal_soon(number):
        threading.Thread(target=send, args=(number,), daemon=True).start()
    def heard(what):
        print(f"{what} after {time.monotonic() - sent[0]:.3f} s", flush=True)
"""

# Rank 0 is the one that stays away: it may not leave before the others, so a test that ends in order ends rank 1.
ONE_COMES_ONE_WAITS = """
    sl.init()
    sl.barrier()
    if sl.rank() == 0:
        print("here", flush=True)
        signal.pause()
"""


def seconds(line: str) -> float:
    return float(line.split()[-2])


def test_ctrl_c_ends_a_barrier(stage: Stage) -> None:
    _, waiting = stage.start_ranks(
        2,
        SIGNAL_SOON
        + ONE_COMES_ONE_WAITS
        + """
    signal_soon(signal.SIGINT)
    try:
        sl.barrier()
    finally:
        heard("interrupted")
""",
    )
    assert seconds(waiting.wait_for_line("interrupted")) < 1.0
    ended = waiting.end()
    assert ended.err.rstrip().endswith("KeyboardInterrupt"), ended
    assert ended.status != 0


def test_ctrl_c_ends_a_barrier_that_another_thread_is_in_already(stage: Stage) -> None:
    _, waiting = stage.start_ranks(
        2,
        SIGNAL_SOON
        + ONE_COMES_ONE_WAITS
        + """
    threading.Thread(target=sl.barrier, daemon=True).start()
    time.sleep(0.1)
    signal_soon(signal.SIGINT)
    try:
        sl.barrier()
    finally:
        heard("interrupted")
""",
    )
    assert seconds(waiting.wait_for_line("interrupted")) < 1.0
    assert waiting.end().err.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize("present", [0, 1])
def test_ctrl_c_ends_the_wait_for_a_rank_that_never_starts(stage: Stage, present: int) -> None:
    (waiting,) = stage.start_ranks(
        2,
        SIGNAL_SOON
        + """
    signal_soon(signal.SIGINT)
    try:
        sl.init()
    finally:
        heard("interrupted")
""",
        only=[present],
    )
    assert seconds(waiting.wait_for_line("interrupted")) < 1.0
    ended = waiting.end()
    assert ended.err.rstrip().endswith("KeyboardInterrupt"), ended


def test_what_a_signal_handler_raises_comes_out_of_the_wait(stage: Stage) -> None:
    _, waiting = stage.start_ranks(
        2,
        SIGNAL_SOON
        + ONE_COMES_ONE_WAITS
        + """
    class Preempted(Exception):
        pass
    def handler(number, frame):
        raise Preempted("the queue wants its node back")
    signal.signal(signal.SIGUSR1, handler)
    signal_soon(signal.SIGUSR1)
    try:
        sl.barrier()
    except Preempted as error:
        heard(error)
""",
    )
    assert seconds(waiting.wait_for_line("the queue wants its node back")) < 1.0
    assert waiting.end().status == 0


def test_a_handler_that_returns_does_not_end_the_wait(stage: Stage) -> None:
    waiting, other = stage.start_ranks(
        2,
        SIGNAL_SOON
        + """
    sl.init()
    if sl.rank() == 0:
        signal.signal(signal.SIGUSR1, lambda number, frame: heard("noticed"))
        signal_soon(signal.SIGUSR1)
    else:
        signal.signal(signal.SIGUSR1, lambda number, frame: None)
        print("ready", flush=True)
        signal.pause()
    sl.barrier()
    print("passed", flush=True)
""",
    )
    other.wait_for_line("ready")
    assert seconds(waiting.wait_for_line("noticed")) < 1.0
    other.signal(signal.SIGUSR1)
    waiting.wait_for_line("passed")
    assert (waiting.end().status, other.end().status) == (0, 0)


def test_a_rank_that_stays_away_is_named_after_the_timeout(stage: Stage) -> None:
    _, waiting = stage.start_ranks(
        2,
        SIGNAL_SOON
        + ONE_COMES_ONE_WAITS
        + """
    try:
        sl.barrier()
    except TimeoutError as error:
        assert isinstance(error, sl.Timeout)
        assert "rank 0" in str(error), error
        print("missing", error.rank, error.host == os.uname().nodename, error.pid is not None, flush=True)
""",
        timeout=1.0,
    )
    assert waiting.wait_for_line("missing") == "missing 0 True True"
    assert waiting.end().status == 0


def test_a_rank_that_never_starts_is_named_after_the_timeout(stage: Stage) -> None:
    (waiting,) = stage.start_ranks(
        3,
        """
    import syncline as sl
    try:
        sl.init(timeout=1.0)
    except sl.Timeout as error:
        print(error.rank, error.pid, "missing: rank 1, rank 2" in str(error))
""",
        only=[0],
    )
    ended = waiting.end()
    assert (ended.status, ended.out) == (0, "1 None True\n"), ended


@pytest.mark.parametrize("call", ["sl.barrier()", "sl.shutdown()"])
def test_threads_and_signals_do_not_disturb_a_call_that_succeeds(stage: Stage, call: str) -> None:
    ended = stage.run(
        f"""
        import threading
        import syncline as sl
        sl.init()
        threads = [threading.Thread(target=lambda: {call}) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        """
    )
    assert (ended.status, ended.err) == (0, ""), ended


@pytest.mark.parametrize(
    "waiting",
    [
        "sl.tree().all_reduce_async(np.ones(3_000_000, np.float32)).wait()",
        "(table.add([1, 1]), table.get_async().wait())",
        "(rows.add(np.ones((2, 2))), rows.get_async([1]).wait())",
        "(store.push('w', np.ones(2)), store.pull('w', wait=False).wait())",
        "(store.push('w', np.ones(2), wait=False), store.pull('w', out=np.empty(2), wait=False).wait())",
    ],
)
def test_a_future_that_waits_for_a_silent_worker_names_it(stage: Stage, waiting: str) -> None:
    """The call behind it keeps to the job's timeout and knows who is missing; the wait does not end a moment before it."""
    _, waiter = stage.start_ranks(
        2,
        f"""
        import signal
        import numpy as np
        import syncline as sl
        sl.init(sync=True, timeout=3)
        table, rows, store = sl.ArrayTable(2), sl.MatrixTable(2, 2), sl.kvstore.create("dist_sync")
        store.init("w", np.zeros(2))
        sl.barrier()
        if sl.rank() == 0:
            print("here", flush=True)
            signal.pause()
        for _ in range(2):
            try:
                {waiting}
            except sl.Timeout as error:
                print(f"missing: {{error.rank}}", "rank 0" in str(error), flush=True)
        """,
    )
    assert waiter.wait_for_line("missing:") == "missing: 0 True"


def test_a_time_that_is_none_is_refused_by_futures_of_trees() -> None:
    with pytest.raises(sl.ConfigurationError, match="timeout=-1 is not a time to wait"):
        sl.NullTree().all_reduce_async(np.ones(3)).wait(timeout=-1)


def test_a_second_thread_that_waits_for_a_reduction_keeps_to_its_own_timeout(stage: Stage) -> None:
    _, waiter = stage.start_ranks(
        2,
        """
        import os, signal, threading, time
        import numpy as np
        import syncline as sl
        sl.init(timeout=60)
        sl.barrier()
        if sl.rank() == 0:
            signal.pause()
        coming = sl.tree().all_reduce_async(np.ones(3))
        threading.Thread(target=coming.wait, daemon=True).start()
        began = time.monotonic()
        for _ in range(20):  # the other thread is in before the last of them, whoever was first
            try:
                coming.wait(timeout=0.05)
            except sl.Timeout:
                pass
        print("given up" if time.monotonic() - began < 30 else "deaf", flush=True)
        os._exit(0)
        """,
    )
    assert waiter.wait_for_line("") == "given up"
