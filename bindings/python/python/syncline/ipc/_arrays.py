"""Arrays as messages, said in NumPy; ``src/ipc`` comes here with what is no plain Python object."""

from __future__ import annotations

from typing import Any

import numpy as np

from syncline import _arrays
from syncline._errors import DTypeMismatch


def opened(given: Any, operation: str) -> Any:
    """A C-contiguous array and the name of its dtype; or, for a number of NumPy's, Python's own."""
    if isinstance(given, np.generic) and given.dtype.kind in "biuf":
        return given.item()
    if not (isinstance(given, np.ndarray) or hasattr(given, "__dlpack__") or hasattr(given, "__array__")):
        raise DTypeMismatch(
            f"{operation}: an object of type {type(given).__name__} cannot be sent\n"
            "hint: messages are plain data (None, bool, int, float, str, bytes, list, dict) and arrays; nothing is pickled"
        )
    array, name = _arrays._opened(given)
    if name not in _arrays.KNOWN:
        raise DTypeMismatch(f"{operation}: arrays of {name} cannot be sent, only {', '.join(_arrays.KNOWN)}")
    # Unlike ascontiguousarray, this keeps an array without axes as it is.
    return np.asarray(array, order="C"), name


def target(out: Any) -> tuple[Any, str, Any]:
    """The memory of ``out``, its dtype, and where to receive instead if its layout does not allow it."""
    array, name = _arrays._opened_in_place(out, "recv")
    if name not in _arrays.KNOWN:
        raise DTypeMismatch(f"recv: nothing can be received into {name}, only into {', '.join(_arrays.KNOWN)}")
    return array, name, None if array.flags.c_contiguous else np.empty(array.shape, array.dtype)
