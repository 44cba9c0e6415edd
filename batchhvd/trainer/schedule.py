"""How the learning rate grows with the number of ranks: policies and warm-up as values with a formula.

N ranks with batch b take the step that one rank with batch N·b would take. How much larger the step may then be is
a question of the problem, so it is a choice here and not a habit.
"""

from __future__ import annotations

import math

from attrs import frozen

from batchhvd.errors import SpecError


@frozen
class Scaling:
    """What the learning rate is multiplied by on N ranks: ``rate(N) = base · N ** power``.

    Attributes:
        name: "none", "linear" or "sqrt".
        power: 0, 1 or 1/2.

    Source: linear, with warm-up: Goyal et al., "Accurate, Large Minibatch SGD" (arXiv 1706.02677), and the tutorial's
    script; square root: Krizhevsky, "One weird trick" (arXiv 1404.5997), section 5.
    """

    name: str
    power: float

    def rate(self, base: float, ranks: int) -> float:
        """Returns the learning rate on so many ranks.

        Args:
            base: the rate that suits one rank.
            ranks: how many there are.
        """
        return base * math.pow(ranks, self.power)


NONE = Scaling("none", 0.0)
LINEAR = Scaling("linear", 1.0)
SQRT = Scaling("sqrt", 0.5)


def scaling(name: str) -> Scaling:
    """Returns the policy of that name.

    Raises:
        SpecError: there is none.
    """
    for policy in (NONE, LINEAR, SQRT):
        if policy.name == name:
            return policy
    raise SpecError(f"no scaling of the learning rate is called {name!r}", remedy="use none, linear or sqrt")


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


def tutorial_epochs(ranks: int, total: int = 100) -> int:
    """Returns how many epochs the tutorial's script trains: ``⌈total / ranks⌉``."""
    return math.ceil(total / ranks)
