"""Where in the user's program a call stands, so that two calls that differ can both be shown."""

from __future__ import annotations

import sys
from types import FrameType

OURS = ("syncline", "multiverso")
# What calls our glue back: a line of theirs says nothing to somebody whose workers differ in what they asked of it.
FRAMEWORKS = ("jax", "keras", "lasagne", "optax", "pytensor", "sklearn", "theano", "torch")


def innermost() -> tuple[str, bool]:
    """``file:line`` of the innermost frame that belongs to neither package of ours, and whether that one called us.

    Then its instruction calls from this place always, and `site.rs` remembers it: a training loop makes the same call
    for ever, and would ask each time. Where a framework called us, the frame that called the framework is meant.
    """
    frame = first = sys._getframe(1)
    while frame.f_back is not None and _package(frame) in OURS:
        frame = frame.f_back
    caller: FrameType | None = frame
    while caller is not None and _package(caller) in (*OURS, *FRAMEWORKS):
        caller = caller.f_back
    frame = caller or frame  # a thread of a framework has nobody behind it
    return f"{frame.f_code.co_filename}:{frame.f_lineno}", frame is first


def _package(frame: FrameType) -> str:
    name: str = frame.f_globals.get("__name__", "")
    return name.partition(".")[0]
