"""Warm-up: the learning rate of many ranks grows from that of one."""

from __future__ import annotations

from attrs import frozen


@frozen
class Warmup:
    """Grows the rate evenly from a single rank's to the scaled one: ``rate(e) = top · (1/N + (1 - 1/N) · e/E)``.

    Here e is the epoch with its fraction, E the epochs of warm-up, N the ranks, and top the rate from E on. With one
    rank, or no epochs, the rate is top from the start.

    Attributes:
        top: the rate after warm-up.
        epochs: how long it takes.
        ranks: N, or any other factor by which the first steps shall be smaller.
    """

    top: float
    epochs: float
    ranks: float

    def rate(self, epoch: float) -> float:
        """Returns the rate at an epoch, counted from 0 with its fraction."""
        if epoch >= self.epochs or self.epochs <= 0:
            return self.top
        first = 1.0 / self.ranks
        return self.top * (first + (1.0 - first) * epoch / self.epochs)
