"""Arrays in memory that tables reach without a copy."""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers know the name; the module `typing` is slow to load
if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import DTypeLike, NDArray


def empty_shared(shape: int | tuple[int, ...], dtype: DTypeLike = "float32") -> NDArray[Any]:
    """A NumPy array of zeros in memory that tables of this host reach too: adds of it as a whole are not copied.

    Before `init` there is nobody to share with, and it is an ordinary array of anything. A process forked later shares
    the memory rather than having a copy of it.

    It is a plain array otherwise: it may be sliced, kept and passed on, and lives as long as anything refers to it.
    """
    from syncline import _arrays  # NumPy is loaded when it is first needed

    return _arrays.empty_shared(shape, dtype)
