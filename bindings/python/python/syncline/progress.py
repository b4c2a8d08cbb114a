"""One progress bar for the whole job.

    for epoch in sl.progress.bar(range(100)):        # worker 0 draws it; the others only loop
        ...

    with sl.progress.Bar(total=60_000, unit="samples") as bar:
        for batch in sl.data.shard(60_000, batch=32, leases=True):
            bar.advance(len(batch), loss=loss)       # counts what all workers do
"""

from __future__ import annotations

import os
import struct
import sys
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, TextIO, TypeVar

from syncline import _native
from syncline._job import tree as job_tree
from syncline._neighbours import common_file

__all__ = ["Bar", "bar"]

Item = TypeVar("Item")


class Bar:
    """How far all workers have come, drawn by worker 0: in place on a terminal, as ten lines anywhere else.

    All workers make it, with the same ``total``: of all of them together. Those of worker 0's host are counted as
    they go; those of other hosts when they close it. ``style`` is auto, bar, lines or none.
    """

    WIDTH = 24
    PAUSE = 0.1  # seconds between two drawings

    def __init__(self, total: int, *, unit: str = "", style: str = "auto", file: TextIO | None = None) -> None:
        self.total, self.unit = total, unit
        self._out = sys.stderr if file is None else file
        self._style = style if style != "auto" else "bar" if self._out.isatty() else "lines"
        self._tree = job_tree()
        self._mine = 0
        self._file = -1
        if self._tree.nodes > 1:
            self._file, _, hosts = common_file(self._tree, "progress")
            self._place = next(host.index(self._tree.node - 1) for host in hosts if self._tree.node - 1 in host)
            self._near = len(hosts[0])  # worker 0 counts these as they go
        self._began = self._drawn = time.monotonic()
        self._said = self._longest = 0
        self._closed = False

    def advance(self, by: int = 1, **facts: Any) -> None:
        """This worker has done so much more; ``facts`` are shown beside worker 0's bar."""
        self._mine += by
        if self._file >= 0:
            # Eight bytes, which are written whole.
            os.pwrite(self._file, struct.pack("=q", self._mine), 8 * self._place)
        if self._tree.node == 1:
            now = time.monotonic()
            if now - self._drawn >= self.PAUSE or self._style == "lines":
                self._drawn = now
                self._draw(self.done(), facts, last=False)

    def done(self) -> int:
        """How much all workers have done, as far as this one knows."""
        if self._file < 0:
            return self._mine
        there = os.pread(self._file, 8 * self._near, 0)
        return sum(struct.unpack(f"={len(there) // 8}q", there))

    def close(self) -> None:
        """Counts everybody's work and draws the last line; all workers call it."""
        if self._closed:
            return
        self._closed = True
        done, _ = self._tree.all_reduce(self._mine)
        if self._tree.node == 1:
            self._draw(done, {}, last=True)
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.close()

    def _draw(self, done: int, facts: dict[str, Any], last: bool) -> None:
        if self._style == "none":
            return
        if facts:
            self._facts = facts
        facts = getattr(self, "_facts", {})
        shown = "  ".join(
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in facts.items()
        )
        seconds = max(time.monotonic() - self._began, 1e-9)
        unit = f" {self.unit}" if self.unit else ""
        text = f"{done}/{self.total}{unit}  {done / seconds:,.0f}/s  {shown}".rstrip()
        if self._style == "bar":
            filled = self.WIDTH * min(done, self.total) // max(self.total, 1)
            line = f"{'█' * filled}{'░' * (self.WIDTH - filled)} {text}"
            self._longest = max(self._longest, len(line))
            print(f"\r{line:{self._longest}}", end="\n" if last else "", file=self._out, flush=True)
            return
        tenths = 10 * done // max(self.total, 1)
        if tenths > self._said or (last and self._said < 10):
            self._said = 10 if last else tenths
            print(text, file=self._out, flush=True)


def bar(items: Iterable[Item], *, total: int | None = None, unit: str = "", style: str = "auto") -> Iterator[Item]:
    """The items, with one bar on worker 0 that counts those of all workers; ``total`` is by default all of them."""
    if total is None:
        total = len(items) * _workers()  # type: ignore[arg-type]
    with Bar(total, unit=unit, style=style) as shown:
        for item in items:
            yield item
            shown.advance()


def _workers() -> int:
    return _native.num_workers() if _native.is_open() else job_tree().nodes
