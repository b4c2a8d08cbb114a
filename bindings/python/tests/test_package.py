"""The package as it is installed: light, typed, with its command."""

from __future__ import annotations

import importlib.metadata
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import syncline as sl
from conftest import Stage, command, environment

SOURCE = Path(__file__).parents[1]
ELSEWHERE = ["--allowlist", "tests/frameworks_allowlist.txt", "--ignore-unused-allowlist"]


def test_the_versions_agree() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", sl.__version__)
    assert importlib.metadata.version("syncline") == sl.__version__


def test_importing_it_loads_no_framework_and_nothing_slow(stage: Stage) -> None:
    ended = stage.run(
        """
        import sys
        before = set(sys.modules)
        import syncline
        loaded = sorted(name for name in set(sys.modules) - before if not name.startswith("syncline"))
        print(*loaded)
        """
    )
    assert ended.status == 0, ended
    assert set(ended.out.split()) <= {"__future__", "types"}


def test_making_a_table_is_what_loads_numpy(stage: Stage) -> None:
    ended = stage.run(
        """
        import sys
        import syncline as sl
        sl.init()
        sl.barrier()
        assert "numpy" not in sys.modules
        sl.ArrayTable(3)
        assert "numpy" in sys.modules and "ml_dtypes" not in sys.modules
        """
    )
    assert ended.status == 0, ended


@pytest.mark.parametrize(
    "document",
    [
        "bindings/python/README.md",
        "docs/tables.md",
        "docs/multiverso.md",
        "docs/ipc.md",
        "docs/trees.md",
        "docs/kvstore.md",
        "docs/frameworks.md",
    ],
)
def test_what_the_documents_tell_people_to_type_works(document: str) -> None:
    beside = str(Path(sys.executable).parent)
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    env = environment({"PATH": f"{beside}:{os.environ['PATH']}", "OMPI_MCA_rmaps_base_oversubscribe": "1", **allowed})
    script = SOURCE.parents[1] / "scripts" / "run-readme-blocks"
    ran = subprocess.run([sys.executable, str(script), document], env=env, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_everything_public_explains_itself() -> None:
    for name in sl.__all__:
        thing = getattr(sl, name)
        assert isinstance(thing, str) or inspect.getdoc(thing), f"{name} has no documentation"


def test_type_checkers_find_the_types() -> None:
    assert sl.__file__ is not None
    package = Path(sl.__file__).parent
    assert (package / "py.typed").exists()
    assert (package / "_native.pyi").exists()
    assert (package.parent / "multiverso" / "py.typed").exists()


@pytest.mark.parametrize(
    "checker",
    [["mypy"], ["mypy.stubtest", "syncline", "multiverso", "--mypy-config-file", "pyproject.toml", *ELSEWHERE]],
)
def test_the_types_are_strict_and_the_stubs_tell_the_truth(checker: list[str]) -> None:
    pytest.importorskip("mypy", reason="mypy is not installed")
    checked = subprocess.run([sys.executable, "-m", *checker], cwd=SOURCE, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_command_is_installed_and_python_dash_m_is_the_same() -> None:
    expected = subprocess.run([command("syncline"), "--version"], env=environment(), capture_output=True, text=True)
    module = [sys.executable, "-m", "syncline", "--version"]
    again = subprocess.run(module, env=environment(), capture_output=True, text=True)
    assert (again.returncode, again.stdout, again.stderr) == (expected.returncode, expected.stdout, expected.stderr)
    assert expected.returncode == 0
    assert sl.__version__ in expected.stdout


@pytest.mark.parametrize(("level", "lines"), [("INFO", 1), ("WARNING", 0)])
def test_the_log_goes_to_pythons_logging(stage: Stage, level: str, lines: int) -> None:
    ranks = stage.start_ranks(
        2,
        f"""
        import logging
        logging.basicConfig(level="{level}", format="%(name)s %(levelname)s %(message)s")
        import syncline as sl
        sl.init()
        """,
    )
    for number, rank in enumerate(ranks):
        ended = rank.end()
        assert len(re.findall(rf"^syncline INFO .*rank {number} of 2", ended.err, re.MULTILINE)) == lines, ended
