"""More kinds of training for the parity certificate: several optimizers, embeddings, mixed precision, accumulation.

Each case trains a small model from the same weights on the same samples in the same order: by all ranks together, each
with its part of every batch, and by one process alone with plain optimizers. What is compared is the weights after
`STEPS` steps, for each optimizer by itself, so that one that exchanges nothing is named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from batchhvd.trainer.hvd.variable import as_array
from batchhvd.trainer.measure.parity import WEIGHT, distance, parts, row

if TYPE_CHECKING:
    import keras

    from batchhvd.trainer.hvd.binding import Tensor

    #: A model and the samples that it learns.
    Case: TypeAlias = "tuple[keras.Model, np.ndarray, np.ndarray]"

STEPS, BATCH = 12, 32
#: Sums of two halves in float16 differ from the sum of the whole in the third digit.
HALF = 5e-3


@attrs.frozen
class CaseParity:
    """The differences between so many ranks and one process alone, in one kind of training.

    Attributes:
        case: its name.
        ranks: how many ranks trained together.
        errors: |difference| / |weights| after `STEPS` steps, by the path of the optimizer that updates them.
        moved: how far the steps moved the weights, in the same measure; without movement a comparison proves nothing.
        limit: the largest error that rounding explains.
    """

    case: str
    ranks: int
    errors: Mapping[str, float]
    moved: float
    limit: float

    @property
    def broken(self) -> list[str]:
        """The optimizers whose weights differ by more than rounding."""
        return [path for path, error in self.errors.items() if not error <= self.limit]

    @property
    def holds(self) -> bool:
        """True if all differences are within the limit."""
        return not self.broken and self.moved >= 10 * self.limit

    def __str__(self) -> str:
        """Returns what was compared, in a line."""
        compared = ", ".join(f"of model.{path} {error:.1e}" for path, error in self.errors.items())
        names = " and ".join(f"model.{path}" for path in self.broken)
        fault = f"; {names} does not do what one rank does: is it distributed?" if names else ""
        return (
            f"{self.ranks} ranks, {self.case}: weights after {STEPS} steps {compared} (moved {self.moved:.1e}): "
            f"{'holds' if self.holds else 'DOES NOT HOLD'}{fault}"
        )


def cases() -> dict[str, tuple[Callable[[], Case], float]]:
    """Returns what builds each case, and its limit."""
    from batchhvd.trainer import backend

    return {
        "two optimizers": (_two_optimizers, WEIGHT),
        "embeddings": (_embeddings, WEIGHT),
        "mixed precision": (_mixed_precision, HALF),
        "accumulation": (_accumulation, WEIGHT),
        "orthogonal moves": (_orthogonal_moves, HALF if backend.gpu() else WEIGHT),  # a GPU makes them in bfloat16
    }


def measure_case(name: str) -> CaseParity | None:
    """Trains a case together and alone; call it on all ranks.

    Returns:
        The comparison on rank 0, None elsewhere.
    """
    from batchhvd.trainer import hvd
    from batchhvd.trainer.hvd.model_broadcast import broadcast_model
    from batchhvd.trainer.hvd.optimizer import prepare
    from batchhvd.trainer.hvd.optimizer_search import optimizers_of

    build, limit = cases()[name]
    model, x, y = build()
    for optimizer in optimizers_of(model).values():
        hvd.DistributedOptimizer(optimizer)
    prepare(model)
    broadcast_model(model)
    first = model.get_weights()
    together = _train(model, *parts((x, y), BATCH, hvd.rank(), hvd.size()), BATCH // hvd.size())
    found = None
    if hvd.rank() == 0:
        plain, x, y = build()
        plain.set_weights(first)
        alone = _train(plain, x, y, BATCH)
        errors = {path: distance(together[path], alone[path]) for path in alone}
        moved = distance(row(plain.get_weights()), row(first))
        found = CaseParity(name, hvd.size(), errors, moved, limit)
    hvd.barrier()
    return found


def _train(model: keras.Model, x: np.ndarray, y: np.ndarray, batch: int) -> dict[str, NDArray[np.float64]]:
    """Trains in the order of the samples, and returns the weights that each optimizer updates, in one row."""
    from batchhvd.trainer.hvd.optimizer_search import optimizers_of

    model.fit(x, y, batch_size=batch, shuffle=False, verbose=0)
    found = {path: getattr(one, "inner_optimizer", one) for path, one in optimizers_of(model).items()}
    return {
        path: row([as_array(variable) for variable in optimizer._trainable_variables])
        for path, optimizer in found.items()
        if optimizer.built
    }


# --- the cases -------------------------------------------------------------------------------------------------------


def _samples() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(1).normal(size=(STEPS * BATCH, 8)).astype("float32")
    return x, np.abs(x[:, :3]).argmax(axis=1).astype("int32")


def _classifier(first: Sequence[keras.layers.Layer]) -> keras.Model:
    import keras

    return keras.Sequential([*first, keras.layers.Dense(3, "softmax")])


def _dense() -> keras.Model:
    import keras

    return _classifier([keras.Input((8,)), keras.layers.Dense(16, "tanh")])


def _compiled(model: keras.Model, optimizer: keras.optimizers.Optimizer) -> keras.Model:
    model.compile(optimizer, "sparse_categorical_crossentropy")
    return model


def _two_optimizers() -> Case:
    """Two networks that learn the same, each with an optimizer of its own, in a step of the model's."""
    import keras

    class Pair(keras.Model):  # type: ignore[misc]  # Keras has no types
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = _dense(), _dense()
            self.optimizers = {"first": keras.optimizers.Adam(0.01), "second": keras.optimizers.SGD(0.1, momentum=0.9)}
            self.built = True

        def call(self, inputs: Tensor) -> Tensor:
            return self.first(inputs) + self.second(inputs)

        def train_step(self, data: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
            losses = {name: _step(getattr(self, name), self.optimizers[name], *data) for name in ("first", "second")}
            return {"loss": losses["first"]}

    model = Pair()
    model.compile(optimizer=None)
    return model, *_samples()


def _step(network: keras.Model, optimizer: keras.optimizers.Optimizer, x: Tensor, y: Tensor) -> Tensor:
    """Makes one step of a network and returns its loss, on either backend."""
    import keras

    loss_of, variables = keras.losses.SparseCategoricalCrossentropy(), network.trainable_variables
    if keras.config.backend() == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            loss = loss_of(y, network(x))
        optimizer.apply(tape.gradient(loss, variables), variables)
        return loss
    import torch

    network.zero_grad()
    loss = loss_of(y, network(x))
    loss.backward()
    with torch.no_grad():
        optimizer.apply([variable.value.grad for variable in variables], variables)
    return loss


def _embeddings() -> Case:
    """Rows of a table; on TensorFlow their gradients are sparse."""
    import keras

    words = np.random.default_rng(2).integers(0, 24, size=(STEPS * BATCH, 6)).astype("int32")
    first = [keras.Input((6,), dtype="int32"), keras.layers.Embedding(24, 8), keras.layers.Flatten()]
    return _compiled(_classifier(first), keras.optimizers.SGD(0.5)), words, (words.sum(axis=1) % 3).astype("int32")


def _mixed_precision() -> Case:
    """Computes in float16 with loss scaling, which begins low: halves of a batch overflow earlier than the whole."""
    import keras

    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = _dense()
    finally:
        keras.config.set_dtype_policy(before)
    scaling = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.3), initial_scale=256.0)
    return _compiled(model, scaling), *_samples()


def _accumulation() -> Case:
    """Two batches for one update."""
    import keras

    optimizer = keras.optimizers.SGD(0.2, momentum=0.9, gradient_accumulation_steps=2, global_clipnorm=0.5)
    return _compiled(_dense(), optimizer), *_samples()


def _orthogonal_moves() -> Case:
    """Muon, whose moves follow from the averaged gradients of a whole kernel."""
    import keras

    from batchhvd.trainer.optimizers.muon import Muon

    first = [keras.Input((8,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(16, "tanh", name="hidden")]
    model = _classifier(first)
    optimizer = Muon(0.05, plain=(model.layers[-1].name,), plain_rate=4.0, bias_rate=2.0, decay=0.1, brief=("hidden",))
    return _compiled(model, optimizer), *_samples()
