"""Tensors as the memory they are: what a reduction may work on, and the way back for what it may not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

from syncline import _native
from syncline._errors import ConfigurationError, DTypeMismatch, ShapeMismatch
from syncline._shared import empty_shared

REDUCIBLE = {
    torch.float32: "float32",
    torch.float64: "float64",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.int8: "int8",
    torch.int16: "int16",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.uint8: "uint8",
}


def nothing() -> None:
    """There is no way back to go: the tensor itself was worked on."""


def reducible(tensor: torch.Tensor, op: str) -> tuple[Any, str, Callable[[], None]]:
    """Contiguous memory of this host with the tensor's numbers, their dtype, and what brings the result back."""
    given = plain = tensor.detach()
    if given.is_complex():
        if op not in ("sum", "mean"):
            raise DTypeMismatch(f"all_reduce: complex numbers have no {op}")
        given = plain = torch.view_as_real(given)
    if plain.device.type != "cpu" or not plain.is_contiguous():
        plain = plain.cpu().contiguous()
    if plain.dtype == torch.bool:
        if op in ("sum", "mean"):
            raise DTypeMismatch(f"all_reduce: the {op} of booleans is no boolean\nhint: use MAX, MIN, BAND or BOR")
        plain = plain.view(torch.uint8)
    dtype = REDUCIBLE.get(plain.dtype)
    if dtype is None:
        raise DTypeMismatch(f"all_reduce: {tensor.dtype} is not one of {', '.join(REDUCIBLE.values())}")
    back = nothing if plain.data_ptr() == tensor.data_ptr() else lambda: _give_back(given, plain)
    return memory(plain), dtype, back


def start(tree: _native.Tree, array: Any, dtype: str, op: str, name: str = "") -> _native.Reduction:
    """Begins to reduce contiguous memory where it lies; where workers bring different names, all get an error."""
    return _native.start_leaves(tree, [array], [dtype], [name], op)


def shared(count: int, dtype: torch.dtype) -> torch.Tensor:
    """Room that neighbours work on in place: reducing it takes two meetings however large it is, and no copies."""
    size = torch.empty(0, dtype=dtype).element_size()
    # Gradients may outlive the interpreter, inside of PyTorch; then from_numpy's way to free them waits for ever.
    return from_dlpack(empty_shared(count * size, "uint8")).view(dtype)


def memory(plain: torch.Tensor) -> Any:
    """A NumPy array over a contiguous tensor's memory; bfloat16, which NumPy lacks, as 16 bits."""
    flat = plain.reshape(-1)
    return (flat.view(torch.int16) if plain.dtype == torch.bfloat16 else flat).numpy()


def _give_back(given: torch.Tensor, plain: torch.Tensor) -> None:
    with torch.no_grad():
        given.copy_(plain.view(given.dtype).reshape(given.shape))


class Slot:
    """A tensor's numbers as an array that can be sent and filled, and the way back."""

    def __init__(self, tensor: torch.Tensor) -> None:
        given = tensor.detach()
        if given.is_complex():
            given = torch.view_as_real(given)
        plain = given.cpu().contiguous()
        self.array = memory(plain.view(torch.uint8) if plain.dtype == torch.bool else plain)
        self._given, self._plain = given, plain

    def back(self) -> None:
        """Brings what was filled in back to the tensor, where that is not the same memory."""
        if self._plain.data_ptr() != self._given.data_ptr():
            with torch.no_grad():
                self._given.copy_(self._plain)


def fill(tensors: Sequence[torch.Tensor], arrays: Sequence[Any]) -> None:
    """Writes what was received into tensors of the same number of bytes."""
    for tensor, array in zip(tensors, arrays, strict=True):
        slot = Slot(tensor)
        if slot.array.nbytes != array.nbytes:
            raise ShapeMismatch(f"a tensor of {slot.array.nbytes} bytes cannot take the {array.nbytes} that were sent")
        slot.array.view("uint8")[:] = array.reshape(-1).view("uint8")
        slot.back()


def named_tensors(given: Any) -> list[tuple[str, torch.Tensor]]:
    """The tensors of a module, a state dict, a list of them, or of pairs with names, in the same order everywhere."""
    if isinstance(given, torch.nn.Module):
        given = given.state_dict(keep_vars=True)
    if isinstance(given, torch.Tensor):
        return [("tensor", given)]
    if isinstance(given, Mapping):
        return [(str(name), each) for name, each in given.items() if isinstance(each, torch.Tensor)]
    if not isinstance(given, Iterable):
        raise ConfigurationError(f"a module, a state dict or tensors are needed, not {type(given).__name__}")
    found: list[tuple[str, torch.Tensor]] = []
    for place, each in enumerate(given):
        name, tensor = each if isinstance(each, tuple) else (str(place), each)
        if not isinstance(tensor, torch.Tensor):
            raise ConfigurationError(f"{name} is a {type(tensor).__name__}, and no tensor")
        found.append((name, tensor))
    return found
