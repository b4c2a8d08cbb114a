"""Trees, as far as they are better said in Python: nested values are walked, and leaves that lie oddly are laid out.

The native half comes here for everything but a lone, contiguous, writable array and an operation with a name. Leaves
are visited in an order that all nodes share: lists in order, dicts by key.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from syncline import _arrays, _native
from syncline._arrays import BFLOAT16, KNOWN, Array
from syncline._errors import ConfigurationError, DTypeMismatch, ShapeMismatch

OPERATIONS = ("sum", "prod", "min", "max", "mean", "and", "or")
TRUTH_HAS = ("prod", "min", "max", "and", "or")  # what two booleans become is one of them

Reduce = str | Callable[[Any, Any], Any] | None
Zero = Callable[[Any, int], Any]


def all_reduce(tree: _native.Tree, value: Any, reduce: Reduce, zero: Zero | None) -> tuple[Any, int]:
    """``Tree.all_reduce`` of anything."""
    how = _checked(reduce)
    if zero is None:
        if value is None:
            raise ConfigurationError("all_reduce: there is no value\nhint: only a call with `zero` may do without one")
        result = _round(tree, value, how, None)
        _native.remember_value(tree, value)
        return result
    if value is None:
        value = _native.last_value(tree)
        if value is None:
            raise ConfigurationError(
                "all_reduce: no value, and no earlier call whose value would do\n"
                "hint: pass a value of the others' structure"
            )
    while True:
        result, contributors = _round(tree, value, how, zero)
        if contributors == 0:
            return result, 0


def all_reduce_async(tree: _native.Tree, value: Any, reduce: Reduce) -> Future:
    """``Tree.all_reduce_async`` of anything."""
    how = _checked(reduce)
    if value is None:
        raise ConfigurationError("all_reduce_async: there is no value")
    found = list(_leaves(value))
    paths, leaves = [path for path, _ in found], [leaf for _, leaf in found]
    if isinstance(how, str):
        slots = [_Slot(path, leaf, how) for path, leaf in found]
        reduction = _native.start_leaves(
            tree, [slot.work for slot in slots], [slot.dtype for slot in slots], paths, how
        )

        def reduced(timeout: float | None) -> tuple[list[Any], int]:
            contributors = reduction.wait(timeout)
            return [slot.result() for slot in slots], contributors

        return Future(value, reduction, reduced)
    folding = _native.start_fold(tree, leaves, _structure(paths, leaves), how)

    def folded(timeout: float | None) -> tuple[list[Any], int]:
        results, contributors = folding.wait(timeout)
        return [_poured_leaf(leaf, result) for leaf, result in zip(leaves, results, strict=True)], contributors

    return Future(value, folding, folded)


def reduce_scatter(tree: _native.Tree, value: Any, reduce: str) -> Array:
    """``Tree.reduce_scatter`` of any array."""
    if _checked(reduce) not in OPERATIONS:
        raise ConfigurationError("reduce_scatter: a function cannot be used here\nhint: use all_reduce, or a name")
    array, name = _arrays._opened(value)
    name = _reducible(array, name, reduce, "")
    part = _arrays.array_over(_native.scatter_reduced(tree, np.ascontiguousarray(array), name, reduce))
    if name == BFLOAT16:
        return _arrays.as_bfloat16(part)
    return part.view(np.bool_) if array.dtype == np.bool_ else part


def poured(own: Any, received: Any) -> Any:
    """``received``, in the arrays of ``own`` wherever these can take it."""
    if isinstance(own, dict) and isinstance(received, dict) and own.keys() == received.keys():
        return _like_dict(own, {key: poured(own[key], received[key]) for key in own})
    if isinstance(own, (list, tuple)) and isinstance(received, list) and len(own) == len(received):
        return _like_sequence(own, [poured(mine, theirs) for mine, theirs in zip(own, received, strict=True)])
    return _poured_leaf(own, received)


def walk_table(value: Any, f: Callable[[Any], Any]) -> Any:
    """``Tree.walk_table``."""

    def changed(leaf: Any) -> Any:
        result = f(leaf)
        return leaf if result is None else result

    return _rebuilt(value, iter([changed(leaf) for _, leaf in _leaves(value)]))


def introduced(node: int | None, nodes: int, server: Any, client: Any) -> tuple[int, Any, Any]:
    """This node's number, and how node 1 tells the others where it listens: through a server and its clients."""
    if server is not None:
        if node not in (None, 1):
            raise ConfigurationError(f"tree: node {node} has a server; node 1 has it, and the others a client")

        def publish(host: str, port: int) -> None:
            wishes: list[int | None] = []

            def ask(each: Any) -> None:
                wishes.append(each.recv()["node"])
                each.id(len(wishes))  # so that they are answered in the order in which they were asked

            server.clients(nodes - 1, ask)
            free = iter(sorted(set(range(2, nodes + 1)) - set(wishes)))
            numbers = [wish if wish is not None else next(free) for wish in wishes]

            def answer(each: Any) -> None:
                node = numbers[each.id() - 1]
                each.send({"node": node, "host": host, "port": port})

            server.clients(nodes - 1, answer)

        return 1, publish, lambda: None
    client.send({"node": node})
    answer = client.recv()
    return int(answer["node"]), lambda host, port: None, lambda: (answer["host"], answer["port"])


class Future:
    """A reduction that is under way; ``wait()`` returns what ``all_reduce`` would."""

    __module__ = "syncline"

    def __init__(
        self,
        value: Any,
        started: _native.Reduction | _native.Folding,
        leaves: Callable[[float | None], tuple[list[Any], int]],
    ) -> None:
        self._value, self._started, self._leaves = value, started, leaves
        self._result: tuple[Any, int] | None = None

    def wait(self, timeout: float | None = None) -> tuple[Any, int]:
        """The value, reduced, and the number of nodes that contributed; the same each time.

        ``timeout`` is in seconds: when it is over, ``Timeout`` is raised and the reduction goes on.
        """
        if self._result is None:
            leaves, contributors = self._leaves(timeout)
            self._result = _rebuilt(self._value, iter(leaves)), contributors
        return self._result

    def result(self, timeout: float | None = None) -> tuple[Any, int]:
        """``wait`` by the name that Python's own futures use."""
        return self.wait(timeout)

    def done(self) -> bool:
        """Whether ``wait()`` would return at once."""
        return self._result is not None or self._started.done()


def _checked(reduce: Reduce) -> str | Callable[[Any, Any], Any]:
    if reduce is None:
        return "sum"
    if isinstance(reduce, str) and reduce not in OPERATIONS:
        raise ConfigurationError(
            f"all_reduce: reduce={reduce!r} is not one of {', '.join(OPERATIONS)}, and no function"
        )
    if not isinstance(reduce, str) and not callable(reduce):
        raise ConfigurationError(f"all_reduce: reduce={reduce!r} is neither the name of an operation nor a function")
    return reduce


def _round(tree: _native.Tree, value: Any, how: str | Callable[[Any, Any], Any], zero: Zero | None) -> tuple[Any, int]:
    """One reduction; with ``zero`` this node only takes part."""
    paths, leaves = [], []
    for index, (path, leaf) in enumerate(_leaves(value)):
        paths.append(path)
        leaves.append(leaf if zero is None else _zeroed(leaf, zero(leaf, index)))
    if isinstance(how, str):
        slots = [_Slot(path, leaf, how) for path, leaf in zip(paths, leaves, strict=True)]
        contributors = _native.reduce_leaves(
            tree, [slot.work for slot in slots], [slot.dtype for slot in slots], paths, how, zero is None
        )
        results = [slot.result() for slot in slots]
    else:
        folded, contributors = _native.fold_leaves(tree, leaves, _structure(paths, leaves), how, zero is None)
        results = [_poured_leaf(leaf, result) for leaf, result in zip(leaves, folded, strict=True)]
    return _rebuilt(value, iter(results)), contributors


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """All leaves with their paths, such as ``layers.0.weight``."""
    items: Iterator[tuple[Any, Any]]
    if isinstance(value, dict):
        items = ((key, value[key]) for key in _in_order(value, path))
    elif isinstance(value, (list, tuple)):
        items = iter(enumerate(value))
    else:
        yield path, value
        return
    for key, item in items:
        yield from _leaves(item, f"{path}.{key}" if path else str(key))


def _in_order(value: dict[Any, Any], path: str) -> list[Any]:
    if not all(isinstance(key, str) for key in value) and not all(isinstance(key, int) for key in value):
        place = f" of `{path}`" if path else ""
        raise ShapeMismatch(f"all_reduce: the keys{place} have no order\nhint: use only numbers or only texts")
    return sorted(value)


def _rebuilt(value: Any, results: Iterator[Any]) -> Any:
    """The same structure over other leaves, which come in the order of ``_leaves``."""
    if isinstance(value, dict):
        changed = {key: _rebuilt(value[key], results) for key in _in_order(value, "")}
        return _like_dict(value, changed)
    if isinstance(value, (list, tuple)):
        return _like_sequence(value, [_rebuilt(item, results) for item in value])
    return next(results)


def _like_dict(value: dict[Any, Any], changed: dict[Any, Any]) -> dict[Any, Any]:
    same = copy.copy(value)  # keeps the order of its keys, and what kind of dict it is
    same.update(changed)
    return same


def _like_sequence(value: list[Any] | tuple[Any, ...], items: list[Any]) -> Any:
    if isinstance(value, list):
        return items
    return type(value)(*items) if hasattr(value, "_fields") else tuple(items)


class _Slot:
    """A leaf, the contiguous array that is reduced for it, and the way back."""

    __slots__ = ("_back", "dtype", "work")

    def __init__(self, path: str, leaf: Any, op: str) -> None:
        self._back: Callable[[], Any]
        if isinstance(leaf, (bool, int, float)) and not isinstance(leaf, np.generic):
            self._number(path, leaf, op)
        elif isinstance(leaf, np.generic):
            array, name = _arrays._opened(np.array([leaf]))
            self.dtype = _reducible(array, name, op, path)
            self.work = array.view(np.uint8) if array.dtype == np.bool_ else array
            self._back = lambda: self.work.view(np.asarray(leaf).dtype)[0]
        else:
            self._array(path, leaf, op)

    def result(self) -> Any:
        """What became of the leaf."""
        return self._back()

    def _number(self, path: str, leaf: float, op: str) -> None:
        if isinstance(leaf, bool) and op in TRUTH_HAS:
            self.work, self.dtype = np.array([leaf], np.uint8), "uint8"
            self._back = lambda: bool(self.work[0])
        elif isinstance(leaf, int) and op != "mean":
            if not -(2**63) <= leaf < 2**63:
                raise ShapeMismatch(f"all_reduce: {leaf}{_at(path)} does not fit into 64 bits")
            self.work, self.dtype = np.array([leaf], np.int64), "int64"
            self._back = lambda: int(self.work[0])
        else:
            self.work, self.dtype = np.array([leaf], np.float64), "float64"
            self._back = lambda: float(self.work[0])

    def _array(self, path: str, leaf: Any, op: str) -> None:
        memory, name = _opened(leaf, path, op)
        self.dtype = _reducible(memory, name, op, path)
        if name == "bool":
            memory = memory.view(np.uint8)
        in_place = memory.flags.writeable and not _arrays._is_secretly_constant(leaf)
        if in_place and memory.flags.c_contiguous:
            # The buffer protocol has no word for an array without axes.
            self.work, self._back = memory if memory.ndim else memory.reshape(1), lambda: leaf
        elif in_place:
            self.work = np.array(memory, order="C")

            def back() -> Any:
                np.copyto(memory, self.work)
                return leaf

            self._back = back
        else:
            self.work = np.array(memory, order="C").reshape(memory.shape or 1)
            self._back = lambda: _presented(self.work.reshape(memory.shape), name)


def _opened(leaf: Any, path: str, op: str) -> tuple[Array, str]:
    if not isinstance(leaf, np.ndarray) and not hasattr(leaf, "__dlpack__"):
        try:
            leaf = np.asarray(memoryview(leaf))
        except TypeError:
            kind = type(leaf).__name__
            raise DTypeMismatch(
                f"all_reduce: a {kind}{_at(path)} has no {op}\nhint: pass a function that reduces it"
            ) from None
    return _arrays._opened(leaf)


def _reducible(array: Array, name: str, op: str, path: str) -> str:
    """The dtype that ``array`` is reduced in."""
    if name == "bool":
        if op not in TRUTH_HAS:
            raise DTypeMismatch(
                f"all_reduce: the {op} of booleans{_at(path)} is no boolean\nhint: use and, or, min, max"
            )
        return "uint8"
    if name not in KNOWN:
        raise DTypeMismatch(f"all_reduce: {name}{_at(path)} is not one of {', '.join(KNOWN)}")
    if op == "mean" and name != BFLOAT16 and array.dtype.kind != "f":
        raise DTypeMismatch(f"all_reduce: the mean of {name}{_at(path)} is no {name}\nhint: use floating point, or sum")
    return name


def _presented(work: Array, name: str) -> Any:
    if name == BFLOAT16:
        return _arrays.as_bfloat16(work)
    return work.view(np.bool_) if name == "bool" else work


def _zeroed(leaf: Any, zero: Any) -> Any:
    """What ``zero`` made of a leaf, as the kind of leaf that it was; None means that it was changed in place."""
    if zero is None or zero is leaf:
        return leaf
    if isinstance(leaf, float):
        return type(leaf)(zero) if isinstance(leaf, np.generic) else float(zero)
    if isinstance(leaf, np.ndarray) or hasattr(leaf, "__dlpack__"):
        memory, name = _arrays._opened(leaf)
        if memory.flags.writeable and name != BFLOAT16 and not hasattr(zero, "__dlpack__"):
            np.copyto(memory, zero, casting="same_kind" if isinstance(zero, np.ndarray) else "unsafe")
            return leaf
        if memory.flags.writeable:
            _arrays.pour(_arrays.converted(zero, name, "all_reduce"), name, memory, name)
            return leaf
    return zero


def _poured_leaf(own: Any, received: Any) -> Any:
    """``received``, in the array ``own`` if that can take it."""
    if (
        not isinstance(received, np.ndarray)
        or own is None
        or isinstance(own, (bool, int, float, str, bytes, np.generic))
    ):
        return received
    if not isinstance(own, np.ndarray) and not hasattr(own, "__dlpack__"):
        return received
    memory, name = _arrays._opened(own)
    theirs, their_name = _arrays._opened(received)
    if not memory.flags.writeable or memory.shape != theirs.shape or name != their_name:
        return received
    np.copyto(memory, theirs)
    return own


def _structure(paths: list[str], leaves: list[Any]) -> str:
    """What all nodes must agree on when a function reduces leaves."""
    return "\n".join(f"{path}: {_kind(leaf)}" for path, leaf in zip(paths, leaves, strict=True))


def _kind(leaf: Any) -> str:
    """What a leaf is, as far as all nodes must agree when a function reduces it: any number may meet any other."""
    if isinstance(leaf, (bool, int, float)):
        return "number"
    if isinstance(leaf, np.ndarray) or hasattr(leaf, "__dlpack__"):
        array, name = _arrays._opened(leaf)
        return f"{name} {array.shape}"
    return type(leaf).__name__


def _at(path: str) -> str:
    return f" at `{path}`" if path else ""
