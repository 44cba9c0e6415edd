"""Recipes: a network together with the numbers that train it well."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import attrs

from batchhvd.errors import SpecError
from batchhvd.trainer import network

if TYPE_CHECKING:
    import keras
    import numpy as np
    from numpy.typing import NDArray


@attrs.frozen
class Recipe:
    """A network and its default training.

    Attributes:
        name: its name for ``--recipe``.
        build: builds the network for a shape of pictures and a number of classes.
        epochs: passes over the data, by data set; ``""`` stands for all others.
        batch: smallest number of samples of one rank per step.
        together: samples of all ranks per step, if each rank has at least ``batch``.
        gpu_batch: samples of one rank per step on a GPU.
        rate: the peak learning rate of one rank with ``batch`` samples.
        decay: weight decay, times the rate.
        scaling: how the rate grows with the number of ranks: "linear", "sqrt" or "none".
        warmup: the fraction of the training in which the rate rises.
        smoothing: the fraction of each label that is spread over all classes.
        momentum: None trains with AdamW, a number with Nesterov's momentum.
        bias_rate: factor of the rate for biases; only with momentum.
        filters: None, or the momentum of filters, which then make the orthogonal moves of Muon.
        head_rate: factor of the rate for the layer ``head``; only with ``filters``.
        first_layer: passes in which the biases of the layer ``whitening`` learn; only with ``filters``.
        shift: by how many pixels a picture is moved at most.
        hole: the side of the square that is painted grey in each picture.
        adapt: called with the network and the training pictures before training; None does nothing.
    """

    name: str
    build: Callable[[Sequence[int], int], keras.Model]
    epochs: dict[str, int]
    batch: int
    together: int
    gpu_batch: int
    rate: float
    decay: float
    scaling: str = "linear"
    warmup: float = 0.25
    smoothing: float = 0.0
    momentum: float | None = None
    bias_rate: float = 1.0
    filters: float | None = None
    head_rate: float = 1.0
    first_layer: float = 0.0
    shift: int = 2
    hole: int = 0
    adapt: Callable[[keras.Model, NDArray[np.uint8]], None] | None = None

    def epochs_for(self, dataset: str) -> int:
        """Returns the number of passes over a data set."""
        return self.epochs.get(dataset, self.epochs[""])

    def batch_for(self, ranks: int, gpu: bool) -> int:
        """Returns the samples of one rank per step."""
        return self.gpu_batch if gpu else max(self.batch, self.together // ranks)

    def rate_for(self, batch: int) -> float:
        """Returns one rank's peak rate; it grows with the square root of the batch (measured from 128 to 1024)."""
        return self.rate * math.sqrt(batch / self.batch)


TUTORIAL = Recipe(
    name="tutorial",
    build=network.tutorial,
    epochs={"digits": 12, "cifar10": 12, "": 12},
    batch=32,
    together=128,
    gpu_batch=512,
    rate=8e-4,
    decay=0.02,
)

FAST = Recipe(
    name="fast",
    build=network.fast,
    epochs={"digits": 6, "cifar10": 8, "": 8},  # 8 passes over CIFAR-10 are 0.28 PFLOP
    batch=512,
    together=512,
    gpu_batch=2000,
    rate=0.12,
    decay=0.11,
    scaling="sqrt",
    warmup=0.0,  # an orthogonal move is as long at the first step as later
    smoothing=0.2,
    momentum=0.85,
    bias_rate=440.0,
    filters=0.6,
    head_rate=7.0,
    first_layer=3.0,
    adapt=lambda model, images: network.whiten(model, images[:5000]),
)

BEST = attrs.evolve(
    FAST,
    name="best",
    build=lambda shape, classes: network.fast(shape, classes, (128, 384, 512), depth=3),
    epochs={"digits": 12, "cifar10": 31, "": 31},  # 31 passes over CIFAR-10 are 4.2 PFLOP
    rate=0.09,
    head_rate=5.0,
    warmup=0.1,
    shift=4,
    hole=10,
)

RECIPES = {recipe.name: recipe for recipe in (TUTORIAL, FAST, BEST)}


def named(name: str) -> Recipe:
    """Returns the recipe called ``name``.

    Raises:
        SpecError: There is no such recipe.
    """
    if name not in RECIPES:
        raise SpecError(f"there is no recipe {name!r}", remedy=f"take one of {', '.join(RECIPES)}")
    return RECIPES[name]
