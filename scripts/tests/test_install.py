"""`make install` and Perl's own `make install` put everything where it is looked for; only the compiler is a stand-in."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Makes what a build would leave behind, and notes how it was called.
CARGO = """#!/usr/bin/env bash
set -eu
echo "$*" >>"$CARGO_TARGET_DIR/calls"
profile=release
case " $* " in *" --profile dev "*) profile=debug ;; esac
mkdir -p "$CARGO_TARGET_DIR/$profile"
for name in syncline libsyncline_c.so libsyncline_c.a libsyncline_native.so; do
  echo "$name of $*" >"$CARGO_TARGET_DIR/$profile/$name"
done
"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment in which cargo is a stand-in with a folder of its own."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "target").mkdir()
    cargo = tmp_path / "bin" / "cargo"
    cargo.write_text(CARGO)
    cargo.chmod(0o755)
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("SYNCLINE_", "MAKE", "PERL", "C_", "LUA_"))}
    return {**ours, "PATH": f"{cargo.parent}:{os.environ['PATH']}", "CARGO_TARGET_DIR": str(tmp_path / "target")}


def ran(command: list[str], folder: Path, env: dict[str, str]) -> None:
    ended = subprocess.run(command, cwd=folder, env=env, text=True, capture_output=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_make_install_puts_every_face_below_the_prefix(tmp_path: Path, env: dict[str, str]) -> None:
    stage = tmp_path / "stage"
    ran(["make", "install", "PREFIX=/opt/syncline", f"DESTDIR={stage}"], ROOT, env)
    prefix = stage / "opt/syncline"
    assert os.access(prefix / "bin/syncline", os.X_OK)
    for file in [
        "include/syncline.h",
        "lib/libsyncline.a",
        "lib/lua/5.1/syncline_native.so",
        "lib/lua/5.4/syncline_native.so",
        "share/lua/5.1/multiverso/init.lua",
        "share/lua/5.4/ipc/utils.lua",
        "share/perl5/AI/MXNet.pm",
        "share/perl5/Syncline/KVStore.pm",
    ]:
        assert (prefix / file).exists(), file
    # Links lead to the library wherever the stage ends up, and programs are told of the prefix, not of the stage.
    assert (prefix / "lib/libsyncline.so").read_text().startswith("libsyncline_c.so of build")
    assert not os.path.isabs(os.readlink(prefix / "lib/libsyncline.so"))
    for package in ("syncline", "syncline-static"):
        text = (prefix / f"lib/pkgconfig/{package}.pc").read_text()
        assert "prefix=/opt/syncline" in text
        assert str(stage) not in text
        assert "@" not in text
    # Each Lua has the library that was built for it.
    for version, feature in (("5.1", "lua51"), ("5.4", "lua54")):
        assert f"--features {feature}" in (prefix / f"lib/lua/{version}/syncline_native.so").read_text()
    assert all("release" in call for call in (tmp_path / "target/calls").read_text().splitlines())


def test_perls_own_install_builds_the_library_and_takes_it_along(tmp_path: Path, env: dict[str, str]) -> None:
    if subprocess.run(["perl", "-MExtUtils::MakeMaker", "-e1"], capture_output=True).returncode != 0:
        pytest.skip("perl has no ExtUtils::MakeMaker")
    # As in the project's folders, where nobody says which library: then cargo makes it.
    here = tmp_path / "project/bindings/perl"
    shutil.copytree(ROOT / "bindings/perl", here, ignore=shutil.ignore_patterns("blib", "build", "Makefile"))
    for file in ("Cargo.toml", "bindings/c/Cargo.toml"):
        (tmp_path / "project" / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / "project" / file)
    for profile in ("release", "dev"):
        base = tmp_path / profile
        ran(["perl", "Makefile.PL", f"INSTALL_BASE={base}"], here, {**env, "PERL_PROFILE": profile})
        ran(["make", "install"], here, env)
        library = base / "lib/perl5/auto/Syncline/libsyncline.so"
        assert f"--package syncline-c --profile {profile}" in library.read_text()
        assert (base / "lib/perl5/AI/MXNet/KVStore.pm").exists()
        ran(["make", "distclean"], here, env)
