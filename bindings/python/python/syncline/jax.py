"""JAX on several processes: trees of arrays that are averaged, in ordinary code and under ``jit``.

    grads = sl.jax.all_reduce(grads)                                      # the mean over all workers
    optimizer = optax.chain(sl.jax.all_reduce_gradients(), optax.sgd(0.1))
    params = sl.jax.broadcast(params)                                     # everybody starts from worker 0's

Under ``jit`` a reduction is an ordered callback: it happens once per call of the compiled function, in the order of
the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from syncline import _arrays, _native, parameters
from syncline._errors import ConfigurationError, DTypeMismatch
from syncline._frameworks import framework
from syncline._job import tree as job_tree

library = framework("syncline.jax", "jax", install="pip install jax")

import jax  # noqa: E402  after the word of what is missing
from jax.experimental import io_callback  # noqa: E402

__all__ = ["GradientTransformation", "ParamManager", "all_reduce", "all_reduce_gradients", "broadcast"]

OPERATIONS = ("sum", "prod", "min", "max", "mean")
ALIGNED = 64  # bytes: where JAX takes memory over instead of copying it


def all_reduce(tree: Any, op: str = "mean") -> Any:
    """``tree``, any structure of arrays, combined over all workers; in ordinary code or inside of ``jit``.

    All workers make the same calls in the same order. ``op`` is sum, prod, min, max or mean.
    """
    if op not in OPERATIONS:
        raise ConfigurationError(f"all_reduce: op={op!r} is not one of {', '.join(OPERATIONS)}")
    leaves, structure = jax.tree_util.tree_flatten(tree)
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        shapes = [jax.ShapeDtypeStruct(np.shape(leaf), jax.numpy.result_type(leaf)) for leaf in leaves]
        results = io_callback(lambda *given: _reduced(given, op), shapes, *leaves, ordered=True)
    else:
        results = [_handed_over(array) for array in _reduced(leaves, op)]
    return jax.tree_util.tree_unflatten(structure, results)


def broadcast(tree: Any, root: int = 0) -> Any:
    """Worker ``root``'s ``tree``; the others' has the same structure and shapes."""
    workers = job_tree().nodes
    if not 0 <= root < workers:
        raise ConfigurationError(f"broadcast: root={root} is none of the workers 0 to {workers - 1}")
    leaves, structure = jax.tree_util.tree_flatten(tree)
    arrays = [_copy(np.asarray(leaf)) for leaf in leaves]
    job_tree().broadcast([array.reshape(-1).view(np.uint8) for array in arrays], root + 1)  # fills the others' in place
    return jax.tree_util.tree_unflatten(structure, [_handed_over(array) for array in arrays])


class GradientTransformation(NamedTuple):
    """Two functions as optax has them; what ``all_reduce_gradients`` returns where optax is not installed."""

    init: Any
    update: Any


def all_reduce_gradients(op: str = "mean") -> Any:
    """A gradient transformation, for ``optax.chain`` or alone, that combines gradients over all workers."""
    if op not in OPERATIONS:
        raise ConfigurationError(f"all_reduce_gradients: op={op!r} is not one of {', '.join(OPERATIONS)}")

    def init(params: Any) -> Any:
        return ()

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        return all_reduce(updates, op), state

    try:
        import optax
    except ImportError:
        return GradientTransformation(init, update)
    return optax.GradientTransformation(init, update)


class ParamManager(parameters.ParamManager):
    """Exchanges a tree of parameters through a table: everybody's changes are added up.

    JAX's arrays never change, so ``sync`` takes the parameters as they are now and returns the common ones, which
    ``params`` also is: ``params = manager.sync(params)``.
    """

    def __init__(self, params: Any) -> None:
        self.params = params
        super().__init__(None)

    def get_values(self) -> Sequence[Any]:
        """The leaves."""
        return [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(self.params)]

    def set_values(self, values: list[Any]) -> None:
        """New leaves in the same structure."""
        structure = jax.tree_util.tree_structure(self.params)
        copies = [_handed_over(_copy(np.asarray(value))) for value in values]
        self.params = jax.tree_util.tree_unflatten(structure, copies)

    def sync(self, params: Any = None) -> Any:
        """Adds what has changed since the last sync, and returns the sum of everybody's changes."""
        if params is not None:
            self.params = params
        super().sync()
        return self.params


class _Buffers(NamedTuple):
    """Copies of leaves: as NumPy shows them, the same with bfloat16 as bits, and the names of their dtypes."""

    arrays: list[Any]
    plain: list[Any]
    dtypes: list[str]


def _reduced(leaves: Sequence[Any], op: str) -> list[Any]:
    tree = job_tree()
    buffers = _gathered(leaves)
    if op == "mean":  # refused alone, too: who writes a program sees it before the job does
        whole = [dtype for array, dtype in zip(buffers.arrays, buffers.dtypes, strict=True) if array.dtype.kind in "biu"]
        if whole:
            raise DTypeMismatch(f"all_reduce: the mean of {whole[0]} is no {whole[0]}\nhint: use floating point, or sum")
    if tree.nodes > 1 and buffers.arrays:
        names = [str(place) for place in range(len(buffers.plain))]
        _native.reduce_leaves(tree, buffers.plain, buffers.dtypes, names, op, True)
    return buffers.arrays


def _gathered(leaves: Sequence[Any]) -> _Buffers:
    """One copy of each leaf, since JAX's own memory must not change, where JAX can take it back without another."""
    arrays = [_copy(np.asarray(leaf)) for leaf in leaves]
    plain, dtypes = [], []
    for array in arrays:
        bits, name = _arrays._opened(array)
        if name not in _arrays.KNOWN:
            raise DTypeMismatch(f"all_reduce: {name} is not one of {', '.join(_arrays.KNOWN)}")
        plain.append(bits.reshape(-1))
        dtypes.append(name)
    return _Buffers(arrays, plain, dtypes)


def _copy(array: Any) -> Any:
    memory = np.empty(array.nbytes + ALIGNED, np.uint8)
    start = -memory.ctypes.data % ALIGNED
    aligned = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    np.copyto(aligned, array)
    return aligned


def _handed_over(array: Any) -> Any:
    """The array as JAX's own, without a copy: nobody else has it. bfloat16 cannot be handed over so, and is copied."""
    if array.dtype.kind == "V" or array.size == 0:
        return jax.numpy.asarray(array)
    return jax.numpy.from_dlpack(array)
