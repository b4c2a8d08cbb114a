"""An array that speaks nothing but DLPack, as a framework's tensor does, without the framework."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

CPU, GPU = 1, 2
INT, UINT, FLOAT, BFLOAT, COMPLEX, BOOL = 0, 1, 2, 4, 5, 6
KINDS = {"i": INT, "u": UINT, "f": FLOAT, "c": COMPLEX, "b": BOOL}


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    pass


_DELETER = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _DELETER))

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


class Tensor:
    """Hands out the memory of a NumPy array; uint16 may pose as bfloat16."""

    def __init__(self, array: NDArray[Any], *, bfloat16: bool = False, device: int = CPU) -> None:
        self.array = array
        self.bfloat16 = bfloat16
        self.device = device
        self.out = 0  # exports that were not given back
        self._kept: list[Any] = []

    def __dlpack__(self) -> Any:
        array = self.array
        axes = ctypes.c_int64 * array.ndim
        managed = _Managed()
        managed.tensor.data = array.ctypes.data - 16  # the offset below makes up for it
        managed.tensor.byte_offset = 16
        managed.tensor.device_type = self.device
        managed.tensor.ndim = array.ndim
        managed.tensor.code = BFLOAT if self.bfloat16 else KINDS[array.dtype.kind]
        managed.tensor.bits = array.itemsize * 8
        managed.tensor.lanes = 1
        shape, strides = axes(*array.shape), axes(*(stride // array.itemsize for stride in array.strides))
        managed.tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
        managed.tensor.strides = ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64))
        managed.deleter = _DELETER(self._given_back)
        self.out += 1
        self._kept += [managed, shape, strides]
        return _new_capsule(ctypes.addressof(managed), b"dltensor", None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0

    def _given_back(self, _: Any) -> None:
        self.out -= 1


class Versioned:
    """NumPy's own export, which since DLPack 1.0 says whether it may be written to."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array

    def __dlpack__(self, **wishes: Any) -> Any:
        return self.array.__dlpack__(**wishes)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def tensor_of_bfloat16(numbers: list[float]) -> Tensor:
    """Numbers that bfloat16 holds exactly, as a tensor of it."""
    bits = np.asarray(numbers, np.float32).view(np.uint32) >> np.uint32(16)
    return Tensor(bits.astype(np.uint16), bfloat16=True)
