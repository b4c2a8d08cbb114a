"""The examples with frameworks learn: the job's accuracy stands beside that of one process."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import Stage
from frameworks import ROOT, run_file

EXAMPLES = ROOT / "examples"
COMPILED = ROOT / ".cache" / "theano"  # what g++ made of Theano's code is kept for the next run


def learns(
    stage: Stage, file: Path, *modules: str, n: int, enough: float, launcher: str = "syncline", **env: str
) -> None:
    ended = run_file(stage, file, *modules, launcher=launcher, n=n, env=env)
    together = re.search(rf"{n} processes: test accuracy (\d\.\d+)$", ended.out, re.MULTILINE)
    alone = re.search(r"one process alone: test accuracy (\d\.\d+)$", ended.out, re.MULTILINE)
    for found in (together, alone):
        assert found, ended
        assert float(found[1]) >= enough, ended


@pytest.mark.parametrize(
    ("file", "module", "n", "launcher"),
    [
        ("torch_ddp.py", "torch", 4, "syncline"),
        ("torch_optimizer.py", "torch", 2, "syncline"),
        ("keras_digits.py", "keras", 2, "syncline"),
        ("jax_digits.py", "jax", 2, "mpirun"),
    ],
)
def test_it_learns_to_read(stage: Stage, file: str, module: str, n: int, launcher: str) -> None:
    modules = (module, "jax") if module == "keras" else (module,)
    learns(stage, EXAMPLES / "python" / file, *modules, n=n, enough=0.93, launcher=launcher)


@pytest.mark.parametrize(("library", "launcher"), [("theano", "mpirun"), ("pytensor", "syncline")])
def test_logistic_regression_in_multiversos_manner(stage: Stage, library: str, launcher: str) -> None:
    learns(stage, EXAMPLES / "theano" / "logistic_regression.py", library, n=4, enough=0.9, launcher=launcher)


@pytest.mark.timeout(400)
def test_a_convolutional_network_in_multiversos_manner(stage: Stage) -> None:
    flags = f"blas.ldflags=,floatX=float32,base_compiledir={COMPILED}"
    learns(stage, EXAMPLES / "theano" / "cnn.py", "lasagne", n=2, enough=0.9, THEANO_FLAGS=flags)
