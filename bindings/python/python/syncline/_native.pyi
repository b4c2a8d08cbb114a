"""The typed face of `src/`: the native half of this package."""

from os import PathLike
from typing import Any, final

from numpy.typing import ArrayLike, DTypeLike, NDArray

__all__ = [
    "ArrayTable",
    "Future",
    "Host",
    "KVTable",
    "MatrixTable",
    "Topology",
    "View",
    "__version__",
    "abort",
    "aggregate",
    "barrier",
    "cast",
    "empty_shared",
    "forget_in_child",
    "is_master_worker",
    "is_open",
    "load",
    "local_rank",
    "num_workers",
    "open",
    "rank",
    "save",
    "server_id",
    "shutdown",
    "size",
    "topology",
    "worker_id",
]

__version__: str

@final
class Host:
    """One machine of the job."""

    @property
    def name(self) -> str: ...
    @property
    def ranks(self) -> list[int]: ...

@final
class Topology:
    """The members of the job grouped by host; `print()` draws it."""

    @property
    def hosts(self) -> list[Host]: ...

@final
class ArrayTable:
    """Numbers that all workers share, always fetched and added to as a whole."""

    def __new__(
        cls,
        size: int,
        init_value: Any = None,
        *,
        dtype: DTypeLike = "float32",
        updater: str = "add",
        name: str | None = None,
        staleness: int | None = None,
    ) -> ArrayTable: ...
    def get(self, out: Any = None) -> Any: ...
    def get_async(self) -> Future: ...
    def add(
        self,
        delta: Any,
        sync: bool = False,
        *,
        learning_rate: float | None = None,
        momentum: float | None = None,
        rho: float | None = None,
        lambda_: float | None = None,
    ) -> None: ...
    def add_get(
        self,
        delta: Any,
        out: Any = None,
        *,
        learning_rate: float | None = None,
        momentum: float | None = None,
        rho: float | None = None,
        lambda_: float | None = None,
    ) -> Any: ...
    def clock(self) -> int: ...
    @property
    def clocks(self) -> list[int]: ...
    @property
    def shape(self) -> tuple[int]: ...
    @property
    def size(self) -> int: ...
    @property
    def dtype(self) -> Any: ...
    @property
    def name(self) -> str: ...

@final
class MatrixTable:
    """Rows of numbers that all workers share, fetched and added to as a whole or by row."""

    def __new__(
        cls,
        num_row: int,
        num_col: int,
        init_value: Any = None,
        *,
        dtype: DTypeLike = "float32",
        updater: str = "add",
        name: str | None = None,
        staleness: int | None = None,
    ) -> MatrixTable: ...
    def get(self, row_ids: ArrayLike | None = None, out: Any = None) -> Any: ...
    def get_async(self, row_ids: ArrayLike | None = None) -> Future: ...
    def add(
        self,
        data: Any,
        row_ids: ArrayLike | None = None,
        sync: bool = False,
        *,
        learning_rate: float | None = None,
        momentum: float | None = None,
        rho: float | None = None,
        lambda_: float | None = None,
    ) -> None: ...
    def add_get(
        self,
        data: Any,
        row_ids: ArrayLike | None = None,
        out: Any = None,
        *,
        learning_rate: float | None = None,
        momentum: float | None = None,
        rho: float | None = None,
        lambda_: float | None = None,
    ) -> Any: ...
    def get_changed(self, out: Any) -> NDArray[Any]: ...
    def clock(self) -> int: ...
    @property
    def clocks(self) -> list[int]: ...
    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def size(self) -> int: ...
    @property
    def dtype(self) -> Any: ...
    @property
    def name(self) -> str: ...

@final
class KVTable:
    """One number for each whole number of 64 bits; those never added to read as zero."""

    def __new__(
        cls,
        key: DTypeLike = "int64",
        value: DTypeLike = "float32",
        *,
        name: str | None = None,
        staleness: int | None = None,
    ) -> KVTable: ...
    def get(self, keys: ArrayLike, out: Any = None) -> Any: ...
    def add(self, keys: ArrayLike, values: Any, sync: bool = False) -> None: ...
    def clock(self) -> int: ...
    @property
    def clocks(self) -> list[int]: ...
    @property
    def dtype(self) -> Any: ...
    @property
    def name(self) -> str: ...

@final
class Future:
    """A get that is under way; `wait()` returns its array."""

    def wait(self, timeout: float | None = None) -> Any: ...
    def result(self, timeout: float | None = None) -> Any: ...
    def done(self) -> bool: ...

@final
class View:
    """Memory that something else owns, for `numpy.asarray`."""

    def __new__(cls, object: Any) -> View: ...
    @property
    def dtype(self) -> str | None: ...

def aggregate(array: Any, op: str = "sum") -> Any: ...
def empty_shared(bytes: int) -> View: ...
def save(path: str | PathLike[str]) -> None: ...
def load(path: str | PathLike[str]) -> None: ...
def cast(source: Any, source_dtype: str, target: Any, target_dtype: str) -> None: ...
def open(sync: bool = False, timeout: float | None = None, on_peer_loss: str | None = None) -> None: ...
def shutdown() -> None: ...
def abort(reason: str) -> None: ...
def is_open() -> bool: ...
def forget_in_child() -> None: ...
def barrier() -> None: ...
def rank() -> int: ...
def size() -> int: ...
def local_rank() -> int: ...
def num_workers() -> int: ...
def worker_id() -> int: ...
def server_id() -> int: ...
def is_master_worker() -> bool: ...
def topology() -> Topology: ...
