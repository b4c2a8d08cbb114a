"""Arrays as tables keep them; scripts know this module as ``multiverso.utils``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray


def convert_data(data: Any) -> NDArray[Any]:
    """``data`` as a float32 array in C order, whatever it was."""
    import numpy as np

    return np.ascontiguousarray(data, np.float32)
