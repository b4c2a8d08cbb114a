"""Builds the wheel in two steps: cargo makes the command ``syncline``, maturin the module, one wheel carries both.

A PEP 517 backend (``backend-path`` in pyproject.toml): every hook is maturin's; those that build put the command where
maturin takes scripts from. Needs the whole checkout, since the command is a crate beside this package.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, NoReturn

import maturin
from maturin import (  # noqa: F401  hooks that need no command
    get_requires_for_build_editable,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

PACKAGE = Path(__file__).resolve().parent.parent
WORKSPACE = PACKAGE.parent.parent
SCRIPTS = PACKAGE / "wheel-data" / "scripts"  # `data` of pyproject.toml

SCRIPTS.mkdir(parents=True, exist_ok=True)  # maturin wants to see it even when asked for metadata only


def build_wheel(directory: str, settings: dict[str, Any] | None = None, metadata: str | None = None) -> str:
    stage_command()
    return str(maturin.build_wheel(directory, settings, metadata))


def build_editable(directory: str, settings: dict[str, Any] | None = None, metadata: str | None = None) -> str:
    stage_command()
    return str(maturin.build_editable(directory, settings, metadata))


def build_sdist(directory: str, settings: dict[str, Any] | None = None) -> NoReturn:
    raise SystemExit("syncline is built from its repository: use pip wheel or pip install on bindings/python there")


def stage_command() -> None:
    """Builds the command as the module is built, and copies it to where maturin takes scripts from."""
    cargo = os.environ.get("CARGO", "cargo")
    build = [cargo, "build", "--release", "--package", "syncline-cli", "--bin", "syncline"]
    messages = subprocess.run(
        [*build, "--message-format", "json-render-diagnostics"],
        cwd=WORKSPACE,
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    # Cargo says where it put the binary, whatever CARGO_TARGET_DIR or a config file made of that.
    made = [message.get("executable") for message in map(json.loads, messages.splitlines())]
    (command,) = [path for path in made if path]
    # Replaced rather than written over: a command that runs from here keeps its file.
    staged = SCRIPTS / "syncline.new"
    shutil.copy2(command, staged)
    staged.replace(SCRIPTS / "syncline")
