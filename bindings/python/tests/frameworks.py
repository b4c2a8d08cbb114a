"""Where the frameworks are: in this very environment, or in one of those that scripts/setup makes beside it."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Ended, Program, Stage, command, environment

ROOT = Path(__file__).parents[3]
ENVIRONMENTS = ROOT / ".cache" / "frameworks"
SCRIPTS = Path(__file__).parent / "framework_scripts"
PATIENCE = 300.0  # four interpreters that import and compile on a busy machine; no test relies on reaching it

LAUNCHERS: dict[str, Callable[[int], list[str]]] = {
    "syncline": lambda n: [command("syncline"), "run", "-n", str(n)],
    "mpirun": lambda n: [command("mpirun.openmpi"), "--allow-run-as-root", "--oversubscribe", "-np", str(n)],
}
JOBS = [("syncline", 1), ("syncline", 2), ("syncline", 4), ("mpirun", 4)]


@functools.cache
def _has(python: str, modules: tuple[str, ...]) -> bool:
    ask = f"import importlib.util as u, sys; sys.exit(not all(u.find_spec(m) for m in {('syncline', *modules)!r}))"
    return subprocess.run([python, "-c", ask], env=environment(), capture_output=True).returncode == 0


def python_with(*modules: str) -> str:
    """An interpreter that has these modules, and ours; the test is skipped, with the reason, where there is none."""
    for python in [sys.executable, *map(str, sorted(ENVIRONMENTS.glob("*/bin/python")))]:
        if _has(python, modules):
            return python
    pytest.skip(f"no environment has {' and '.join(modules)}: scripts/setup makes it")


def settings(tmp: Path) -> dict[str, str]:
    """What frameworks need to know: one thread for each process, and nothing of what an earlier run compiled."""
    return {
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "KERAS_BACKEND": "jax",
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
        "JAX_PLATFORMS": "cpu",
        "PYTHONWARNINGS": "ignore",
        # Pure Python code: nothing is compiled, which would take the seconds that the test is worth.
        "THEANO_FLAGS": f"blas.ldflags=,floatX=float32,cxx=,base_compiledir={tmp}/theano",
        "PYTENSOR_FLAGS": f"floatX=float32,mode=FAST_COMPILE,cxx=,base_compiledir={tmp}/pytensor",
    }


def run_file(
    stage: Stage,
    file: Path,
    *modules: str,
    launcher: str = "syncline",
    n: int = 4,
    env: dict[str, str] | None = None,
    without: tuple[str, ...] = (),
    arguments: tuple[str, ...] = (),
) -> Ended:
    """One script under a launcher, in an environment that has these modules, ``without`` some of the variables."""
    python = python_with(*modules)
    under = LAUNCHERS[launcher](n)
    path = f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}"
    more = {**settings(stage.folder), "PATH": path, **(env or {})}
    variables = {name: value for name, value in environment(more).items() if name not in without}
    program = Program([*under, python, str(file), *arguments], variables)
    stage.programs.append(program)
    ended = program.end(PATIENCE)
    assert ended.status == 0, ended
    return ended


def check(stage: Stage, script: str, *modules: str, launcher: str, n: int, env: dict[str, str] | None = None) -> Ended:
    """A script that checks itself and says so on every worker."""
    ended = run_file(stage, SCRIPTS / script, *modules, launcher=launcher, n=n, env=env)
    assert sum("all is well" in line for line in ended.out.splitlines()) == n, ended
    return ended
