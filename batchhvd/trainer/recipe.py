"""Recipes: a network together with the numbers that train it well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from batchhvd.errors import SpecError
from batchhvd.trainer import model


@attrs.frozen
class Recipe:
    """Holds a network and how it is trained when nothing else is asked for.

    Attributes:
        name: what ``--recipe`` calls it.
        build: makes the network from a picture's shape and the number of classes.
        epochs: passes over the data, per data set; ``""`` is for any other.
        batch: samples of one rank per step.
        rate: the peak learning rate of one rank; it is multiplied by the ranks.
        weight_decay: AdamW's.
        smoothing: how much of each label is spread over all classes.
    """

    name: str
    build: Callable[[Sequence[int], int], Any]
    epochs: dict[str, int]
    batch: int
    rate: float
    weight_decay: float
    smoothing: float = 0.0

    def epochs_for(self, dataset: str) -> int:
        """Returns the passes over a data set."""
        return self.epochs.get(dataset, self.epochs[""])


TUTORIAL = Recipe(
    name="tutorial",
    build=model.tutorial,
    epochs={"digits": 12, "cifar10": 12, "": 12},
    batch=32,
    rate=7.5e-4,
    weight_decay=0.01,
)

RECIPES = {recipe.name: recipe for recipe in (TUTORIAL,)}


def named(name: str) -> Recipe:
    """Returns the recipe called ``name``.

    Raises:
        SpecError: there is no such recipe.
    """
    if name not in RECIPES:
        raise SpecError(f"there is no recipe {name!r}", remedy=f"take one of {', '.join(RECIPES)}")
    return RECIPES[name]
