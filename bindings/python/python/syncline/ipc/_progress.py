"""A bar that shows how many of something have ended; one line on stderr, redrawn when it is a terminal."""

from __future__ import annotations

import sys
import time


class Bar:
    """Drawn at most ten times a second; into a file or pipe it writes a line at the end only."""

    WIDTH = 24

    def __init__(self, name: str, total: int) -> None:
        self.name, self.total = name, total
        self.started = time.monotonic()
        self.drawn = 0.0
        self.terminal = sys.stderr.isatty()
        self.over = False

    def show(self, ended: int, failed: int) -> None:
        now = time.monotonic()
        last = ended >= self.total
        if self.over or (not last and (not self.terminal or now - self.drawn < 0.1)):
            return
        self.drawn, self.over = now, last
        share = ended / self.total if self.total else 1.0
        bar = "█" * int(share * self.WIDTH) + "░" * (self.WIDTH - int(share * self.WIDTH))
        text = f"{self.name} {bar} {ended}/{self.total}"
        if failed:
            text += f"  {failed} failed"
        text += f"  {now - self.started:.1f} s"
        sys.stderr.write(f"\r\x1b[2K{text}" if self.terminal else text)
        if last or not self.terminal:
            sys.stderr.write("\n")
        sys.stderr.flush()
