"""Where in the user's program a call stands, so that two calls that differ can both be shown."""

from __future__ import annotations

import sys
from types import CodeType

OURS = ("syncline", "multiverso")

# Places that called before, by code and instruction: a training loop makes the same call for ever, and asks each time.
# The code is kept, so that no other gets its id.
_known: dict[tuple[int, int], tuple[CodeType, str]] = {}
_MOST = 1000


def caller() -> str:
    """``file:line`` of the innermost frame that belongs to neither package of ours."""
    frame = sys._getframe(1)
    key = (id(frame.f_code), frame.f_lasti)
    if key in _known:
        return _known[key][1]
    innermost = frame
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in OURS:
        frame = frame.f_back
    place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    if frame is innermost:
        if len(_known) >= _MOST:
            _known.clear()
        _known[key] = frame.f_code, place
    return place
