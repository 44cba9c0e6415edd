"""What the table of models is made of: a case with its tolerances, and the models and data that many cases share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from tests.e2e.trainer import horovod_battery as battery  # it decides about TensorFlow before Keras is imported

import keras  # isort: skip
import numpy as np
from attrs import frozen

from batchhvd.trainer import hvd

if TYPE_CHECKING:
    from batchhvd.trainer.hvd.binding import Tensor

layers, optimizers, metrics, losses = keras.layers, keras.optimizers, keras.metrics, keras.losses
GLOBAL = 16  # samples of all ranks per step
COUNT = 48
BOTH = ("tensorflow", "torch")

#: What `model_table.run` trains: a model, its data, and arguments of ``fit``.
Given: TypeAlias = "dict[str, Any]"


@frozen
class Case:
    """A kind of model or training.

    Attributes:
        build: returns what to train, with the same weights in every process.
        backends: where Keras can do it.
        weights: by how much weights may differ between two ranks and one; sums of two halves round otherwise than the
            whole.
        figures: the same for metrics, relative to those above 1.
        other: names of metrics that two ranks have otherwise than one, because a definition says so.
        traced: whether TensorFlow runs it as a graph by default; the whole table always does.
        later: backends on which only the whole table runs it, because it takes long.
        said: a sentence with which two ranks refuse it, or warn that they are not one rank with a larger batch.
    """

    build: Callable[[], Given]
    backends: tuple[str, ...] = BOTH
    weights: float = 2e-5
    figures: float = 2e-4
    other: tuple[str, ...] = ()
    traced: bool = False
    later: tuple[str, ...] = ()
    said: str = ""


CASES: dict[str, Case] = {}


def case(**details: Any) -> Callable[[Callable[[], Given]], Callable[[], Given]]:
    """Puts what a function builds into the table, under the function's name."""

    def add(build: Callable[[], Given]) -> Callable[[], Given]:
        CASES[build.__name__] = Case(build, **details)
        return build

    return add


# --- data ------------------------------------------------------------------------------------------------------------


def x_y(classes: int = 3, count: int = COUNT) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(1)
    x = random.normal(size=(count, 8)).astype("float32")
    return x, (np.abs(x[:, :classes]).argmax(axis=1)).astype("int32")


def tokens(classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Returns bytes from 0 to 11 whose sum decides the class."""
    x = np.random.default_rng(2).integers(0, 12, size=(COUNT, 6), dtype=np.uint8)
    return x, (x.sum(axis=1) // 4 % classes).astype("int32")


def one_hot(y: np.ndarray, classes: int = 3) -> np.ndarray:
    found: np.ndarray = np.eye(classes, dtype="float32")[y]
    return found


class Batches(keras.utils.PyDataset):  # type: ignore[misc]  # Keras has no types
    """Batches that any number of ranks can have: one rank's are those of two ranks together."""

    def __init__(self, size: int, **options: Any) -> None:
        super().__init__(**options)
        self.size = size

    def __len__(self) -> int:
        return COUNT // self.size

    def __getitem__(self, at: int) -> tuple[np.ndarray, np.ndarray]:
        x, y = x_y()
        part = slice(at * self.size, (at + 1) * self.size)
        return x[part], y[part]


def share() -> int:
    """Returns how many samples of a step are this rank's."""
    return GLOBAL // hvd.size()


def mine(*arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """Yields this rank's part of each step, for loops that are written by hand."""
    for start in range(0, COUNT, GLOBAL):
        yield tuple(array[start : start + GLOBAL][hvd.rank() :: hvd.size()] for array in arrays)


# --- models ----------------------------------------------------------------------------------------------------------


def mlp(*extra: keras.layers.Layer, last: int = 3, activation: str | None = "softmax") -> keras.Model:
    return keras.Sequential(
        [keras.Input((8,)), layers.Dense(6, activation="tanh"), *extra, layers.Dense(last, activation=activation)]
    )


def table(*extra: keras.layers.Layer, classes: int = 2, **options: Any) -> keras.Model:
    """Returns a model whose first layer is a table of rows."""
    model = keras.Sequential([keras.Input((6,), dtype="int32"), layers.Embedding(12, 4, **options), *extra])
    if not extra:
        model.add(layers.Flatten())
    model.add(layers.Dense(classes, "softmax"))
    return model


def fill(model: keras.Model) -> keras.Model:
    """Gives a model the same weights in each process, whatever its layers are called."""
    random = np.random.default_rng(7)
    for weight in model.weights:
        if str(weight.dtype).startswith(("float", "bfloat")):
            weight.assign(random.normal(size=weight.shape, scale=0.4))
    return model


def plain(optimizer: keras.optimizers.Optimizer, model: keras.Model | None = None, **options: Any) -> Given:
    """Returns a classifier of `x_y`; options are those of ``fit``, and ``compiled`` has those of ``compile``."""
    model = fill(model or mlp())
    compiled = {"loss": "sparse_categorical_crossentropy", "metrics": ["accuracy"], **options.pop("compiled", {})}
    model.compile(optimizer, **compiled)
    return {"model": model, "data": x_y(), **options}


def sgd(rate: float = 0.1, **options: Any) -> keras.optimizers.Optimizer:
    return optimizers.SGD(rate, **options)


def regressor(loss: Any, *shown: Any, optimizer: Any = None, activation: str = "linear", last: int = 1) -> Given:
    """Returns a model that learns the first columns of `x_y`."""
    x, _ = x_y()
    model = fill(mlp(last=last, activation=activation))
    model.compile(optimizer or sgd(), loss, metrics=list(shown))
    return {"model": model, "data": (x, x[:, :last])}


def judge(loss: Any, *shown: Any, model: keras.Model | None = None) -> Given:
    """Returns a model that says yes or no."""
    x, y = x_y()
    model = fill(model or mlp(last=1, activation="sigmoid"))
    model.compile(sgd(), loss, metrics=list(shown))
    return {"model": model, "data": (x, (y == 0).astype("float32")[:, None])}


def with_policy(name: str, make: Callable[[], keras.Model]) -> keras.Model:
    with battery._Policy(name):
        return make()


class OwnStep(keras.Model):  # type: ignore[misc]  # Keras has no types
    """A model with a loss and a metric of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()
        self.scale = keras.Variable(0.5)
        self.seen = metrics.Mean(name="seen")

    def call(self, inputs: Tensor) -> Tensor:
        return self.inner(inputs) * 1.0

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, **more: Any
    ) -> Any:
        loss = keras.ops.mean(losses.sparse_categorical_crossentropy(y, y_pred)) + self.scale**2
        self.seen.update_state(loss)
        return loss
