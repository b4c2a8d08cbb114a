"""An optimizer whose steps are taken with everybody's gradients, which travel while the backward pass goes on.

Gradients are put end to end into buckets, in the reverse order of the parameters, since that is about the order in
which they are computed. A bucket starts on its way once it is full and those before it have started, so the order is
the same on all workers; ``step()`` waits for them. Gradients of the next pass are written straight into the buckets,
which lie in memory that neighbours share: they are added up where they are. Behind its gradients a bucket brings notes:
who has a gradient at all, and whose is sparse. Sparse ones then travel by rows (``_sparse.py``).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from syncline import _native
from syncline._errors import ConfigurationError, SynclineError
from syncline._job import tree as job_tree
from syncline.torch import _sparse
from syncline.torch._tensors import REDUCIBLE, memory, shared, start

_numbers = itertools.count(1)  # of the optimizers, which all workers make in the same order
BUCKET_BYTES = 4 << 20  # large enough to be worth a meeting, small enough that the first starts early


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    op: str = "mean",
    *,
    backward_passes_per_step: int = 1,
) -> Any:
    """``optimizer``, changed so that gradients are combined over all workers before each step.

    It stays what it was (``isinstance`` holds, schedulers made after it work). ``named_parameters``, usually
    ``model.named_parameters()``, gives errors their names. ``op`` is mean or sum. With
    ``backward_passes_per_step=k`` gradients travel with every k-th backward pass, which accumulates as ever.

    What the optimizer sees is what it would see alone: a parameter that no worker has used keeps the gradient None, sparse
    gradients stay sparse, and parameters that are unfrozen or added later take part from then on, on all workers.
    ``synchronize()`` waits for the gradients before ``step()`` would, say to clip them; that step then does not wait
    again. All workers start from the same parameters: ``broadcast_parameters``.
    """
    if op not in ("mean", "sum"):
        raise ConfigurationError(f"DistributedOptimizer: op={op!r} is neither 'mean' nor 'sum'")
    if backward_passes_per_step < 1:
        raise ConfigurationError(f"DistributedOptimizer: {backward_passes_per_step} passes for a step is less than one")
    if hasattr(optimizer, "_syncline"):
        raise ConfigurationError("DistributedOptimizer: this optimizer is distributed already")
    if "step" in vars(optimizer):
        raise ConfigurationError(
            "DistributedOptimizer: something, perhaps a scheduler, has replaced this optimizer's step\n"
            "hint: make the DistributedOptimizer first, then the scheduler"
        )
    names = {id(tensor): name for name, tensor in named_parameters or ()}
    gradients = _Gradients(names, op, backward_passes_per_step)
    gradients.place(_trained(optimizer))
    kind = type(optimizer)
    optimizer.__class__ = type(kind.__name__, (_Distributed, kind), {"__module__": kind.__module__, "_kind": kind})
    optimizer._syncline = gradients
    return optimizer


class _Distributed:
    """What an optimizer can do beside what it could before."""

    _syncline: _Gradients
    _kind: type[torch.optim.Optimizer]

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Waits for everybody's gradients, and takes the step."""
        if closure is not None:

            def reduced() -> Any:
                with torch.enable_grad():
                    loss = closure()
                self._syncline.finish(_trained(self))
                return loss

            result = super().step(reduced)  # type: ignore[misc]
        else:
            if not self._syncline.finished:
                self._syncline.finish(_trained(self))
            result = super().step()  # type: ignore[misc]
        self._syncline.finished = False
        return result

    def synchronize(self) -> None:
        """Waits for everybody's gradients now; the next ``step()`` takes them as they are then."""
        self._syncline.finish(_trained(self))

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Inside of it ``step()`` combines nothing, after ``synchronize()`` in Horovod's manner."""
        if self._syncline.under_way():
            raise ConfigurationError(
                "skip_synchronize: gradients are on their way to the other workers\nhint: call synchronize() first"
            )
        self._syncline.finished = True
        try:
            yield
        finally:
            self._syncline.finished = False

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A copy, or what is loaded from a file, has parameters of its own and is an ordinary optimizer again."""
        state = super().__reduce_ex__(max(2, protocol))[2]
        if isinstance(state, dict):
            state = {name: value for name, value in state.items() if name != "_syncline"}
        return _ordinary, (self._kind,), state


def _ordinary(kind: Any) -> Any:
    return kind.__new__(kind)


def _trained(optimizer: Any) -> list[torch.Tensor]:
    """What it steps on now: groups come later, and layers are unfrozen."""
    return [each for group in optimizer.param_groups for each in group["params"] if each.requires_grad]


class _Gradients:
    """The gradients of all parameters on their way to the others and back."""

    def __init__(self, names: dict[int, str], op: str, passes: int) -> None:
        self.finished = False
        self._tree = job_tree()
        self._number = next(_numbers)
        self._names, self._op, self._passes = names, op, passes
        self._hooks: list[Any] = []
        self._buckets: list[_Bucket] = []
        self._next = 0
        self._bucket_of: dict[int, _Bucket | None] = {}  # None: its gradients are sparse, and in no bucket
        self._sparse: list[torch.Tensor] = []

    def place(self, parameters: Sequence[torch.Tensor]) -> None:
        """Gives each parameter that has none yet its place in a bucket."""
        if self._tree.nodes == 1:
            return
        for parameter in reversed(parameters):
            if id(parameter) not in self._bucket_of:
                self._place(parameter)
                self._hooks.append(_when_accumulated(parameter, self._ready))

    def under_way(self) -> bool:
        """Whether gradients have been sent that nobody has waited for yet."""
        return any(bucket.started is not None for bucket in self._buckets)

    def finish(self, parameters: Sequence[torch.Tensor]) -> None:
        """Sends what has not been sent, waits for everything, and lets every ``grad`` be everybody's."""
        self.place(parameters)
        self._start_until(len(self._buckets))
        self._next = 0
        wholes: dict[int, torch.Tensor] = {}
        for bucket in self._buckets:
            for parameter, whole in bucket.wait():
                self._sparse.append(parameter)
                self._bucket_of[id(parameter)] = None
                wholes[id(parameter)] = whole
        self._buckets = [bucket for bucket in self._buckets if not bucket.empty]
        _sparse.exchange(self._tree, self._sparse, wholes, self._op)
        self.finished = True

    def _place(self, parameter: torch.Tensor) -> None:
        if parameter.dtype not in REDUCIBLE:
            raise ConfigurationError(f"DistributedOptimizer: gradients of {parameter.dtype} cannot be combined")
        kind = (parameter.dtype, parameter.device)
        bucket = self._buckets[-1] if self._buckets else None
        if bucket is None or bucket.made or bucket.kind != kind or bucket.bytes >= BUCKET_BYTES:
            bucket = _Bucket(self._tree, kind, self._op, self._passes, f"gradients of optimizer {self._number}")
            self._buckets.append(bucket)
        bucket.add(parameter)
        self._bucket_of[id(parameter)] = bucket

    def _ready(self, parameter: torch.Tensor) -> None:
        self.finished = False
        bucket = self._bucket_of[id(parameter)]
        if bucket is None:
            return
        if bucket.started is not None:
            name = self._names.get(id(parameter), "a parameter")
            raise SynclineError(
                f"DistributedOptimizer: {name} has a gradient again before step()\n"
                "hint: call step() after each backward pass, or give backward_passes_per_step"
            )
        bucket.count(parameter)
        ready = self._next
        while ready < len(self._buckets) and self._buckets[ready].complete():
            ready += 1
        self._start_until(ready)

    def _start_until(self, end: int) -> None:
        while self._next < end:
            self._buckets[self._next].start()
            self._next += 1


class _Bucket:
    """Gradients of one dtype, end to end, and behind them two notes for each: somebody has one, somebody's is sparse."""

    def __init__(
        self, tree: _native.Tree, kind: tuple[torch.dtype, torch.device], op: str, passes: int, name: str
    ) -> None:
        self.kind, self.bytes = kind, 0
        self._name = name  # those of two optimizers are never taken for each other, though they may be as many
        self.started: Any = None
        self._tree, self._op, self._passes = tree, op, passes
        self._parameters: list[torch.Tensor] = []
        self._counts: dict[int, int] = {}
        self._flat: torch.Tensor | None = None
        self._views: list[torch.Tensor] = []
        self._notes: torch.Tensor = torch.empty(0)

    @property
    def empty(self) -> bool:
        """Whether all its gradients turned out to be sparse."""
        return not self._parameters

    @property
    def made(self) -> bool:
        """Whether it was sent before, so that nothing more fits in."""
        return self._flat is not None

    def add(self, parameter: torch.Tensor) -> None:
        self._parameters.append(parameter)
        self._counts[id(parameter)] = 0
        self.bytes += parameter.numel() * parameter.element_size()

    def count(self, parameter: torch.Tensor) -> None:
        self._counts[id(parameter)] += 1

    def complete(self) -> bool:
        return all(count >= self._passes for count in self._counts.values())

    def start(self) -> None:
        """Sends the gradients on their way; a parameter without a dense one brings zeros, and says so."""
        if self._flat is None:
            self._make()
        assert self._flat is not None
        notes = [[1.0, 0.0] for _ in self._parameters]
        with torch.no_grad():
            for parameter, view, note in zip(self._parameters, self._views, notes, strict=True):
                if parameter.grad is None:
                    view.zero_()
                    note[0] = 0.0
                elif parameter.grad.is_sparse:
                    view.zero_()
                    note[1] = 1.0
                elif parameter.grad.data_ptr() != view.data_ptr():
                    view.copy_(parameter.grad)
                    parameter.grad = None  # its memory is free for the passes to come
            self._notes.copy_(torch.tensor(notes))
        array = memory(self._flat if self._flat.device.type == "cpu" else self._flat.cpu())
        self.started = array, start(self._tree, array, REDUCIBLE[self.kind[0]], self._op, self._name)

    def wait(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Lets every ``grad`` be everybody's, except those that turned out to be sparse: these parameters are returned, with what
        workers whose gradients are not sparse have brought, and gone from here.
        """
        if self.started is None:
            return []
        array, reduction = self.started
        reduction.wait()
        self.started = None
        assert self._flat is not None
        if self._flat.device.type != "cpu":
            with torch.no_grad():
                self._flat.copy_(torch.from_numpy(array).view(self.kind[0]))
        sparse = []
        for parameter, view, (used, rows) in zip(self._parameters, self._views, self._notes.tolist(), strict=True):
            if rows:
                sparse.append((parameter, view))
                if parameter.grad is not None and not parameter.grad.is_sparse:
                    parameter.grad = None  # it is in the view
            else:
                parameter.grad = view if used else None
        for key in self._counts:
            self._counts[key] = 0
        if sparse:
            self._leave([parameter for parameter, _ in sparse])
        return sparse

    def _leave(self, leaving: list[torch.Tensor]) -> None:
        for parameter in leaving:
            del self._counts[id(parameter)]
        # The next start makes it anew, and copies gradients that are views of what it was.
        self._parameters = [each for each in self._parameters if id(each) in self._counts]
        self._flat, self._views = None, []

    def _make(self) -> None:
        total = sum(parameter.numel() for parameter in self._parameters)
        room = total + 2 * len(self._parameters)
        self._flat = (
            shared(room, self.kind[0])
            if self.kind[1].type == "cpu"
            else torch.empty(room, dtype=self.kind[0], device=self.kind[1])
        )
        start = 0
        for parameter in self._parameters:
            self._views.append(self._flat[start : start + parameter.numel()].view(parameter.shape))
            start += parameter.numel()
        self._notes = self._flat[total:].view(-1, 2)


def _when_accumulated(parameter: torch.Tensor, then: Callable[[torch.Tensor], None]) -> Any:
    """Calls ``then`` each time the parameter's gradient has been added to ``grad``."""
    if hasattr(parameter, "register_post_accumulate_grad_hook"):
        return parameter.register_post_accumulate_grad_hook(then)
    # Older versions: the node that adds the gradient up, kept alive so that the hook stays.
    node: Any = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
    node.register_hook(lambda *_: then(parameter))
    return node
