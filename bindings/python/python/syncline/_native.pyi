"""The typed face of `src/`: the native half of this package."""

from collections.abc import Callable, Iterable
from os import PathLike
from typing import Any, final

from numpy.typing import ArrayLike, DTypeLike, NDArray

__all__ = [
    "ArrayTable",
    "DiscoveredTree",
    "Future",
    "Host",
    "KVTable",
    "LocalhostTree",
    "MatrixTable",
    "NullTree",
    "Reduction",
    "SlurmTree",
    "StaticTree",
    "Topology",
    "Tree",
    "View",
    "__version__",
    "abandon_trees",
    "abort",
    "aggregate",
    "barrier",
    "cast",
    "close_trees",
    "empty_shared",
    "fold_leaves",
    "forget_in_child",
    "interpreter_ends",
    "is_master_worker",
    "is_open",
    "job_tree",
    "last_value",
    "load",
    "local_rank",
    "num_workers",
    "open",
    "rank",
    "reduce_leaves",
    "remember_value",
    "save",
    "scatter_reduced",
    "server_id",
    "shutdown",
    "size",
    "start_leaf",
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

@final
class Tree:
    """Nodes, numbered from 1, that combine what they have. All of them make the same calls in the same order."""

    def __new__(
        cls,
        node: int | None,
        nodes: int,
        base: int = 2,
        server: Any = None,
        client: Any = None,
        host: str | None = None,
        port: int | None = None,
        *,
        plan: str | None = None,
        timeout: float | None = None,
    ) -> Tree: ...
    @property
    def node(self) -> int: ...
    @property
    def nodes(self) -> int: ...
    @property
    def nodeIndex(self) -> int: ...
    @property
    def numNodes(self) -> int: ...
    @property
    def gpu(self) -> int | None: ...
    def all_reduce(
        self,
        value: Any = None,
        reduce: str | Callable[[Any, Any], Any] = "sum",
        zero: Callable[[Any, int], Any] | None = None,
    ) -> tuple[Any, int]: ...
    def allReduce(
        self,
        value: Any = None,
        reduce: str | Callable[[Any, Any], Any] = "sum",
        zero: Callable[[Any, int], Any] | None = None,
    ) -> tuple[Any, int]: ...
    def all_reduce_async(self, value: Any, reduce: str = "sum") -> Any: ...
    def scatter(self, value: Any) -> Any: ...
    def broadcast(self, value: Any = None, root: int = 1) -> Any: ...
    def gather(self, value: Any, root: int = 1) -> list[Any] | None: ...
    def all_gather(self, value: Any) -> list[Any]: ...
    def reduce_scatter(self, value: Any, reduce: str = "sum") -> NDArray[Any]: ...
    def all_to_all(self, values: Iterable[Any]) -> list[Any]: ...
    def barrier(self) -> None: ...
    def net_stats(self) -> dict[int, dict[str, dict[str, float]]]: ...
    def netStats(self) -> dict[int, dict[str, dict[str, float]]]: ...
    @staticmethod
    def walk_table(value: Any, f: Callable[[Any], Any]) -> Any: ...
    @staticmethod
    def walkTable(value: Any, f: Callable[[Any], Any]) -> Any: ...
    def close(self) -> None: ...
    def __enter__(self) -> Tree: ...
    def __exit__(self, kind: Any = None, error: Any = None, traceback: Any = None) -> None: ...

@final
class Reduction:
    """One array that is being reduced; `all_reduce_async` makes futures of them."""

    def wait(self, timeout: float | None = None) -> int: ...
    def done(self) -> bool: ...

def LocalhostTree(node: int, nodes: int, ppid: int | None = None, *, timeout: float | None = None) -> Tree: ...
def StaticTree(
    node: int,
    nodes: int,
    node_host: str,
    node_port: int,
    root_host: str,
    root_port: int,
    *,
    timeout: float | None = None,
) -> Tree: ...
def DiscoveredTree(
    node: int,
    nodes: int,
    node_host: str,
    node_port: int,
    publish: Callable[[str, int], Any],
    query: Callable[[], tuple[str, int] | None],
    *,
    timeout: float | None = None,
) -> Tree: ...
def SlurmTree(
    path: str | PathLike[str] | None = None, tasks_per_gpu: int = 1, *, timeout: float | None = None
) -> Tree: ...
def NullTree() -> Tree: ...
def job_tree() -> Tree: ...
def reduce_leaves(
    tree: Tree, arrays: list[Any], dtypes: list[str], names: list[str], op: str, contributes: bool
) -> int: ...
def fold_leaves(
    tree: Tree, leaves: list[Any], structure: str, function: Callable[[Any, Any], Any], contributes: bool
) -> tuple[list[Any], int]: ...
def scatter_reduced(tree: Tree, array: Any, dtype: str, op: str) -> View: ...
def start_leaf(tree: Tree, array: Any, dtype: str, op: str) -> Reduction: ...
def last_value(tree: Tree) -> Any: ...
def remember_value(tree: Tree, value: Any) -> None: ...
def abandon_trees(reason: str) -> None: ...
def close_trees() -> None: ...
def interpreter_ends() -> None: ...
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
