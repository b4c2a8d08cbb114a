"""``python -m syncline …`` is the command ``syncline …`` that was installed with this package."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig


def _command() -> str:
    beside = [sysconfig.get_path("scripts"), os.path.dirname(sys.executable)]
    found = shutil.which("syncline", path=os.pathsep.join(beside)) or shutil.which("syncline")
    if found is None:
        sys.exit(
            f"syncline: the command is neither in {beside[0]} nor on the PATH\n"
            "hint: install the package again (pip install --force-reinstall), or cargo install the crate syncline-cli"
        )
    return found


def main() -> None:
    command = _command()
    os.execv(command, [command, *sys.argv[1:]])


if __name__ == "__main__":
    main()
