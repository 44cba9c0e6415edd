"""What a long command prints while it works."""

from __future__ import annotations

import time
from collections.abc import Callable

from attrs import field, frozen


@frozen
class StepLog:
    """Prints one line for each step, with the seconds since the start."""

    clock: Callable[[], float] = time.monotonic
    start: float = field()

    @start.default
    def _now(self) -> float:
        return self.clock()

    def say(self, text: str) -> None:
        """Prints one line."""
        print(f"[{self.clock() - self.start:6.1f} s] {text}", flush=True)
