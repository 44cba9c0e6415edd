"""Warm-up: the learning rate rises from that of one rank to that of all."""

from __future__ import annotations

from attrs import frozen


@frozen
class Warmup:
    """Raises the rate evenly from that of one rank to the scaled one: ``rate(e) = top · (1/N + (1 - 1/N) · e/E)``.

    Here e is the epoch with its fraction, E the number of epochs of warm-up, N the number of ranks, and top the rate
    from E on. With one rank, or zero epochs, the rate is top from the start.

    Attributes:
        top: the rate after warm-up.
        epochs: duration of warm-up.
        ranks: N, or any other factor by which the first rate is smaller.
    """

    top: float
    epochs: float
    ranks: float

    def rate(self, epoch: float) -> float:
        """Returns the rate at an epoch, counted from 0, with its fraction."""
        if epoch >= self.epochs or self.epochs <= 0:
            return self.top
        first = 1.0 / self.ranks
        return self.top * (first + (1.0 - first) * epoch / self.epochs)
