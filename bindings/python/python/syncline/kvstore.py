"""MXNet's key-value store: push gradients, pull weights, in this process or over all workers of a job.

    kv = sl.kvstore.create("dist_sync")
    kv.init("w", np.zeros(3, np.float32))                  # worker 0's value counts
    kv.set_optimizer(sl.optimizer.SGD(learning_rate=0.1))  # runs where the value lives
    kv.push("w", gradient)                                 # one push of every worker is a round
    kv.pull("w", out=weights)                              # contains my push, and the others' of its round

``local`` and ``device`` stores live in this process; ``dist_*`` stores join the job that this process was started in,
alone if nobody started one. Nothing is sent but data: an optimizer is a description, never code.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from syncline import _native, optimizer
from syncline._errors import ConfigurationError
from syncline._native import Store
from syncline._native import StoreFuture as Future

__all__ = ["Future", "KVStore", "KVStoreBase", "create"]

Key = int | str


class KVStoreBase:
    """What a store of one's own derives from, to be found by :func:`create` under the name of its class.

    It answers to ``broadcast``, ``pushpull``, ``set_optimizer``, ``is_capable``, ``save_optimizer_states``,
    ``load_optimizer_states``, ``type``, ``rank`` and ``num_workers``; what it does not have raises NotImplementedError.
    """

    OPTIMIZER = "optimizer"
    kv_registry: dict[str, type[KVStoreBase]] = {}  # noqa: RUF012  (one for all, on purpose)

    @staticmethod
    def register(klass: type[_Class]) -> type[_Class]:
        """Makes a class known to :func:`create`; usable as a decorator. A class of the same name is replaced, with a warning."""
        name = klass.__name__.lower()
        before = KVStoreBase.kv_registry.get(name)
        if before is not None:
            warnings.warn(f"kvstore: {klass!r} replaces {before!r}, which was registered as {name!r}", stacklevel=2)
        KVStoreBase.kv_registry[name] = klass
        return klass

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> Any:
        """Copies one worker's value to every ``out``."""
        raise NotImplementedError

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> Any:
        """Sums the values of all, and writes the sum to every ``out`` or back."""
        raise NotImplementedError

    def set_optimizer(self, optimizer: optimizer.Optimizer) -> None:
        """Lets an optimizer decide what a push does."""
        raise NotImplementedError

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Whether such a store can do something."""
        raise NotImplementedError

    def save_optimizer_states(self, fname: str, dump_optimizer: bool = False) -> None:
        """Writes what the optimizer keeps to a file."""
        raise NotImplementedError

    def load_optimizer_states(self, fname: str) -> None:
        """Reads such a file."""
        raise NotImplementedError

    @property
    def type(self) -> str:
        """The name of its type."""
        raise NotImplementedError

    @property
    def rank(self) -> int:
        """This worker's number."""
        raise NotImplementedError

    @property
    def num_workers(self) -> int:
        """How many there are."""
        raise NotImplementedError


_Class = TypeVar("_Class", bound=KVStoreBase)


class _Count(int):
    """A number that may also be asked for as a method, as older programs do."""

    __slots__ = ()

    def __call__(self, node_id: int = 0, timeout: float = 60) -> int:
        return int(self)


class KVStore(Store):
    """A store; :func:`create` makes them.

    Keys are int (64 bit) or str, one kind per store; every call takes one key or a list of them, and for each key one
    value or a list of values, which are added up. Values are arrays of any framework or ``RowSparse``; they are never
    kept and never changed. ``wait=False`` makes a call go on in the background and return a future; there, a larger
    ``priority`` goes first.
    """

    __module__ = "syncline.kvstore"
    __hash__ = object.__hash__

    def __new__(cls, name: str = "local") -> KVStore:
        made = super().__new__(cls, name)
        made._optimizer = None
        return made

    _optimizer: optimizer.Optimizer | None

    def set_optimizer(self, optimizer: optimizer.Optimizer) -> None:
        """Lets an optimizer decide what a push does, where the values live; its states begin anew.

        In a distributed store one worker's call is enough, and the newest counts. Options that are changed later, such as
        ``optimizer.learning_rate``, reach the servers.
        """
        _check(optimizer)
        self.use_optimizer(optimizer.name, optimizer._options, False)
        self._remember(optimizer)

    def _remember(self, optimizer: optimizer.Optimizer) -> None:
        if self._optimizer is not None:
            self._optimizer._stores.discard(self)
        self._optimizer = optimizer
        optimizer._stores.add(self)

    def _optimizer_changed(self, optimizer: optimizer.Optimizer) -> None:
        self.use_optimizer(optimizer.name, optimizer._options, True)

    @property
    def optimizer(self) -> optimizer.Optimizer | None:
        """The optimizer that this process set or loaded, or None."""
        found = self.known_optimizer()
        if found is None:
            return None
        name, options = found
        known = optimizer.from_dict({"name": name, **options})
        if self._optimizer is None or self._optimizer != known:
            self._remember(known)
        return self._optimizer

    def set_learning_rate(self, lr: float) -> None:
        """Changes the learning rate, at the servers too; states stay."""
        if self._optimizer is not None and self.optimizer is self._optimizer:
            self._optimizer.set_learning_rate(lr)
        else:
            super().set_learning_rate(lr)

    def set_gradient_compression(self, compression_params: Mapping[str, Any]) -> None:
        """Makes pushes smaller, and keeps what was lost for the next ones: ``{"type": "2bit", "threshold": 0.5}``.

        Types: ``2bit`` and ``1bit`` as MXNet has them, ``fp16``, ``bf16``, ``int8``, and ``topk`` with ``ratio``. With ``"pull":
        True`` pulls travel in fp16, bf16 or int8 too. Not for ``local`` stores; each worker sets its own side.
        """
        if not isinstance(compression_params, Mapping):
            raise ConfigurationError("set_gradient_compression: a dictionary is needed, such as {'type': '2bit'}")
        self.compress([(str(word), str(value)) for word, value in compression_params.items()])

    def set_updater(self, updater: Callable[[Any, Any, Any], object] | None) -> None:
        """Lets ``updater(key, recv, local)`` decide what a push does: it changes ``local`` in place. Local stores only.

        ``key`` is the user's, ``recv`` the sum of what was pushed. Distributed stores take ``sl.optimizer.Custom``.
        """
        if updater is not None and not callable(updater):
            raise ConfigurationError(f"set_updater: a function is needed, not {type(updater).__name__}")
        super().set_updater(updater)

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Whether a store can do something; ``optimizer`` is all that is ever asked."""
        if capability.lower() != KVStoreBase.OPTIMIZER:
            raise ConfigurationError(f"kvstore: unknown capability {capability!r}\nhint: optimizer")
        return True

    @property
    def num_dead_node(self) -> _Count:
        """How many processes of the job died; may be called, too."""
        return _Count(self.dead())

    def send_command_to_servers(self, head: int, body: str | bytes = b"") -> str:
        """Sends a command, by MXNet's numbers, and returns what became of it in words. Nothing sent is ever executed."""
        return self.command(head, body.encode() if isinstance(body, str) else bytes(body))

    # The names that MXNet's programs use.
    _barrier = Store.barrier
    _set_updater = set_updater
    _send_command_to_servers = send_command_to_servers

    def __repr__(self) -> str:
        return f"<syncline.KVStore: {self.type}, worker {self.rank} of {self.num_workers}, {len(self.keys())} keys>"


def create(name: str = "local") -> KVStore:
    """A store of this type, in any case; distributed ones join the job first if ``sl.init`` was not called.

    ``local local_update_cpu local_allreduce_cpu device local_allreduce_device row_sparse dist dist_sync dist_async
    dist_device_sync dist_sync_device dist_device_async dist_async_device``, or a class that ``KVStoreBase.register`` knows.
    """
    if not isinstance(name, str):
        raise TypeError(f"the type of a store is a str, not {type(name).__name__}")
    own = KVStoreBase.kv_registry.get(name.lower())
    if own is not None:
        return own()  # type: ignore[return-value]  # whoever registered it knows what it is
    if Store.is_distributed(name) and not _native.is_open():
        from syncline._job import init

        init()
    return KVStore(name)


def _check(given: object) -> None:
    if not isinstance(given, optimizer.Optimizer):
        hint = "hint: sl.optimizer.create(name, …) makes one"
        raise ConfigurationError(f"set_optimizer: an optimizer is needed, not {type(given).__name__}\n{hint}")
