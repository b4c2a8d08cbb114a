"""Turns reductions that are under way into PyTorch's futures.

The reductions of one process end in the order in which they began, so one thread that waits for them in turn is enough.
It holds no interpreter lock while it waits. It is a daemon: at the end of the program nobody waits for it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import torch

Ending = Callable[[], Any]


class Waiter:
    """One thread that waits for many reductions."""

    def __init__(self) -> None:
        self._todo: queue.SimpleQueue[tuple[Any, list[Exception], Any]] = queue.SimpleQueue()
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
        self._todo.put((under_way, failed, over))
        return result

    def _run(self) -> None:
        while True:
            under_way, failed, over = self._todo.get()
            try:
                under_way.wait()
            except Exception as error:
                failed.append(error)
            over.set_result(None)
            del under_way, failed, over  # an idle thread keeps nobody's tensors


def done(result: Any) -> Any:
    """A future that is over."""
    future: Any = torch.futures.Future()
    future.set_result(result)
    return future
