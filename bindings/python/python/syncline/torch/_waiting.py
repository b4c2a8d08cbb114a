"""Turns reductions that are under way into PyTorch's futures.

The reductions of one process end in the order in which they began, so one thread that waits for them in turn is enough.
It holds no interpreter lock while it waits. It ends before the interpreter does: a thread that wakes up inside of
PyTorch's code after that would take the process down.
"""

from __future__ import annotations

import atexit
import queue
import threading
from collections.abc import Callable
from typing import Any

import torch

Ending = Callable[[], Any]


class Waiter:
    """One thread that waits for many reductions."""

    PATIENCE = 2.0  # seconds for reductions that nobody waited for, at the end of the program

    def __init__(self) -> None:
        self._todo: queue.SimpleQueue[tuple[Any, list[Exception], Any] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def future(self, under_way: Any, ending: Ending) -> Any:
        """A future with the result of ``ending``, which is called when ``under_way`` is over."""
        over: Any = torch.futures.Future()
        failed: list[Exception] = []

        def outcome(_: Any) -> Any:
            if failed:
                raise failed[0]
            return ending()

        # What fails inside of `then` is a failure to PyTorch's own code too; `set_exception` is one to Python only, and
        # DistributedDataParallel takes the exception for a tensor.
        result = over.then(outcome)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="syncline-torch", daemon=True)
            self._thread.start()
            atexit.register(self._end)
        self._todo.put((under_way, failed, over))
        return result

    def _end(self) -> None:
        """After what it has been given; that ends too, since every wait does, but nobody who leaves has time for it."""
        self._todo.put(None)
        assert self._thread is not None
        self._thread.join(self.PATIENCE)

    def _run(self) -> None:
        while (given := self._todo.get()) is not None:
            under_way, failed, over = given
            try:
                under_way.wait()
            except Exception as error:
                failed.append(error)
            over.set_result(None)
            del given, under_way, failed, over  # an idle thread keeps nobody's tensors


def done(result: Any) -> Any:
    """A future that is over."""
    future: Any = torch.futures.Future()
    future.set_result(result)
    return future
