"""Jobs with tables, and what they said: for the tests beside this file."""

from __future__ import annotations

import re

from conftest import Ended, Stage, command

# How many workers, how many dedicated servers.
LAYOUTS = [(workers, servers) for workers in (1, 2, 3, 4) for servers in (0, 1, 2, 3)]
SOME = [(1, 0), (3, 0), (2, 1), (3, 2)]


def run(stage: Stage, workers: int, servers: int, code: str, *, transport: str | None = None) -> Ended:
    more = ["--servers", str(servers)] if servers else []
    env = {"SYNCLINE_TRANSPORT": transport} if transport else {}
    return stage.run(code, under=[command("syncline"), "run", "-n", str(workers), *more], env=env)


def said(ended: Ended, word: str) -> list[str]:
    """What followed `word` in the lines of the job, whoever printed them."""
    return re.findall(rf"\b{word}\b ?(.*)$", ended.out, re.MULTILINE)
