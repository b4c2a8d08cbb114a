"""Tensors that one process sends to another: ``send``, ``recv`` and their asynchronous relatives."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch

from syncline import _native
from syncline._arrays import array_over
from syncline._errors import ConfigurationError
from syncline.torch._tensors import Slot, fill


class Letter:
    """A tensor on its way; what ``torch.distributed`` calls a work.

    PyTorch asks it in Python only, so it needs no future, and no thread that would fulfil one.
    """

    def __init__(self, started: _native.Sending | _native.Receiving, keeps: Any, into: torch.Tensor | None) -> None:
        self._started, self._into, self._over = started, into, False
        self._keeps = keeps  # what must not go before the letter has
        self._source = -1
        self._error: Exception | None = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Returns when the tensor may be used again, or has come."""
        if self._over:
            return True
        seconds = timeout.total_seconds() if timeout else None
        try:
            came = self._started.wait(seconds)
        except Exception as error:
            self._error = error
            raise
        if came is not None and self._into is not None:
            fill([self._into], [array_over(came[0])])
            self._source = came[1] - 1
        self._over, self._keeps, self._error = True, None, None
        return True

    def is_completed(self) -> bool:
        """Whether ``wait()`` would return at once."""
        return self._over or self._started.done()

    def is_success(self) -> bool:
        """Whether it is over and nothing went wrong."""
        return self._over

    def exception(self) -> Exception | None:
        """What went wrong."""
        return self._error

    def source_rank(self) -> int:
        """Who sent what was received."""
        return self._source

    _source_rank = source_rank

    def result(self) -> list[torch.Tensor]:
        """The tensor that was received."""
        return [] if self._into is None else [self._into]


def send(tree: _native.Tree, tensors: Any, to: int, tag: int) -> Letter:
    """Starts to send one tensor to process ``to``."""
    slot = Slot(_one("send", tensors))
    return Letter(_native.start_send(tree, slot.array, to + 1, _checked("send", tag)), slot, None)


def recv(tree: _native.Tree, tensors: Any, of: int | None, tag: int) -> Letter:
    """Awaits one tensor of a process, or of any."""
    into = _one("recv", tensors)
    return Letter(_native.start_recv(tree, None if of is None else of + 1, _checked("recv", tag)), None, into)


def _one(operation: str, tensors: Any) -> torch.Tensor:
    if len(tensors) != 1:
        raise ConfigurationError(f"{operation}: {len(tensors)} tensors, one goes at a time")
    tensor: torch.Tensor = tensors[0]
    return tensor


def _checked(operation: str, tag: int) -> int:
    if tag < 0:
        raise ConfigurationError(f"{operation}: tag={tag} is less than 0")
    return tag
