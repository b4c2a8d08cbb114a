"""A progress bar for the other examples: drawn in place on a terminal, ten plain lines anywhere else."""

from __future__ import annotations

import sys
import time

STYLES = ("auto", "bar", "lines", "none")


class Progress:
    """How far a loop of `total` rounds has come, on standard error.

    Behind a launcher standard error is a pipe even when a person watches: `style="bar"` draws there too.
    """

    WIDTH = 24
    PAUSE = 0.05  # seconds between two drawings; a terminal shows no more, and the loop has better things to do

    def __init__(self, total: int, style: str = "auto") -> None:
        self.total = total
        self.style = style if style != "auto" else "bar" if sys.stderr.isatty() else "lines"
        self.drawn_at = 0.0
        self.lines_said = 0
        self.longest = 0

    def show(self, done: int, text: str) -> None:
        """After each round: how many are done, and what is worth knowing."""
        if self.style == "bar":
            now = time.perf_counter()
            if done < self.total and now - self.drawn_at < self.PAUSE:
                return
            self.drawn_at = now
            filled = self.WIDTH * done // self.total
            line = f"{'█' * filled}{'░' * (self.WIDTH - filled)} {done}/{self.total}  {text}"
            self.longest = max(self.longest, len(line))
            end = "\n" if done == self.total else ""
            print(f"\r{line:{self.longest}}", end=end, file=sys.stderr, flush=True)
        elif self.style == "lines" and done * 10 // self.total > self.lines_said:
            self.lines_said = done * 10 // self.total
            print(f"{done:>{len(str(self.total))}}/{self.total}  {text}", file=sys.stderr, flush=True)


def in_bytes(number: float) -> str:
    """1234567 -> "1.2 MB"."""
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"
