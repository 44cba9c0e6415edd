"""A search that learns from its trials: Optuna is asked for points and told what came of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from attrs import field, frozen

from batchhvd.errors import SpecError
from batchhvd.sweeps import space
from batchhvd.sweeps.space import MOST, Dimension, Point, Value, checked, named_dimensions
from batchhvd.sweeps.stopping import GOALS, goal_of


@frozen
class Search:
    """Points that Optuna chooses, each when it is to be tried; takes the place of a space in ``experiment.sweep``.

    Attributes:
        trials: how many.
        metric: the metric that it makes better, as the training names it.
        goal: ``"max"`` or ``"min"``.
        seed: with the same results, the same seed gives the same points.
        dimensions: where each name's values lie.
    """

    trials: int
    metric: str
    goal: str
    seed: int
    dimensions: Mapping[str, Dimension] = field(repr=False)

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.trials, int) or not 1 <= self.trials <= MOST:
            raise SpecError(f"n must be a whole number from 1 to {MOST}, not {self.trials!r}", remedy="give one")
        if self.goal not in GOALS:
            raise SpecError(f"goal must be max or min, not {self.goal!r}", remedy="max for an accuracy, min for a loss")
        if not self.dimensions:
            raise SpecError("a search needs at least one name", remedy="give one such as rate=loguniform(1e-4, 0.1)")
        first = {name: one.given[0] for name, one in self.dimensions.items()}
        checked(first, first)

    def __len__(self) -> int:
        return self.trials

    @property
    def points(self) -> tuple[Point, ...]:
        """Nothing: no point is known before it is tried."""
        return ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names that each point has values for."""
        return tuple(self.dimensions)

    @property
    def text(self) -> str:
        """How it was written, for people."""
        drawn = ", ".join(f"{name} {one.text}" for name, one in self.dimensions.items())
        return f"{self.trials} by Optuna for the {self.goal} of {self.metric}: {drawn}; seed {self.seed}"

    def describe(self) -> dict[str, object]:
        """Returns it as plain values, which ``described`` reads."""
        dimensions = {name: [one.kind, *one.given] for name, one in self.dimensions.items()}
        own = {"trials": self.trials, "metric": self.metric, "goal": self.goal, "seed": self.seed}
        return {**own, "dimensions": dimensions}


def optuna(
    n: int, *, metric: str, goal: str | None = None, seed: int = 0, **dimensions: Dimension | Sequence[Value]
) -> Search:
    """Returns a search of some trials, for ``experiment.sweep``; it needs ``batchhvd[optuna]``.

    Args:
        n: how many trials.
        metric: the metric, as the training names it.
        goal: ``"max"`` or ``"min"``; None for ``"min"`` of losses and errors, else ``"max"``.
        seed: with the same results, the same seed gives the same points.
        dimensions: where each name's values lie; a list is a ``choice``.

    Raises:
        SpecError: a number, a goal or a dimension is none.
    """
    return Search(n, metric, goal_of(metric, goal), seed, named_dimensions(dimensions))


def described(document: Mapping[str, Any] | None) -> Search | None:
    """Returns the search that ``describe`` has described; None for None."""
    if document is None:
        return None
    makers: dict[str, Callable[..., Dimension]] = {
        **{"uniform": space.uniform, "loguniform": space.loguniform},
        **{"integer": space.integer, "choice": space.choice},
    }
    dimensions = {name: makers[kind](*given) for name, (kind, *given) in document["dimensions"].items()}
    return Search(**{**cast("dict[str, Any]", document), "dimensions": dimensions})
