"""The answer of a read that found nothing, told apart from None."""

from __future__ import annotations


class Nothing:
    """The type of ``NOTHING``."""

    __module__ = "syncline.ipc"

    def __repr__(self) -> str:
        return "syncline.ipc.NOTHING"

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> str:
        return "NOTHING"  # there is one in every process


NOTHING = Nothing()
"""What a read that does not wait returns when nothing is there: told apart from None, which is a value like any other."""
