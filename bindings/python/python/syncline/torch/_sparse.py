"""Sparse gradients, as ``Embedding(sparse=True)`` has them: only the rows that somebody touched travel.

Everybody gets everybody's rows and adds them up in the order of the workers, so that all have the same bits. What a
step sends grows with the rows of its batch and not with the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from syncline import _native
from syncline.torch._tensors import memory

_WIDE = {torch.float16: torch.float32, torch.bfloat16: torch.float32}  # halves are added up in float32


def exchange(
    tree: _native.Tree, parameters: Sequence[torch.Tensor], wholes: Mapping[int, torch.Tensor], op: str
) -> None:
    """Lets every ``grad`` be the sparse sum or mean of everybody's; None stays where nobody has one.

    ``wholes`` has what was combined already, by ``id``: the part of workers whose gradients were not sparse this time.
    """
    if not parameters:
        return
    gathered = tree.all_gather([_parts(each) for each in parameters])
    for place, parameter in enumerate(parameters):
        brought = [each[place] for each in gathered if each[place]]
        parameter.grad = _combined(parameter, brought, tree.nodes if op == "mean" else 1) if brought else None
        whole = wholes.get(id(parameter))
        if parameter.grad is not None and whole is not None and bool(whole.any()):
            parameter.grad = (parameter.grad + whole.to_sparse(1)).coalesce()


def _parts(parameter: torch.Tensor) -> list[Any]:
    """Its gradient as two arrays, where in the parameter and what, or nothing."""
    grad = parameter.grad
    if grad is None:
        return []
    # A parameter whose gradients are sparse on one worker may have a whole one on another.
    rows = (grad if grad.is_sparse else grad.to_sparse(1)).detach().cpu().coalesce()
    indices = rows.indices().contiguous()
    return [indices.numpy(), memory(rows.values().contiguous())]


def _combined(parameter: torch.Tensor, brought: list[list[Any]], divisor: int) -> torch.Tensor:
    dtype = parameter.dtype
    # One that was emptied by zero_grad() has lost its number of axes too; it matters only if all are.
    brought = [each for each in brought if each[1].size] or brought[:1]
    indices = torch.cat([torch.from_numpy(each[0]) for each in brought], dim=1)
    flat = [torch.from_numpy(each[1]) for each in brought]
    values = torch.cat([each.view(dtype) if each.dtype != dtype else each for each in flat]).to(_WIDE.get(dtype, dtype))
    shape = (indices.shape[1], *parameter.shape[indices.shape[0] :])
    total = torch.sparse_coo_tensor(indices, values.view(shape), parameter.shape).coalesce()
    mean = (total.values() / divisor).to(dtype)
    return torch.sparse_coo_tensor(total.indices(), mean, parameter.shape, device=parameter.device).coalesce()
