"""The examples of workers, channels and queues, run as their users would."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from conftest import Ended, Program, Stage, environment

ROOT = Path(__file__).parents[3]
PATIENCE = 90.0  # many interpreters on a busy machine; no test relies on reaching it


def run(stage: Stage, file: str, *arguments: str) -> Ended:
    program = Program([sys.executable, str(ROOT / file), *arguments], environment())
    stage.programs.append(program)
    ended = program.end(PATIENCE)
    assert ended.status == 0, ended
    return ended


def test_files_are_loaded_in_parallel_and_every_bad_one_is_named(stage: Stage) -> None:
    ended = run(stage, "examples/python/parallel_files.py", "12", "2")
    assert "12 files, 3 MB" in ended.out, ended
    assert "2 of 12 failed" in ended.out and "load(3)" in ended.out and "load(5): FileNotFoundError" in ended.out, ended


def test_producers_and_consumers(stage: Stage) -> None:
    counts = re.findall(r"consumer \d: (\d+) items", run(stage, "examples/python/producer_consumer.py").out)
    assert len(counts) == 3 and sum(map(int, counts)) == 400


@pytest.mark.parametrize("stages", ["1", "3"])
def test_a_pipeline_gives_the_same_bits_as_one_process(stage: Stage, stages: str) -> None:
    assert f"{stages} stages" in run(stage, "examples/python/pipeline.py", stages).out


def test_killed_workers_lose_nothing(stage: Stage) -> None:
    ended = run(stage, "examples/python/killed_workers.py", "300", "3")
    assert "300 questions, 3 workers killed, 300 answers, none twice" in ended.out, ended
    assert ended.out.count("SIGKILL") == 3, ended


def test_a_short_soak(stage: Stage) -> None:
    assert "nothing lost, nothing left" in run(stage, "scripts/soak-ipc", "--minutes", "0.1").out
