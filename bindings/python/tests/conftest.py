"""Starts Python programs as a user would: alone, as the ranks of a job, or under a launcher."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

PATIENCE = 20.0  # seconds until a test gives up on a process; no test relies on reaching it

# Whatever started pytest must not leak into the jobs it starts.
LAUNCHERS = (
    "SYNCLINE_",
    "OMPI_",
    "PMIX_",
    "PMI_",
    "MPI_",
    "SLURM_",
    "DMLC_",
    "TORCHELASTIC_",
    "JOB_COMPLETION_",
    "PET_",
)
TORCHRUN = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT"}


def has_ended(pid: int, patience: float = PATIENCE) -> bool:
    """Waits until a process has ended, whoever's child it is."""
    try:
        watch = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([watch], [], [], patience)[0])
    finally:
        os.close(watch)


def once_asleep(action: Callable[..., object], *args: object) -> threading.Thread:
    """Does something when the calling thread waits for it: asleep, and undisturbed for 20 looks."""
    caller = Path(f"/proc/self/task/{threading.get_native_id()}/status")

    def watch() -> None:
        before, looks = "", 0
        while looks < 20:
            fields = dict(line.split(":", 1) for line in caller.read_text().splitlines())
            switches = fields["voluntary_ctxt_switches"]
            looks = looks + 1 if fields["State"].split()[0] == "S" and switches == before else 0
            before = switches
            time.sleep(0.001)
        action(*args)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def interrupt_once_asleep() -> None:
    """Ctrl-C, as soon as the calling thread waits."""
    once_asleep(os.kill, os.getpid(), signal.SIGINT)


@dataclass
class Ended:
    """How a process ended, and after how long."""

    status: int
    out: str
    err: str
    seconds: float

    def __str__(self) -> str:
        return f"status {self.status} after {self.seconds:.2f} s\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


class Program:
    """A Python program that runs beside the test."""

    def __init__(self, command: Sequence[str], env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
        )
        self.started = time.monotonic()

    def wait_for_line(self, wanted: str) -> str:
        """Reads its output up to a line that begins so; the program says when it is where the test wants it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(wanted):
                return line.strip()
        raise AssertionError(f"the program ended without saying {wanted!r}:\n{self.end()}")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        self.started = time.monotonic()

    def end(self, patience: float = PATIENCE) -> Ended:
        out, err = self.process.communicate(timeout=patience)
        return Ended(self.process.returncode, out, err, time.monotonic() - self.started)


class Stage:
    """Starts programs and sees to it that none outlives the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs: list[Program] = []

    def start(
        self, code: str, *, under: Sequence[str] = (), env: dict[str, str] | None = None, python: str = sys.executable
    ) -> Program:
        """A program of its own, under a launcher if one is given."""
        script = self.folder / f"program{len(self.programs)}.py"
        script.write_text(textwrap.dedent(code))
        program = Program([*under, python, str(script)], environment(env))
        self.programs.append(program)
        return program

    def run(self, code: str, *, under: Sequence[str] = (), env: dict[str, str] | None = None) -> Ended:
        return self.start(code, under=under, env=env).end()

    def start_ranks(
        self, world: int, code: str, *, only: Sequence[int] | None = None, timeout: float = 10.0
    ) -> list[Program]:
        """The ranks of one job, each started by hand; `only` leaves the others out."""
        job = {
            "SYNCLINE_WORLD_SIZE": str(world),
            "SYNCLINE_RENDEZVOUS": f"unix:@syncline-test-{uuid.uuid4().hex}",
            "SYNCLINE_TOKEN": uuid.uuid4().hex,
            "SYNCLINE_TIMEOUT": str(timeout),
        }
        ranks = range(world) if only is None else only
        return [self.start(code, env={**job, "SYNCLINE_RANK": str(rank)}) for rank in ranks]

    def clear(self) -> None:
        for program in self.programs:
            with contextlib.suppress(ProcessLookupError):
                program.process.kill()
            program.process.communicate()


def environment(more: dict[str, str] | None = None) -> dict[str, str]:
    """The environment of a fresh shell: no job, no launcher, and lines that are written whole."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS) and name not in TORCHRUN
    }
    kept.pop("PYTHONUNBUFFERED", None)
    return {**kept, **(more or {})}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.clear()


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This very process in a job of its own."""
    for name in list(os.environ):
        if name.startswith(LAUNCHERS) or name in TORCHRUN:
            monkeypatch.delenv(name)
    import syncline

    syncline.init()
    yield
    syncline.shutdown()


def command(name: str) -> str:
    """A command that the test needs; it is skipped, with the reason, where that is missing."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found
