"""The state of the random number generators of a rank, in a form that a checkpoint can hold."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from batchhvd.trainer.hvd.variable import as_array

if TYPE_CHECKING:
    import keras

#: One rank's random state: JSON as text, or arrays.
RandomState: TypeAlias = "Mapping[str, str | np.ndarray]"


def random_state(model: keras.Model) -> dict[str, str | np.ndarray]:
    """Returns the random state of this rank: of Python, numpy, PyTorch if it is the backend, and the layers."""
    import keras

    version, numbers, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state()
    state: dict[str, str | np.ndarray] = {
        "python": json.dumps([version, list(numbers), gauss]),
        "numpy": keys,
        "numpy_rest": json.dumps([str(kind), int(position), int(has_gauss), float(cached)]),
        **{f"layer{number:05d}": as_array(variable) for number, variable in enumerate(_seeds(model))},
    }
    if keras.config.backend() == "torch":
        import torch

        state["torch"] = torch.get_rng_state().numpy()
        if torch.cuda.is_available():
            state["cuda"] = torch.cuda.get_rng_state().numpy()
    return state


def set_random_state(model: keras.Model, state: RandomState) -> None:
    """Restores a random state. Layers that are not in it keep theirs."""
    import keras

    version, numbers, gauss = json.loads(str(state["python"]))
    random.setstate((version, tuple(numbers), gauss))
    kind, position, has_gauss, cached = json.loads(str(state["numpy_rest"]))
    np.random.set_state((kind, state["numpy"], position, has_gauss, cached))
    for number, variable in enumerate(_seeds(model)):
        if f"layer{number:05d}" in state:
            variable.assign(state[f"layer{number:05d}"])
    if keras.config.backend() == "torch" and "torch" in state:
        import torch

        torch.set_rng_state(torch.as_tensor(state["torch"]))
        if "cuda" in state and torch.cuda.is_available():
            torch.cuda.set_rng_state(torch.as_tensor(state["cuda"]))


def _seeds(model: keras.Model) -> list[keras.Variable]:
    """Returns the states of random layers, such as dropout: variables that are neither weights nor metrics."""
    others = {id(variable) for variable in [*model.weights, *model.metrics_variables]}
    return [variable for variable in model.variables if id(variable) not in others]
