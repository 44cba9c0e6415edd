"""When a trial is given up early: rules that see what all trials have reported so far.

A rule keeps no state: the same reports give the same answer, so that an interrupted sweep goes on as it would have.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

from attrs import Attribute, asdict, field, frozen

from batchhvd.errors import SpecError

GOALS = ("max", "min")
Curves = Mapping[int, Sequence[float]]


def goal_of(metric: str, goal: str | None = None) -> str:
    """Returns whether more or less of a metric is better: what is given, else ``"min"`` for losses and errors."""
    return goal or ("min" if "loss" in metric.lower() or "error" in metric.lower() else "max")


def signed(value: float, goal: str) -> float:
    """Returns a value so that more is better; one that is no number, as of a diverged training, is the worst."""
    if math.isnan(value):
        return -math.inf
    return value if goal == "max" else -value


def _goal(_owner: object, _attribute: object, value: str) -> None:
    if value not in GOALS:
        raise SpecError(f"goal must be max or min, not {value!r}", remedy="max for an accuracy, min for a loss")


def _at_least(least: int) -> Callable[[object, Attribute[int], int], None]:
    def check(_owner: object, attribute: Attribute[int], value: int) -> None:
        if not isinstance(value, int) or value < least:
            raise SpecError(
                f"{attribute.name} must be a whole number of at least {least}, not {value!r}", remedy="change it"
            )

    return check


class Stopping(Protocol):
    """A rule that gives up trials."""

    @property
    def metric(self) -> str:
        """The metric that it looks at, as the training names it, such as ``val_accuracy``."""

    @property
    def goal(self) -> str:
        """``"max"`` or ``"min"``."""

    def lost(self, curves: Curves) -> set[int]:
        """Returns which trials are behind.

        Args:
            curves: for each trial the metric's value after each epoch, the first epoch first.
        """

    def describe(self) -> dict[str, object]:
        """Returns the rule as plain values, which ``rule`` reads."""


@frozen
class Median:
    """Gives up a trial whose best value is worse than the median of what the others had after as many epochs.

    Source: the median rule of Google Vizier (Golovin et al., 2017).

    Attributes:
        metric: the metric, as the training names it.
        goal: ``"max"`` or ``"min"``.
        after: epochs that every trial gets.
        least: how many others must have come as far.
    """

    metric: str
    goal: str = field(validator=_goal)
    after: int = field(default=1, validator=_at_least(1))
    least: int = field(default=3, validator=_at_least(1))

    def lost(self, curves: Curves) -> set[int]:
        """Returns which trials are behind."""
        better = {trial: [signed(value, self.goal) for value in curve] for trial, curve in curves.items()}
        return {trial for trial, curve in better.items() if len(curve) >= self.after and self._behind(trial, better)}

    def _behind(self, trial: int, better: Curves) -> bool:
        done = len(better[trial])
        peers = [curve for one, curve in better.items() if one != trial and len(curve) >= done]
        others = [statistics.fmean(curve[:done]) for curve in peers]
        return len(others) >= self.least and max(better[trial]) < statistics.median(others)

    def describe(self) -> dict[str, object]:
        """Returns the rule as plain values."""
        return {"rule": "median", **asdict(self)}


@frozen
class Asha:
    """Successive halving without waiting: at each rung only the best part of the trials that reached it goes on.

    The rungs are after ``first``, ``first * factor``, ``first * factor**2`` … epochs. A trial that was ahead can fall
    behind when others reach the rung. Source: Li et al., A System for Massively Parallel Hyperparameter Tuning, 2020.

    Attributes:
        metric: the metric, as the training names it.
        goal: ``"max"`` or ``"min"``.
        first: epochs that every trial gets.
        factor: one of so many goes on.
    """

    metric: str
    goal: str = field(validator=_goal)
    first: int = field(default=1, validator=_at_least(1))
    factor: int = field(default=3, validator=_at_least(2))

    def lost(self, curves: Curves) -> set[int]:
        """Returns which trials are behind."""
        found: set[int] = set()
        rung, furthest = self.first, max(map(len, curves.values()), default=0)
        while rung <= furthest:
            found |= self._behind({trial: curve[rung - 1] for trial, curve in curves.items() if len(curve) >= rung})
            rung *= self.factor
        return found

    def _behind(self, at_rung: Mapping[int, float]) -> set[int]:
        """Returns who is not among the best of a rung; nobody before ``factor`` trials have reached it."""
        ranked = sorted(at_rung, key=lambda trial: (-signed(at_rung[trial], self.goal), trial))
        return set(ranked[max(1, len(ranked) // self.factor) :]) if len(ranked) >= self.factor else set()

    def describe(self) -> dict[str, object]:
        """Returns the rule as plain values."""
        return {"rule": "asha", **asdict(self)}


def median(metric: str, *, goal: str | None = None, after: int = 1, least: int = 3) -> Median:
    """Returns the median rule, as ``Median`` describes it; without a goal, less is better of losses and errors."""
    return Median(metric, goal_of(metric, goal), after, least)


def asha(metric: str, *, goal: str | None = None, first: int = 1, factor: int = 3) -> Asha:
    """Returns successive halving, as ``Asha`` describes it; without a goal, less is better of losses and errors."""
    return Asha(metric, goal_of(metric, goal), first, factor)


def rule(described: Mapping[str, object] | None) -> Stopping | None:
    """Returns the rule that ``describe`` has described; None for None."""
    if described is None:
        return None
    given = {name: cast("Any", value) for name, value in described.items() if name != "rule"}
    return Median(**given) if described["rule"] == "median" else Asha(**given)
