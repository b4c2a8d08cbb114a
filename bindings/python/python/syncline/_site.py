"""Where in the user's program a call stands, so that two calls that differ can both be shown."""

from __future__ import annotations

import sys

OURS = ("syncline", "multiverso")


def innermost() -> tuple[str, bool]:
    """``file:line`` of the innermost frame that belongs to neither package of ours, and whether that one called us.

    Then its instruction calls from this place always, and `site.rs` remembers it: a training loop makes the same call
    for ever, and would ask each time.
    """
    frame = first = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in OURS:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}", frame is first
