"""Compares lowered steps and Muon's two forms with Keras's own; prints what it found. Run by the test beside."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import torch

from batchhvd.trainer import network
from batchhvd.trainer.lowering.forward import LoweredStep
from batchhvd.trainer.lowering.program import CannotLowerError, read
from batchhvd.trainer.optimizers import muon_torch
from batchhvd.trainer.optimizers.muon import Muon

torch.set_num_threads(1)
RANDOM = np.random.default_rng(0)
X = torch.tensor(RANDOM.random((8, 32, 32, 3), dtype="float32"))
Y = torch.tensor(np.eye(10, dtype="float32")[RANDOM.integers(0, 10, 8)])


class SlowMuon(Muon):
    """Muon as on backends other than PyTorch: one weight after another."""

    def _backend_update_step(self, grads: Any, trainable_variables: Any, learning_rate: Any) -> None:
        for gradient, variable in zip(grads, trainable_variables, strict=True):
            self.update_step(gradient, variable, learning_rate)


def trained(build: Callable[[], Any], optimizer: Any, lowered: bool) -> tuple[Any, list[float], int]:
    """Makes three steps; returns all weights, the metrics, and how many constants the later steps copied."""
    keras.utils.set_random_seed(1)
    model = build()
    loss = keras.losses.CategoricalCrossentropy(label_smoothing=0.2)
    model.compile(optimizer, loss, metrics=["accuracy"], jit_compile=False)
    step = LoweredStep(model, read(model), compile_it=False) if lowered else model.train_step
    logs = step((X, Y))
    before = len(step._constants.kept) if lowered else 0
    logs = [step((X, Y)) for _ in range(2)][-1]
    copied = len(step._constants.kept) - before if lowered else 0
    weights = np.concatenate([keras.ops.convert_to_numpy(one).ravel() for one in model.weights])
    return weights, [float(value) for value in logs.values()], copied


def difference(build: Callable[[], Any], make: Callable[[], Any], other: Callable[[], Any]) -> list[float]:
    """Returns how far a lowered training ends from Keras's: of the weights, of the metrics; and what it copied."""
    mine, logs, copied = trained(build, make(), True)
    theirs, expected, _ = trained(build, other(), False)
    apart = float(np.linalg.norm(mine - theirs) / np.linalg.norm(theirs))
    return [apart, float(np.abs(np.subtract(logs, expected)).max()), copied]


def tutorial() -> Any:
    """Returns the tutorial's network without dropout."""
    model = network.tutorial((32, 32, 3), 10)
    for layer in model.layers:
        if isinstance(layer, keras.layers.Dropout):
            layer.rate = 0.0
    return model


class Doubled(keras.Sequential):  # type: ignore[misc]  # Keras has no types
    """A network that computes something else than its layers say."""

    def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        """Returns twice what the layers do."""
        return 2 * super().call(inputs, training=training, mask=mask)


def refused(layer: Any, kind: type = keras.Sequential) -> str:
    """Returns why a network with a layer is not lowered."""
    try:
        read(kind([keras.Input((8, 8, 3)), layer]))
    except CannotLowerError as error:
        return str(error)
    return ""


OPTIONS: dict[str, Any] = {"plain": ("head",), "plain_rate": 7.0, "bias_rate": 40.0, "decay": 0.1}
OPTIONS |= {"brief": ("whitening",), "brief_steps": 2}
MATRICES = torch.tensor(RANDOM.normal(size=(2, 40, 24)).astype("float32"))
FOUND = {
    "fast": difference(
        lambda: network.fast((32, 32, 3), 10, (8, 16, 16)), lambda: Muon(**OPTIONS), lambda: SlowMuon(**OPTIONS)
    ),
    "residual": difference(
        lambda: network.fast((32, 32, 3), 10, (8, 8, 8), 3), lambda: Muon(**OPTIONS), lambda: SlowMuon(**OPTIONS)
    ),
    "tutorial": difference(tutorial, lambda: keras.optimizers.AdamW(1e-3), lambda: keras.optimizers.AdamW(1e-3)),
    "refused": [
        refused(keras.layers.LayerNormalization()),
        refused(keras.layers.Conv2D(4, 3, padding="same", strides=2)),
        refused(keras.layers.Conv2D(4, 3), Doubled),
    ],
    "singular values": torch.linalg.svdvals(muon_torch.orthogonal(MATRICES)).ravel().tolist(),
}
print("FOUND" + json.dumps(FOUND))
