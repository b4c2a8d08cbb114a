"""The same three lines under every launcher, and what the survivors say when one of them is killed."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Stage, command

HELLO = Path(__file__).parents[3] / "examples" / "python" / "hello.py"
TOPOLOGY = HELLO.with_name("topology.py")

LAUNCHERS: dict[str, Callable[[], list[str]]] = {
    "syncline": lambda: [command("syncline"), "run", "-n", "4"],
    "openmpi": lambda: [command("mpirun.openmpi"), "--allow-run-as-root", "--oversubscribe", "-np", "4"],
    "mpich": lambda: [command("mpirun.mpich"), "-np", "4"],
}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_three_lines_run_under_every_launcher(stage: Stage, launcher: str) -> None:
    ended = stage.run(HELLO.read_text(), under=LAUNCHERS[launcher]())
    assert ended.status == 0, ended
    assert sorted(re.findall(r"\d 4$", ended.out, re.MULTILINE)) == ["0 4", "1 4", "2 4", "3 4"], ended


def test_the_same_three_lines_run_alone(stage: Stage) -> None:
    ended = stage.run(HELLO.read_text())
    assert (ended.status, ended.out, ended.err) == (0, "0 1\n", ""), ended


def test_the_topology_example_draws_four_ranks_on_this_host(stage: Stage) -> None:
    ended = stage.run(TOPOLOGY.read_text(), under=LAUNCHERS["syncline"]())
    assert ended.status == 0, ended
    assert "4 ranks on 1 host" in ended.out, ended


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_rank_that_raises_is_named_under_every_launcher(stage: Stage, launcher: str) -> None:
    ended = stage.run(
        """
        import syncline as sl
        sl.init()
        sl.barrier()
        if sl.rank() == 2:
            raise ValueError("bad batch")
        try:
            sl.barrier()
        except sl.PeerLost as error:
            print("lost", error.rank, flush=True)
            raise
        """,
        under=LAUNCHERS[launcher](),
    )
    assert ended.status != 0, ended
    assert "ValueError: bad batch" in ended.out + ended.err, ended
    # A launcher may take the others down before they can speak; who speaks names rank 2.
    assert set(re.findall(r"lost (\d)", ended.out)) <= {"2"}, ended


@pytest.mark.parametrize("victim", range(4))
def test_survivors_name_a_killed_rank_within_a_second(stage: Stage, victim: int) -> None:
    ranks = stage.start_ranks(
        4,
        f"""
        import os, signal, sys, time
        import syncline as sl
        sl.init()
        sl.barrier()
        print("in", os.getpid(), flush=True)
        if sl.rank() == {victim}:
            signal.pause()
        try:
            while True:
                sl.barrier()
        except sl.PeerLost as error:
            print("lost", error.rank, error.pid, error.host == os.uname().nodename, time.monotonic(), flush=True)
            raise
        """,
        timeout=15.0,
    )
    pids = [int(rank.wait_for_line("in").split()[1]) for rank in ranks]
    os.kill(pids[victim], signal.SIGKILL)
    killed = time.monotonic()
    for number, rank in enumerate(ranks):
        if number == victim:
            assert rank.end().status == -signal.SIGKILL
            continue
        lost, culprit, pid, host, when = rank.wait_for_line("lost").split()
        assert (lost, int(culprit), int(pid), host) == ("lost", victim, pids[victim], "True")
        assert float(when) - killed < 1.0
        ended = rank.end()
        assert ended.status == 1, ended
        assert f"rank {victim}" in ended.err, ended
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_nobody_remains_when_a_rank_under_the_launcher_is_killed(stage: Stage) -> None:
    program = stage.start(
        """
        import os
        import syncline as sl
        sl.init()
        sl.barrier()
        print("in", os.getpid(), flush=True)
        while True:
            sl.barrier()
        """,
        under=LAUNCHERS["syncline"](),
    )
    assert program.process.stdout is not None
    pids: list[int] = []
    for line in program.process.stdout:
        if found := re.search(r"in (\d+)$", line.strip()):
            pids.append(int(found[1]))
        if len(pids) == 4:
            break
    os.kill(pids[1], signal.SIGKILL)
    ended = program.end()
    assert ended.status == 128 + signal.SIGKILL, ended
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
