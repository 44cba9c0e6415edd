"""Cases of the table: several optimizers, steps of the user's, and training without ``fit``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.e2e.trainer.model_battery import Gan, gradients, no_gradients
from tests.e2e.trainer.model_case import (
    Given,
    case,
    fill,
    losses,
    mine,
    mlp,
    optimizers,
    plain,
    sgd,
    share,
    table,
    tokens,
    with_policy,
    x_y,
)

import keras  # isort: skip

from batchhvd.trainer import hvd

if TYPE_CHECKING:
    from batchhvd.trainer.hvd.binding import Tensor

TF = ("tensorflow",)
BOTH = (*TF, "torch")


def gan(**made: Any) -> Given:
    model = fill(Gan(0))
    model.compile(**made)
    return {"model": model, "data": x_y(), "validation": None}


@case(traced=True)
def two_optimizers() -> Given:
    return gan(first=optimizers.Adam(0.01), second=sgd(momentum=0.5))


@case(later=BOTH)
def two_optimizers_that_accumulate() -> Given:
    return gan(first=sgd(gradient_accumulation_steps=2), second=optimizers.Adam(0.01, global_clipnorm=0.1))


@case()
def one_optimizer_for_each_layer() -> Given:
    """Keras's own optimizer of optimizers."""
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(6, "tanh", name="hidden")])
    model.add(keras.layers.Dense(3, "softmax", name="shown"))
    chosen = keras.optimizers.OptimizerMap(sgd(), {"hidden/.*": optimizers.Adam(0.01)})
    return plain(optimizers.MultiOptimizer(chosen), model)


class Sharp(keras.Model):  # type: ignore[misc]  # Keras has no types
    """A step that computes gradients twice, at two points, and updates once."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def build(self, shape: tuple[int | None, ...]) -> None:
        self.built = True

    def call(self, inputs: Tensor) -> Tensor:
        return self.inner(inputs)

    def train_step(self, data: Any) -> dict[str, Tensor]:
        x, y = data
        variables = self.inner.trainable_variables
        loss = losses.SparseCategoricalCrossentropy()
        value, found = gradients(lambda: loss(y, self.inner(x)), variables)
        with no_gradients():
            self.optimizer.apply([gradient * 1.0 for gradient in found], variables)
        value, found = gradients(lambda: loss(y, self.inner(x)), variables)
        with no_gradients():
            self.optimizer.apply(found, variables)
        return {"value": value}


@case()
def two_updates_in_a_step() -> Given:
    model = fill(Sharp())
    model.compile(sgd())
    return {"model": model, "data": x_y(), "validation": None}


class Late(keras.Model):  # type: ignore[misc]  # Keras has no types
    """A model that its first batch builds."""

    def __init__(self) -> None:
        super().__init__()
        start = keras.initializers.RandomNormal(stddev=0.4, seed=3)
        self.out = keras.layers.Dense(3, "softmax", kernel_initializer=start)

    def call(self, inputs: Tensor) -> Tensor:
        return self.out(inputs)


@case()
def built_by_its_first_batch() -> Given:
    model = Late()
    model.compile(sgd(), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return {"model": model, "data": x_y()}


# --- without fit -----------------------------------------------------------------------------------------------------


def by_hand(model: keras.Model, optimizer: Any, train: Callable[[keras.Model], None], **compiled: Any) -> Given:
    """Returns a training that a script makes itself, with the optimizer wrapped and the weights broadcast."""
    given = plain(hvd.DistributedOptimizer(optimizer), model, compiled=compiled)

    def work() -> None:
        hvd.callbacks.broadcast_model(model)
        train(model)

    return {**given, "work": work}


def _batches(model: keras.Model) -> None:
    for x, y in mine(*x_y()):
        model.train_on_batch(x, y)


@case()
def keras_fit() -> Given:
    """Horovod's own recipe: Keras's ``fit`` with the callbacks."""

    def train(model: keras.Model) -> None:
        x, y = x_y()
        part = slice(hvd.rank(), None, hvd.size())
        model.fit(
            x[part],
            y[part],
            batch_size=share(),
            shuffle=False,
            verbose=0,
            callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()],
        )

    return by_hand(mlp(), sgd(momentum=0.9), train)


@case(later=TF)
def batch_by_batch() -> Given:
    return by_hand(mlp(), optimizers.Adam(0.01), _batches)


@case(weights=1e-2, figures=1e-2)
def batch_by_batch_in_mixed_precision() -> Given:
    return by_hand(with_policy("mixed_float16", mlp), sgd(), _batches)


def _loop(model: keras.Model) -> None:
    loss = losses.SparseCategoricalCrossentropy()
    optimizer = model.optimizer
    for x, y in mine(*x_y()):
        _, found = gradients(lambda x=x, y=y: loss(y, model(x)), model.trainable_variables)  # type: ignore[misc]
        with no_gradients():
            optimizer.apply(found, model.trainable_variables)


@case(later=TF)
def loop() -> Given:
    return by_hand(mlp(), sgd(momentum=0.9), _loop)


@case(later=BOTH)
def loop_with_accumulation() -> Given:
    return by_hand(mlp(), sgd(gradient_accumulation_steps=3), _loop)


@case(weights=1e-2, figures=1e-2)
def loop_in_mixed_precision() -> Given:
    """The scaling around the distributed optimizer; the first step overflows on no rank or on all."""

    def train(model: keras.Model) -> None:
        scaling = optimizers.LossScaleOptimizer(model.optimizer, initial_scale=4.0)
        loss = losses.SparseCategoricalCrossentropy()
        for x, y in mine(*x_y()):
            _, found = gradients(
                lambda x=x, y=y: scaling.scale_loss(loss(y, model(x))),  # type: ignore[misc]
                model.trainable_variables,
            )
            with no_gradients():
                scaling.apply(found, model.trainable_variables)

    return by_hand(with_policy("mixed_float16", mlp), sgd(), train, auto_scale_loss=False)


@case()
def loop_with_an_embedding() -> Given:
    def train(model: keras.Model) -> None:
        loss = losses.SparseCategoricalCrossentropy()
        for x, y in mine(*tokens()):
            _, found = gradients(
                lambda x=x, y=y: loss(y, model(x.astype("int32"))),  # type: ignore[misc]
                model.trainable_variables,
            )
            with no_gradients():
                model.optimizer.apply(found, model.trainable_variables)

    return {**by_hand(table(), optimizers.Adam(0.05), train), "data": tokens()}


@case(backends=TF)
def tape() -> Given:
    """Horovod's tape around a plain optimizer."""

    def train(model: keras.Model) -> None:
        import tensorflow as tf

        loss, optimizer = losses.SparseCategoricalCrossentropy(), sgd()
        for x, y in mine(*x_y()):
            with tf.GradientTape() as recorded:
                value = loss(y, model(x))
            recorded = hvd.DistributedGradientTape(recorded)
            optimizer.apply(recorded.gradient(value, model.trainable_variables), model.trainable_variables)

    return by_hand(mlp(), sgd(), train)


@case(weights=2e-3, figures=2e-3, later=BOTH)
def compressed() -> Given:
    optimizer = hvd.DistributedOptimizer(sgd(), compression=hvd.Compression.fp16)
    return plain(optimizer)


@case(later=BOTH)
def passes_as_in_horovod() -> Given:
    return plain(hvd.DistributedOptimizer(sgd(0.05), backward_passes_per_step=2))
