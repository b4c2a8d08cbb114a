"""The README's blocks are found and really run: a block that is wrong has to fail."""

import importlib.machinery
import importlib.util
from pathlib import Path
from types import ModuleType

SCRIPT = Path(__file__).resolve().parent.parent / "run-readme-blocks"


def load() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("run_readme_blocks", str(SCRIPT))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up by name.
    import sys

    sys.modules[loader.name] = module
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


readme = load()


def only(text: str):
    (block,) = readme.blocks_of(text)
    return block


def test_only_sh_and_python_blocks_are_taken() -> None:
    text = "```text\nno\n```\nwords\n```sh\nyes\n```\n```python file=a.py\n1\n```\n```\nno\n```\n"
    blocks = readme.blocks_of(text)
    assert [(block.line, block.language, block.words, block.text) for block in blocks] == [
        (5, "sh", [], "yes\n"),
        (8, "python", ["file=a.py"], "1\n"),
    ]


def test_a_block_that_works_passes_and_one_that_fails_is_told(tmp_path: Path) -> None:
    assert readme.run(only("```sh\ntrue\n```\n"), tmp_path) is None
    assert "code 1" in readme.run(only("```sh\nfalse\ntrue\n```\n"), tmp_path)
    assert "ZeroDivisionError" in readme.run(only("```python\n1 / 0\n```\n"), tmp_path)


def test_a_block_that_shows_a_failure_has_to_fail(tmp_path: Path) -> None:
    assert readme.run(only("```sh fails\nfalse\n```\n"), tmp_path) is None
    assert readme.run(only("```sh fails\ntrue\n```\n"), tmp_path) is not None


def test_a_named_block_is_there_for_the_next(tmp_path: Path) -> None:
    assert readme.run(only("```python file=hello.py\nprint('hello')\n```\n"), tmp_path) is None
    assert readme.run(only("```sh\npython hello.py | grep hello\n```\n"), tmp_path) is None


def test_make_is_looked_up_and_not_run(tmp_path: Path) -> None:
    assert readme.run(only("```sh\nmake test   # all of them\n```\n"), tmp_path) is None
    assert "no target" in readme.run(only("```sh\nmake gone\n```\n"), tmp_path)


def test_a_command_that_is_not_there_is_a_reason_to_skip(monkeypatch) -> None:
    monkeypatch.setattr(readme.shutil, "which", lambda name: None if name == "srun" else f"/usr/bin/{name}")
    assert readme.missing_command("srun -n 4 python hello.py") == "srun"
    assert readme.missing_command("mpirun -np 4 python hello.py") is None
    assert readme.missing_command("python srunner.py") is None
