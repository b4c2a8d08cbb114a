"""Arrays as messages, said in NumPy; ``src/ipc`` comes here with what is no plain Python object."""

from __future__ import annotations

from typing import Any

import numpy as np

from syncline import _arrays
from syncline._errors import DTypeMismatch


def opened(given: Any, operation: str) -> Any:
    """The memory of an array in one line, its dtype and its shape; or, for a number of NumPy's, Python's own."""
    if isinstance(given, np.generic) and given.dtype.kind in "biuf":
        return given.item()
    if not (isinstance(given, np.ndarray) or hasattr(given, "__dlpack__") or hasattr(given, "__array__")):
        raise DTypeMismatch(
            f"{operation}: an object of type {type(given).__name__} cannot be sent\n"
            "hint: messages are arrays and plain data (None, bool, int, float, str, bytes, list, dict); no pickles"
        )
    array, name = _arrays._opened(given)
    if name not in _arrays.KNOWN:
        raise DTypeMismatch(f"{operation}: arrays of {name} cannot be sent, only {', '.join(_arrays.KNOWN)}")
    return np.ascontiguousarray(array).reshape(-1), name, array.shape


def target(out: Any) -> tuple[Any, str, tuple[int, ...], Any]:
    """Memory in one line to receive into, dtype and shape of ``out``, and ``out`` itself if that is other memory."""
    array, name = _arrays._opened_in_place(out, "recv")
    if name not in _arrays.KNOWN:
        raise DTypeMismatch(f"recv: nothing can be received into {name}, only into {', '.join(_arrays.KNOWN)}")
    if array.flags.c_contiguous:
        return array.reshape(-1), name, array.shape, None
    return np.empty(array.size, array.dtype), name, array.shape, array


def pour(memory: Any, into: Any) -> None:
    """Writes what was received into an array of another layout."""
    np.copyto(into, memory.reshape(into.shape))
