"""A module's tensors: given to everybody, averaged, or kept in a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from syncline import _native, parameters
from syncline._errors import ConfigurationError
from syncline._job import tree as job_tree
from syncline.torch._tensors import memory, named_tensors, reducible


def broadcast_parameters(module_or_state: Any, root: int = 0) -> None:
    """Gives everybody worker ``root``'s tensors, in place.

    A module (its buffers too), a state dict, a list of tensors, or pairs with names such as ``named_parameters()``.
    """
    tree = job_tree()
    tensors = [tensor for _, tensor in named_tensors(module_or_state)]
    if not 0 <= root < tree.nodes:
        raise ConfigurationError(f"broadcast_parameters: root={root} is none of the workers 0 to {tree.nodes - 1}")
    if tree.nodes == 1:
        return
    own = [each.detach().cpu().contiguous() for each in tensors]
    plain = [memory(each.view(torch.uint8) if each.dtype == torch.bool else each) for each in map(_real, own)]
    tree.broadcast(plain, root + 1)  # fills the others' arrays in place
    with torch.no_grad():
        for tensor, value in zip(tensors, own, strict=True):
            if value.data_ptr() != tensor.data_ptr():
                tensor.copy_(value)


def all_reduce(tensors: Any, op: str = "mean") -> Any:
    """Combines tensors (one, a list, a module's) over all workers in place, and returns what was given."""
    slots = [reducible(tensor, op) for _, tensor in named_tensors(tensors)]
    tree = job_tree()
    names = [str(place) for place in range(len(slots))]
    _native.reduce_leaves(tree, [each[0] for each in slots], [each[1] for each in slots], names, op, True)
    for _, _, back in slots:
        back()
    return tensors


def device() -> torch.device:
    """This worker's GPU, the i-th of its host for the i-th worker there, or the CPU where there is none."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", _native.local_rank() % torch.cuda.device_count())


class ParamManager(parameters.ParamManager):
    """Exchanges a module's parameters and buffers through a table: everybody's changes are added up."""

    def get_values(self) -> Sequence[Any]:
        """All floating-point tensors of the state, as they lie in memory where that is this host's."""
        return [_bits(each.detach().cpu()) for each in self._tensors()]

    def set_values(self, values: list[Any]) -> None:
        """Copies the values into the module's own tensors."""
        with torch.no_grad():
            for tensor, value in zip(self._tensors(), values, strict=True):
                if tensor.dtype == torch.bfloat16:
                    value = value.astype("float32")
                tensor.copy_(torch.from_numpy(value))

    def _tensors(self) -> list[torch.Tensor]:
        return [tensor for _, tensor in named_tensors(self.model) if tensor.is_floating_point()]


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _bits(tensor: torch.Tensor) -> Any:
    return tensor if tensor.dtype == torch.bfloat16 else tensor.numpy()  # bfloat16 goes in by DLPack
