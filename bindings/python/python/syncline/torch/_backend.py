"""The backend ``syncline`` of ``torch.distributed``, and a hook that gives any DistributedDataParallel our reductions.

Reductions run in the engine's own thread, beside the backward pass that goes on meanwhile; PyTorch waits for them
through futures (``_waiting.py``). All else is rare in training and is done before the call returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from syncline import _native
from syncline._errors import ConfigurationError, ShapeMismatch
from syncline._job import tree as job_tree
from syncline._neighbours import addresses
from syncline.torch import _letters, _rendezvous
from syncline.torch._tensors import Slot, fill, reducible, start
from syncline.torch._waiting import Waiter, done

_work_of: Any = torch._C._distributed_c10d._create_work_from_future
_OPERATIONS = {"SUM": "sum", "AVG": "mean", "PRODUCT": "prod", "MIN": "min", "MAX": "max", "BAND": "and", "BOR": "or"}
_waiter = Waiter()


class ProcessGroup(dist.ProcessGroup):  # type: ignore[misc]  # no types in some versions
    """The processes of one group, as ``torch.distributed`` calls them."""

    def __init__(self, tree: _native.Tree, name: str = "syncline") -> None:
        super().__init__(tree.node - 1, tree.nodes)
        self._tree, self._name = tree, name

    def getBackendName(self) -> str:
        """What the group's backend is called."""
        return "syncline"

    @property
    def pg_name(self) -> str:
        """The group's own name, which newer versions of PyTorch ask for."""
        return self._name

    def allreduce(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> Any:
        """Starts to combine tensors over all processes, in place."""
        op = _operation(opts)
        result = list(tensors)
        if not result:
            return _work_of(done(result))
        slots = [reducible(tensor, op) for tensor in tensors]
        if self._tree.nodes == 1:  # everything is what it will be
            return _work_of(done(result))
        names = [str(place) for place in range(len(slots))] if len(slots) > 1 else [""]
        started = _native.start_leaves(self._tree, [slot[0] for slot in slots], [slot[1] for slot in slots], names, op)

        def ending() -> list[torch.Tensor]:
            for _, _, back in slots:
                back()
            return result

        return _work_of(_waiter.future(started, ending))

    def allreduce_coalesced(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> Any:
        """``allreduce``, of several tensors by nature."""
        return self.allreduce(tensors, opts)

    def broadcast(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> Any:
        """Gives everybody the tensors of one process."""
        slots = [Slot(tensor) for tensor in tensors]
        self._tree.broadcast([slot.array for slot in slots], _root(opts) + 1)
        for slot in slots:
            slot.back()
        return _work_of(done(list(tensors)))

    def reduce(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> Any:
        """Combines tensors at one process; the others' are left alone."""
        op, brings = _operation(opts), self._tree.node - 1 == _root(opts)
        for tensor in tensors:
            array, dtype, back = reducible(tensor, op)
            work = array if brings else array.copy()
            start(self._tree, work, dtype, op).wait()
            if brings:
                back()
        return _work_of(done(list(tensors)))

    def allgather(
        self, outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> Any:
        """Gives everybody everybody's tensors."""
        for into, tensor in zip(outputs, inputs, strict=True):
            fill(into, self._tree.all_gather(Slot(tensor).array))
        return _work_of(done([list(into) for into in outputs]))

    def allgather_coalesced(
        self, outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> Any:
        """``allgather`` of several tensors; the outputs are by process."""
        gathered = self._tree.all_gather([Slot(tensor).array for tensor in inputs])
        for into, values in zip(outputs, gathered, strict=True):
            fill(into, values)
        return _work_of(done([list(into) for into in outputs]))

    def _allgather_base(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Any:
        """``allgather`` into one tensor."""
        fill(_cut(output, self._tree.nodes), self._tree.all_gather(Slot(input).array))
        return _work_of(done(output))

    def gather(
        self, outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> Any:
        """Everybody's tensors at one process."""
        gathered = self._tree.gather([Slot(tensor).array for tensor in inputs], _root(opts) + 1)
        if gathered is not None:
            for place, into in enumerate(outputs):
                fill(into, [values[place] for values in gathered])
        return _work_of(done([list(into) for into in outputs]))

    def scatter(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[Sequence[torch.Tensor]], opts: Any = None
    ) -> Any:
        """To each process its tensor of one process's list."""
        for place, into in enumerate(outputs):
            parts: list[Any] = [None] * self._tree.nodes
            if self._tree.node - 1 == _root(opts):
                parts = [Slot(tensor).array for tensor in inputs[place]]
            fill([into], [self._tree.all_to_all(parts)[_root(opts)]])
        return _work_of(done(list(outputs)))

    def reduce_scatter(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[Sequence[torch.Tensor]], opts: Any = None
    ) -> Any:
        """Combines everybody's lists of tensors; each process gets the tensor of its own place."""
        for into, tensors in zip(outputs, inputs, strict=True):
            self._reduce_scattered(into, torch.cat([tensor.detach().reshape(-1) for tensor in tensors]), opts)
        return _work_of(done(list(outputs)))

    def _reduce_scatter_base(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Any:
        """``reduce_scatter`` of one tensor."""
        self._reduce_scattered(output, input.detach().reshape(-1).clone(), opts)
        return _work_of(done(output))

    def _reduce_scattered(self, output: torch.Tensor, flat: torch.Tensor, opts: Any) -> None:
        op = _operation(opts)
        own = output.numel()
        if own * self._tree.nodes != flat.numel():
            raise ShapeMismatch(f"reduce_scatter: {flat.numel()} numbers are not {self._tree.nodes} times {own}")
        array, dtype, back = reducible(flat, op)
        start(self._tree, array, dtype, op).wait()
        back()
        first = own * (self._tree.node - 1)
        with torch.no_grad():
            output.copy_(flat[first : first + own].reshape(output.shape))

    def alltoall(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None) -> Any:
        """The i-th tensor of each process to process i."""
        fill(outputs, self._tree.all_to_all([Slot(tensor).array for tensor in inputs]))
        return _work_of(done(list(outputs)))

    def alltoall_base(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_splits: list[int],
        input_splits: list[int],
        opts: Any = None,
    ) -> Any:
        """``alltoall`` of the parts of one tensor, equal unless their lengths are given."""
        parts = _cut(input, self._tree.nodes, input_splits)
        fill(_cut(output, self._tree.nodes, output_splits), self._tree.all_to_all([Slot(part).array for part in parts]))
        return _work_of(done(output))

    def allgather_into_tensor_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> Any:
        """``allgather`` of several tensors, each into one."""
        for output, input in zip(outputs, inputs, strict=True):
            self._allgather_base(output, input)
        return _work_of(done(list(outputs)))

    def reduce_scatter_tensor_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> Any:
        """``reduce_scatter`` of several tensors."""
        for output, input in zip(outputs, inputs, strict=True):
            self._reduce_scatter_base(output, input, opts)
        return _work_of(done(list(outputs)))

    # What newer versions of PyTorch call the same.
    all_gather_single = _allgather_base
    reduce_scatter_single = _reduce_scatter_base
    all_to_all_single = alltoall_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def send(self, tensors: Sequence[torch.Tensor], to: int, tag: int = 0) -> Any:
        """Starts to send a tensor to process ``to`` of the group."""
        return _letters.send(self._tree, tensors, to, tag)

    def recv(self, tensors: Sequence[torch.Tensor], of: int, tag: int = 0) -> Any:
        """Awaits a tensor of process ``of`` of the group."""
        return _letters.recv(self._tree, tensors, of, tag)

    def recv_anysource(self, tensors: Sequence[torch.Tensor], tag: int = 0) -> Any:
        """Awaits a tensor of whichever process sends one."""
        return _letters.recv(self._tree, tensors, None, tag)

    supports_coalescing = False  # what newer versions ask a group's backend for a device, which is the group itself

    def _get_backend(self, _device: Any) -> ProcessGroup:
        return self

    def _start_coalescing(self, *_given: Any) -> None:
        """``batch_isend_irecv`` begins; its tensors go one by one all the same."""

    def _end_coalescing(self, *_given: Any) -> None:
        """``batch_isend_irecv`` has begun all of them."""

    def barrier(self, opts: Any = None) -> Any:
        """Returns when every process has called it."""
        self._tree.barrier()
        return _work_of(done([]))


def ddp_hook(state: Any, bucket: Any) -> Any:
    """A communication hook: ``DistributedDataParallel(model).register_comm_hook(None, sl.torch.ddp_hook)``.

    Gradients are averaged over all workers of Syncline's job, whatever backend the model's group has. ``state`` may be
    a tree, which is then used instead of the job's.
    """
    tree = state if isinstance(state, _native.Tree) else job_tree()
    buffer = bucket.buffer()
    array, dtype, back = reducible(buffer, "mean")
    if tree.nodes == 1:
        return done(buffer)

    def ending() -> torch.Tensor:
        back()
        return buffer

    return _waiter.future(start(tree, array, dtype, "mean"), ending)


# DistributedDataParallel compares the objects, and here annotations are words.
ddp_hook.__annotations__.update({"bucket": dist.GradBucket, "return": torch.futures.Future[torch.Tensor]})


def _cut(tensor: torch.Tensor, nodes: int, lengths: Sequence[int] | None = None) -> list[torch.Tensor]:
    """A tensor's parts along its first axis, as views."""
    if not lengths:
        if tensor.shape[0] % nodes:
            raise ShapeMismatch(f"{tensor.shape[0]} rows cannot be divided among {nodes} processes")
        lengths = [tensor.shape[0] // nodes] * nodes
    return list(torch.split(tensor, list(lengths)))


def _operation(opts: Any) -> str:
    if opts is None:
        return "sum"
    given = opts.reduceOp
    name = getattr(given, "name", None) or getattr(getattr(given, "op", None), "name", None)
    if name is None:  # some versions have no names, only objects that compare
        name = next(
            (each for each in _OPERATIONS if hasattr(dist.ReduceOp, each) and given == getattr(dist.ReduceOp, each)),
            "?",
        )
    if name not in _OPERATIONS:
        raise ConfigurationError(f"all_reduce: {given} is not one of {', '.join(_OPERATIONS)}")
    return _OPERATIONS[name]


def _root(opts: Any) -> int:
    return int(opts.rootRank) if opts is not None else 0


def _make(store: Any, rank: int, size: int, timeout: timedelta) -> ProcessGroup:
    """What ``torch.distributed`` calls for each group that this process belongs to."""
    whole = _native.is_open() and _native.num_workers() == size and _native.worker_id() == rank
    if size == 1:
        return ProcessGroup(_native.NullTree())
    if _rendezvous.agreed(store, rank, size, whole):
        return ProcessGroup(job_tree())
    # A part of the job, or no job of ours at all: these processes meet through the store that PyTorch gives us.
    near = _rendezvous.together(store, rank, size)
    host = "127.0.0.1" if near else next(iter(addresses()), "127.0.0.1")
    publish, query = _rendezvous.through(store)
    return ProcessGroup(_native.DiscoveredTree(rank + 1, size, host, 0, publish, query))


if not hasattr(dist.Backend, "SYNCLINE"):
    dist.Backend.register_backend("syncline", _make)
    _rendezvous.register()
