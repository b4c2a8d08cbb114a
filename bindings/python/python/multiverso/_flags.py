"""Multiverso's command-line flags, as far as they still mean something: ``-sync=true``, ``-updater_type=sgd``."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

LOGGER = logging.getLogger("syncline")

# Roles belong to the launcher here: SYNCLINE_ROLE, or `syncline run --servers`; averaging needs no mode of its own.
ELSEWHERE = {"ps_role": "use SYNCLINE_ROLE or syncline run --servers", "ma": "use syncline.aggregate"}

# Known to the original and without a counterpart here: transports and memory are found, not configured.
IGNORED = {
    "backup_worker_ratio",
    "omp_threads",
    "machine_file",
    "port",
    "allocator_type",
    "allocator_alignment",
    "logtostderr",
}


@dataclass(frozen=True)
class Flags:
    """What the flags of ``init`` said."""

    sync: bool = False
    updater: str = "add"


current = Flags()


def parse(arguments: Sequence[str]) -> Flags:
    """One or two dashes, ``name=value``; whatever is no flag, such as the program's name, is left alone."""
    flags = Flags()
    for argument in arguments:
        if not argument.startswith("-"):
            continue
        name, given, value = argument.lstrip("-").partition("=")
        if name == "sync":
            flags = Flags(not given or value.lower() == "true", flags.updater)
        elif name == "updater_type" and given:
            flags = Flags(flags.sync, value)
        elif name in ELSEWHERE:
            LOGGER.warning("multiverso: the flag %s has no effect here: %s", argument, ELSEWHERE[name])
        elif name in IGNORED:
            LOGGER.info("multiverso: the flag %s has no effect here", argument)
        else:
            LOGGER.warning("multiverso: the flag %s is unknown and ignored", argument)
    return flags
