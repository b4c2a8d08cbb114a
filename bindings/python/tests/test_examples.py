"""The examples that train, run as their users would: where they lie, alone and under launchers."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import Ended, Program, Stage, environment
from test_jobs import LAUNCHERS

EXAMPLES = Path(__file__).parents[3] / "examples" / "python"
PATIENCE = 90.0  # four interpreters that import scikit-learn on a busy machine; no test relies on reaching it


def run(stage: Stage, file: str, *arguments: str, under: Sequence[str] = ()) -> Ended:
    program = Program([*under, sys.executable, str(EXAMPLES / file), *arguments], environment())
    stage.programs.append(program)
    ended = program.end(PATIENCE)
    assert ended.status == 0, ended
    return ended


def digits(stage: Stage, *arguments: str, under: Sequence[str] = ()) -> Ended:
    pytest.importorskip("sklearn", reason="scikit-learn, which brings the digits, is not installed")
    return run(stage, "digits.py", *arguments, under=under)


def accuracy(ended: Ended, whose: str) -> float:
    found = re.search(rf"{whose}: test accuracy (\d\.\d+) after \d+\.\d+ s$", ended.out, re.MULTILINE)
    assert found, ended
    return float(found[1])


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_four_workers_learn_to_read_digits(stage: Stage, mode: str) -> None:
    ended = digits(stage, f"--{mode}", "--alone-too", under=LAUNCHERS["syncline"]())
    assert accuracy(ended, f"{mode}, 4 workers") >= 0.95, ended
    assert accuracy(ended, "alone, plain NumPy") >= 0.95, ended


def test_steps_taken_together_end_in_the_same_bits_in_every_run(stage: Stage) -> None:
    def weights() -> str:
        ended = digits(stage, "--sync", "--hash", "--epochs", "30", under=LAUNCHERS["syncline"]())
        found = re.search(r"weights ([0-9a-f]{64})$", ended.out, re.MULTILINE)
        assert found, ended
        return found[1]

    assert weights() == weights()


@pytest.mark.parametrize("launcher", ["openmpi", "mpich"])
def test_digits_run_under_other_launchers(stage: Stage, launcher: str) -> None:
    ended = digits(stage, "--epochs", "3", under=LAUNCHERS[launcher]())
    assert accuracy(ended, "async, 4 workers") > 0.5, ended


def test_progress_is_lines_in_a_pipe_and_a_bar_when_asked_for(stage: Stage) -> None:
    lines = digits(stage, "--epochs", "20").err.splitlines()
    assert len(lines) == 10, lines
    shape = r"20/20  loss \d\.\d+  [\d,]+ samples/s  [\d.]+ [kMG]?B moved"
    assert re.fullmatch(shape, lines[-1]), lines
    bar = digits(stage, "--epochs", "20", "--progress", "bar").err
    assert re.search(rf"█{{24}} {shape}\s*$", bar), bar


@pytest.mark.parametrize("kind", ["dist_sync", "dist_async"])
def test_a_network_in_the_store_reads_digits_as_well_as_one_alone(stage: Stage, kind: str) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn, which brings the digits, is not installed")
    ended = run(stage, "digits_kvstore.py", "--type", kind, "--epochs", "15", "--alone-too", under=LAUNCHERS["syncline"]())
    assert accuracy(ended, f"{kind}, 4 workers") >= 0.95, ended
    assert accuracy(ended, "local, 1 worker") >= 0.95, ended


@pytest.mark.parametrize("kind", ["dist_sync", "dist_async"])
def test_a_factorisation_machine_learns_who_clicks(stage: Stage, kind: str) -> None:
    words = ("--type", kind, "--impressions", "20000", "--epochs", "4")
    ended = run(stage, "factorization.py", *words, under=LAUNCHERS["syncline"]())
    assert accuracy(ended, f"{kind}, 4 workers") >= 0.6, ended


@pytest.mark.parametrize("launcher", ["syncline", "openmpi"])
def test_word_vectors_get_better_and_know_their_company(stage: Stage, launcher: str) -> None:
    ended = run(stage, "embeddings.py", "--epochs", "6", under=LAUNCHERS[launcher]())
    found = re.search(r"4 workers: loss (\d\.\d+) -> (\d\.\d+) in", ended.out)
    assert found and float(found[2]) < 0.9 * float(found[1]), ended
    company = {"turtle": "mock", "march": "hare", "rabbit": "white", "cat": "cheshire"}
    # Workers race, so no run is like another: but the book leaves little doubt who walks with whom.
    assert any(re.search(rf"{word}: .*\b{friend}\b", ended.out) for word, friend in company.items()), ended


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("tree_average.py", r"4 nodes, weights \[ 2\. +-1\. +0\.5"),
        ("tree_function.py", r"of 4 nodes, node \d has the best loss"),
        ("slurm_tree.py", r"4 nodes on GPUs \[1, 2, 3, 4\], weights \[ 2\. +-1\. +0\.5\s*\], the same bits on all"),
    ],
)
def test_trees_average_and_choose(stage: Stage, file: str, says: str) -> None:
    ended = run(stage, file, under=LAUNCHERS["syncline"]())
    assert re.search(says, ended.out), ended
    assert "1 nodes" in run(stage, file).out
