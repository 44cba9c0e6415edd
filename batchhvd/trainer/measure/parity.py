"""The comparison behind the parity certificate: training on N ranks, and by one process alone.

For each number of ranks the same network is trained twice from the same weights on the same pictures in the same
order: by all ranks together, each with its part of every batch, and by one process alone with a plain optimizer.
The comparison covers the gradients of the first step, the weights after twenty steps, and the test accuracy after one
more pass. The first twenty steps are small: sooner or later rounding alone moves a network to the other side of the
kink of a ReLU, and from there two correct trainings diverge. Dropout is off, since its masks cannot be equal. Networks
with batch normalization cannot have parity: each rank normalizes with its own part of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from batchhvd.errors import SpecError
from batchhvd.trainer.hvd.variable import as_array

if TYPE_CHECKING:
    import keras

#: Pictures (n, ...) and labels (n,).
Examples: TypeAlias = "tuple[np.ndarray, np.ndarray]"

#: Largest differences that rounding in float32 explains: relative for gradients and weights, absolute for accuracy.
GRADIENT, WEIGHT, ACCURACY = 1e-5, 1e-4, 0.03
STEPS = 20
#: Learning rates of the first steps, and of the pass after them. Trainings whose first weights differ by 1e-7 end that
#: pass with accuracies within 0.003; with a rate of 0.01 they are up to 0.11 apart, although neither is wrong.
SMALL, LARGE = 0.001, 0.004


@frozen
class Parity:
    """The differences between so many ranks and one process alone.

    Attributes:
        ranks: how many ranks trained together.
        batch: pictures of one step, of all ranks together.
        gradient_error: |difference| / |gradients| of the first step, over all weights.
        weight_error: the same for the weights after `STEPS` steps.
        moved: how far these steps moved the weights, in the same measure; without movement a comparison proves nothing.
        accuracy, alone: test accuracy after one more pass, together and alone.
    """

    ranks: int
    batch: int
    gradient_error: float
    weight_error: float
    moved: float
    accuracy: float
    alone: float

    @property
    def holds(self) -> bool:
        """True if all differences are within their limits."""
        near = abs(self.accuracy - self.alone) <= ACCURACY
        went = self.moved >= 10 * WEIGHT
        return self.gradient_error <= GRADIENT and self.weight_error <= WEIGHT and went and near


@frozen
class Trace:
    """What is recorded of one training.

    Attributes:
        gradients: of the first step, for all weights in one row.
        start, weights: the weights before the first step and after `STEPS` steps, in one row.
        accuracy: on the test pictures, after one more pass.
    """

    gradients: NDArray[np.float64]
    start: NDArray[np.float64]
    weights: NDArray[np.float64]
    accuracy: float


def measure(build: Callable[[], keras.Model], train: Examples, test: Examples, batch: int) -> Parity | None:
    """Trains together and alone; call it on all ranks.

    Args:
        build: builds the network, without randomness in its layers.
        train: pictures (n, ...) and labels (n,), the same on all ranks.
        test: likewise, for testing.
        batch: pictures of one step of all ranks together; a multiple of the ranks.

    Returns:
        The comparison on rank 0, None elsewhere.

    Raises:
        SpecError: The batch is not a multiple of the ranks, or one pass has fewer than `STEPS` steps.
    """
    from batchhvd.trainer import hvd
    from batchhvd.trainer.hvd.model_broadcast import broadcast_model
    from batchhvd.trainer.hvd.optimizer import prepare

    _check_batch(batch, hvd.size(), len(train[0]))
    model = _compiled(build)
    hvd.DistributedOptimizer(model.optimizer)
    prepare(model)
    broadcast_model(model)
    first = model.get_weights()
    together = trace(model, parts(train, batch, hvd.rank(), hvd.size()), test, batch // hvd.size())
    if hvd.rank() != 0:
        hvd.barrier()
        return None
    alone = _compiled(build)
    alone.set_weights(first)
    reference = trace(alone, parts(train, batch, 0, 1), test, batch)
    hvd.barrier()
    return _compare(together, reference, hvd.size(), batch)


def _check_batch(batch: int, ranks: int, pictures: int) -> None:
    if batch % ranks or pictures // batch < STEPS:
        raise SpecError(
            f"a batch of {batch} does not suit {ranks} ranks and {pictures} pictures",
            remedy=f"take a multiple of {ranks}, at most {pictures // STEPS}",
        )


def _compiled(build: Callable[[], keras.Model]) -> keras.Model:
    import keras

    model = build()
    # The momentum of the first step is the gradient times the rate, so no hook is needed to read the gradient.
    optimizer = keras.optimizers.SGD(SMALL, momentum=0.9)
    model.compile(loss="sparse_categorical_crossentropy", metrics=["accuracy"], optimizer=optimizer)
    return model


def parts(data: Examples, batch: int, rank: int, size: int) -> Examples:
    """Returns the pictures of a rank: its part of each batch, one after another."""
    steps = len(data[0]) // batch

    def part(array: np.ndarray) -> np.ndarray:
        parts = array[: steps * batch].reshape(steps, size, batch // size, *array.shape[1:])
        return parts[:, rank].reshape(-1, *array.shape[1:])

    return part(data[0]), part(data[1])


def trace(model: keras.Model, data: Examples, test: Examples, batch: int) -> Trace:
    """Trains a compiled model in the order of its data, and records what is compared."""

    def fit(first: int, end: int) -> None:
        part = slice(first * batch, end * batch)
        model.fit(data[0][part], data[1][part], batch_size=batch, shuffle=False, verbose=0)

    start = row(model.get_weights())
    fit(0, 1)
    gradients = -row(model.optimizer.momentums) / SMALL
    fit(1, STEPS)
    weights = row(model.get_weights())
    model.optimizer.learning_rate = LARGE
    fit(0, len(data[0]) // batch)
    accuracy = model.evaluate(*test, batch_size=256, verbose=0, return_dict=True)["accuracy"]
    return Trace(gradients, start, weights, float(accuracy))


def row(variables: Sequence[keras.Variable | np.ndarray]) -> NDArray[np.float64]:
    """Returns all numbers of several variables or arrays in one row of float64."""
    return np.concatenate([as_array(part).astype("float64").ravel() for part in variables])


def _compare(together: Trace, alone: Trace, ranks: int, batch: int) -> Parity:
    return Parity(
        ranks=ranks,
        batch=batch,
        gradient_error=distance(together.gradients, alone.gradients),
        weight_error=distance(together.weights, alone.weights),
        moved=distance(alone.weights, alone.start),
        accuracy=together.accuracy,
        alone=alone.accuracy,
    )


def distance(found: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    """Returns |difference| / |expected|."""
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def small(shape: Sequence[int], classes: int) -> keras.Model:
    """Builds a network of the tutorial's kind with a hundredth of its work, for a quick certificate."""
    from keras import Input, Sequential
    from keras.layers import Conv2D, Dense, Flatten, MaxPooling2D

    return Sequential(
        [
            Input(tuple(shape)),  # (B, 32, 32, 3)
            Conv2D(8, 3, strides=2, activation="relu"),  # (B, 15, 15, 8)
            MaxPooling2D(3),  # (B, 5, 5, 8)
            Flatten(),  # (B, 200)
            Dense(32, activation="relu"),  # (B, 32)
            Dense(classes, activation="softmax"),  # (B, classes)
        ]
    )


def network(name: str, shape: Sequence[int], classes: int) -> keras.Model:
    """Builds a network by name, with its dropout off."""
    if name == "small":
        return small(shape, classes)
    import keras

    from batchhvd.trainer.network import tutorial

    built = tutorial(shape, classes)
    for layer in built.layers:
        if isinstance(layer, keras.layers.Dropout):
            layer.rate = 0.0
    return built
