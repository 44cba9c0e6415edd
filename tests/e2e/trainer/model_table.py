"""Many kinds of models, each trained by ``fit`` on two ranks and on one with the same global batch.

Started as ``python model_table.py FOLDER RANKS NODES CHECK...``; with RANKS of 1 the process is alone. What both must
agree on: weights, the history of metrics, and `evaluate`. The judgement is the test's.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.e2e.trainer import horovod_battery as battery  # it decides about TensorFlow before Keras is imported

import keras  # isort: skip
import numpy as np

from batchhvd.trainer import hvd
from batchhvd.trainer.fitting import evaluate, fit

if TYPE_CHECKING:
    from batchhvd.trainer.hvd.binding import Tensor

layers, optimizers, metrics = keras.layers, keras.optimizers, keras.metrics
GLOBAL = 16  # samples of all ranks per step
COUNT = 64
CASES: dict[str, Callable[[], dict[str, Any]]] = {}
#: On TensorFlow each case is traced for seconds: there these run only if MODEL_TABLE is "all".
SLOW = {
    *("momentum", "adamw", "rmsprop", "adagrad", "nadam", "lion", "lamb", "adafactor", "ftrl", "clipnorm", "clipvalue"),
    *("schedule", "penalty", "frozen", "in_order", "layer_normalization", "convolution", "recurrent", "attention"),
    *("float16", "inputs_in_a_list"),
}


def case(build: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    CASES[build.__name__] = build
    return build


def x_y(classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(1)
    x = random.normal(size=(COUNT, 8)).astype("float32")
    return x, (np.abs(x[:, :classes]).argmax(axis=1)).astype("int32")


def mlp(*extra: keras.layers.Layer, last: int = 3, activation: str = "softmax") -> keras.Model:
    return keras.Sequential(
        [keras.Input((8,)), layers.Dense(6, activation="tanh"), *extra, layers.Dense(last, activation=activation)]
    )


def plain(optimizer: keras.optimizers.Optimizer, model: keras.Model | None = None, **options: Any) -> dict[str, Any]:
    model = model or mlp()
    compiled = {"loss": "sparse_categorical_crossentropy", "metrics": ["accuracy"], **options.pop("compiled", {})}
    fill(model)
    model.compile(optimizer, **compiled)
    return {"model": model, "data": x_y(), **options}


def fill(model: keras.Model) -> None:
    """Gives a model the same weights in each process, whatever its layers are called."""
    random = np.random.default_rng(7)
    for weight in model.weights:
        weight.assign(random.normal(size=weight.shape, scale=0.4))


def _plain_with(make: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: plain(make())


def add_optimizers() -> None:
    made = {
        "sgd": lambda: optimizers.SGD(0.1),
        "momentum": lambda: optimizers.SGD(0.1, momentum=0.9, nesterov=True),
        "adam": lambda: optimizers.Adam(0.01),
        "adamw": lambda: optimizers.AdamW(0.01, weight_decay=0.05),
        "rmsprop": lambda: optimizers.RMSprop(0.01),
        "adagrad": lambda: optimizers.Adagrad(0.1),
        "nadam": lambda: optimizers.Nadam(0.01),
        "lion": lambda: optimizers.Lion(0.01),
        "lamb": lambda: optimizers.Lamb(0.01),
        "adafactor": lambda: optimizers.Adafactor(0.01),
        "ftrl": lambda: optimizers.Ftrl(0.1),
        "clipnorm": lambda: optimizers.SGD(0.5, clipnorm=0.1),
        "clipvalue": lambda: optimizers.SGD(0.5, clipvalue=0.01),
        "global_clipnorm": lambda: optimizers.SGD(0.5, global_clipnorm=0.1),
        "ema": lambda: optimizers.SGD(0.1, use_ema=True, ema_momentum=0.8, ema_overwrite_frequency=3),
        "accumulation": lambda: optimizers.SGD(0.1, gradient_accumulation_steps=2),
        "schedule": lambda: optimizers.SGD(optimizers.schedules.CosineDecay(0.2, 8)),
        "loss_scale": lambda: optimizers.LossScaleOptimizer(optimizers.SGD(0.1)),
    }
    for name, make in made.items():
        CASES[name] = _plain_with(make)


add_optimizers()


@case
def sum_loss() -> dict[str, Any]:
    loss = keras.losses.SparseCategoricalCrossentropy(reduction="sum")
    return plain(optimizers.SGD(0.005), compiled={"loss": loss})


@case
def penalty() -> dict[str, Any]:
    return plain(optimizers.SGD(0.1), mlp(layers.Dense(5, kernel_regularizer="l2")))


@case
def frozen() -> dict[str, Any]:
    model = mlp()
    model.layers[0].trainable = False
    return plain(optimizers.SGD(0.1), model)


@case
def layer_normalization() -> dict[str, Any]:
    return plain(optimizers.SGD(0.1), mlp(layers.LayerNormalization()))


@case
def convolution() -> dict[str, Any]:
    model = keras.Sequential([keras.Input((8,)), layers.Reshape((4, 2, 1)), layers.Conv2D(4, 2, activation="relu")])
    model.add(layers.Flatten())
    model.add(layers.Dense(3, activation="softmax"))
    return plain(optimizers.SGD(0.1), model)


@case
def recurrent() -> dict[str, Any]:
    model = keras.Sequential([keras.Input((8,)), layers.Reshape((4, 2)), layers.GRU(4), layers.Dense(3, "softmax")])
    return plain(optimizers.Adam(0.01), model)


@case
def attention() -> dict[str, Any]:
    inputs = keras.Input((8,))
    rows = layers.Reshape((4, 2))(inputs)
    seen = layers.Flatten()(layers.MultiHeadAttention(2, 3)(rows, rows))
    return plain(optimizers.Adam(0.01), keras.Model(inputs, layers.Dense(3, "softmax")(seen)))


def table(**options: Any) -> dict[str, Any]:
    model = keras.Sequential([keras.Input((6,), dtype="int32"), layers.Embedding(12, 4), layers.Flatten()])
    model.add(layers.Dense(2, "softmax"))
    given = plain(optimizers.SGD(0.1, **options), model)
    x = np.random.default_rng(2).integers(0, 12, size=(COUNT, 6), dtype=np.uint8)
    return {**given, "data": (x, (x.sum(axis=1) > 33).astype("int32"))}


@case
def embedding_of_bytes() -> dict[str, Any]:
    return table()


@case
def embedding_with_accumulation() -> dict[str, Any]:
    return table(gradient_accumulation_steps=2)


@case
def pictures() -> dict[str, Any]:
    x = np.random.default_rng(3).integers(0, 256, size=(COUNT, 8), dtype=np.uint8)
    return {**plain(optimizers.SGD(0.1)), "data": (x, x_y()[1]), "pictures": True}


@case
def own_rescaling() -> dict[str, Any]:
    if battery.BACKEND == "torch":
        return {}  # Keras's layer needs TensorFlow, which is kept away here
    model = keras.Sequential([keras.Input((8,)), layers.Rescaling(1 / 255), layers.Dense(3, "softmax")])
    x = np.random.default_rng(3).integers(0, 256, size=(COUNT, 8), dtype=np.uint8)
    return {**plain(optimizers.SGD(0.1), model), "data": (x, x_y()[1])}


@case
def bfloat16() -> dict[str, Any]:
    with battery._Policy("mixed_bfloat16"):
        model = mlp()
    return plain(optimizers.SGD(0.1), model)


@case
def float16() -> dict[str, Any]:
    with battery._Policy("mixed_float16"):
        model = mlp()
    return plain(optimizers.SGD(0.1), model)


def two_inputs() -> keras.Model:
    first, second = keras.Input((4,), name="first"), keras.Input((4,), name="second")
    hidden = layers.Concatenate()([layers.Dense(3, "tanh")(first), layers.Dense(3, "tanh")(second)])
    return keras.Model([first, second], layers.Dense(3, "softmax")(hidden))


@case
def inputs_in_a_list() -> dict[str, Any]:
    x, y = x_y()
    return {**plain(optimizers.SGD(0.1), two_inputs()), "data": ([x[:, :4], x[:, 4:]], y)}


@case
def inputs_in_a_dictionary() -> dict[str, Any]:
    x, y = x_y()
    return {**plain(optimizers.SGD(0.1), two_inputs()), "data": ({"first": x[:, :4], "second": x[:, 4:]}, y)}


@case
def two_outputs() -> dict[str, Any]:
    inputs = keras.Input((8,))
    hidden = layers.Dense(5, "tanh")(inputs)
    outputs = {"kind": layers.Dense(3, "softmax", name="kind")(hidden), "size": layers.Dense(1, name="size")(hidden)}
    model = keras.Model(inputs, outputs)
    fill(model)
    losses = {"kind": "sparse_categorical_crossentropy", "size": "mse"}
    model.compile(optimizers.SGD(0.1), losses, loss_weights={"kind": 1.0, "size": 0.3}, metrics={"kind": ["accuracy"]})
    x, y = x_y()
    return {"model": model, "data": (x, {"kind": y, "size": x[:, :1]})}


@case
def sample_weights() -> dict[str, Any]:
    x, y = x_y()
    weights = np.linspace(0.1, 2, COUNT).astype("float32")
    return {**plain(optimizers.SGD(0.1), compiled={"weighted_metrics": ["accuracy"]}), "data": (x, y, weights)}


@case
def class_weights() -> dict[str, Any]:
    return plain(optimizers.SGD(0.1), class_weight={0: 0.5, 1: 1.0, 2: 3.0})


@case
def in_order() -> dict[str, Any]:
    return plain(optimizers.SGD(0.1), shuffle=False)


@case
def seldom_validated() -> dict[str, Any]:
    return plain(optimizers.SGD(0.1), validation_freq=2)


@case
def counting_metrics() -> dict[str, Any]:
    x, y = x_y()
    model = mlp(last=1, activation="sigmoid")
    fill(model)
    names = [metrics.AUC(name="auc"), metrics.Precision(name="p"), metrics.Recall(name="r"), "binary_accuracy"]
    model.compile(optimizers.SGD(0.1), "binary_crossentropy", metrics=names)
    return {"model": model, "data": (x, (y == 0).astype("float32")[:, None])}


@case
def metrics_with_arrays() -> dict[str, Any]:
    x, y = x_y()
    given = plain(optimizers.SGD(0.1), compiled={"loss": "categorical_crossentropy", "metrics": [metrics.F1Score()]})
    return {**given, "data": (x, np.eye(3, dtype="float32")[y])}


@case
def regression() -> dict[str, Any]:
    x, _ = x_y()
    model = mlp(last=1, activation="linear")
    fill(model)
    named = [metrics.RootMeanSquaredError(name="rmse"), metrics.R2Score(name="r2"), "mae"]
    model.compile(optimizers.Adam(0.01), "huber", metrics=named)
    return {"model": model, "data": (x, x[:, :1])}


class OwnStep(keras.Model):  # type: ignore[misc]  # Keras has no types
    """A model with a step, a loss and a metric of its own."""

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
        loss = keras.ops.mean(keras.losses.sparse_categorical_crossentropy(y, y_pred)) + self.scale**2
        self.seen.update_state(loss)
        return loss


@case
def own_loss() -> dict[str, Any]:
    model = OwnStep()
    model.build((None, 8))
    fill(model)
    model.compile(optimizers.SGD(0.1))
    return {"model": model, "data": x_y()}


class Batches(keras.utils.PyDataset):  # type: ignore[misc]  # Keras has no types
    """Batches that any number of ranks can have: one rank's are those of two ranks together."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def __len__(self) -> int:
        return COUNT // self.size

    def __getitem__(self, at: int) -> tuple[np.ndarray, np.ndarray]:
        x, y = x_y()
        part = slice(at * self.size, (at + 1) * self.size)
        return x[part], y[part]


@case
def dataset() -> dict[str, Any]:
    size = GLOBAL // hvd.size()
    return {**plain(optimizers.SGD(0.1)), "data": Batches(size), "validation": Batches(size)}


@case
def generator() -> dict[str, Any]:
    batches = Batches(GLOBAL // hvd.size())

    def endless() -> Iterator[Any]:
        while True:
            yield from (batches[at] for at in range(len(batches)))

    return {**plain(optimizers.SGD(0.1)), "data": endless(), "steps_per_epoch": 4, "validation": x_y()}


@case
def several_steps_at_once() -> dict[str, Any]:
    if battery.BACKEND == "torch":
        return {}  # Keras refuses it there
    return plain(optimizers.SGD(0.1), compiled={"steps_per_execution": 2})


@case
def compiled_step() -> dict[str, Any]:
    if battery.BACKEND == "torch":
        return {}  # horovod_battery.py has it: compiling takes half a minute
    return plain(optimizers.SGD(0.1), compiled={"jit_compile": True})


def run(build: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Trains a case and returns what it ended with."""
    given = build()
    if not given:
        return {}
    model, data = given.pop("model"), given.pop("data")
    validation = given.pop("validation", data)
    batch = GLOBAL // hvd.size()
    result = fit(model, data, validation=validation, epochs=2, batch_size=batch, progress=None, **given)
    scale = {"pictures": True} if given.get("pictures") else {}
    return {
        "weights": [np.asarray(weight, "float64").tolist() for weight in model.get_weights()],
        "history": {name: list(values) for name, values in result.history.items()},
        "evaluate": evaluate(model, validation, **scale),
        "steps": result.steps,
    }


def check_table() -> object:
    found = {}
    for name, build in CASES.items():
        if battery.BACKEND == "tensorflow" and name in SLOW and os.environ.get("MODEL_TABLE") != "all":
            continue
        began = time.monotonic()
        try:
            found[name] = run(build)
        except Exception as error:
            raise RuntimeError(name) from error
        found[name]["seconds"] = round(time.monotonic() - began, 2)
        if "BATTERY_TIMES" in os.environ:
            print(hvd.rank(), name, found[name]["seconds"], flush=True)
    return found


if __name__ == "__main__":
    if sys.argv[2] == "1":
        raise SystemExit(battery.work(Path(sys.argv[1]), sys.argv[4:], globals()))
    raise SystemExit(battery.main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:], globals()))
