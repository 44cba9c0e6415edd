"""Cases of the table: optimizers, precision, kinds of layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.e2e.trainer.model_case import (
    CASES,
    COUNT,
    Case,
    Given,
    case,
    fill,
    layers,
    losses,
    mlp,
    optimizers,
    plain,
    sgd,
    table,
    tokens,
    with_policy,
    x_y,
)

import keras  # isort: skip
import numpy as np

if TYPE_CHECKING:
    from batchhvd.trainer.hvd.binding import Tensor

schedules = optimizers.schedules
TF = ("tensorflow",)
BOTH = (*TF, "torch")


def _plain(make: Callable[[], Any], **compiled: Any) -> Callable[[], Given]:
    return lambda: plain(make(), compiled=compiled)


#: Adaptive optimizers divide by numbers near 0.
OPTIMIZERS: dict[str, Case] = {
    "sgd": Case(_plain(sgd), traced=True),
    "momentum": Case(_plain(lambda: sgd(momentum=0.9, nesterov=True)), later=TF),
    "weight_decay": Case(_plain(lambda: sgd(weight_decay=0.05)), later=TF),
    "adam": Case(_plain(lambda: optimizers.Adam(0.01))),
    "amsgrad": Case(_plain(lambda: optimizers.Adam(0.01, amsgrad=True)), later=BOTH),
    "adamw": Case(_plain(lambda: optimizers.AdamW(0.01, weight_decay=0.05)), later=TF),
    "adamax": Case(_plain(lambda: optimizers.Adamax(0.01)), later=BOTH),
    "adadelta": Case(_plain(lambda: optimizers.Adadelta(1.0)), weights=1e-4, later=BOTH),
    "rmsprop": Case(_plain(lambda: optimizers.RMSprop(0.01)), later=BOTH),
    "adagrad": Case(_plain(lambda: optimizers.Adagrad(0.1)), weights=1e-4, later=TF),
    "nadam": Case(_plain(lambda: optimizers.Nadam(0.01)), later=BOTH),
    "lion": Case(_plain(lambda: optimizers.Lion(0.01)), weights=2e-3, figures=5e-3, later=TF),
    "lamb": Case(_plain(lambda: optimizers.Lamb(0.01)), later=BOTH),
    "muon": Case(_plain(lambda: optimizers.Muon(0.01)), weights=1e-3, figures=1e-3, later=TF),
    "adafactor": Case(_plain(lambda: optimizers.Adafactor(0.01)), later=BOTH),
    "ftrl": Case(_plain(lambda: optimizers.Ftrl(0.1)), later=BOTH),
    "clipnorm": Case(_plain(lambda: sgd(0.5, clipnorm=0.1)), later=TF),
    "clipvalue": Case(_plain(lambda: sgd(0.5, clipvalue=0.01)), later=BOTH),
    "global_clipnorm": Case(_plain(lambda: sgd(0.5, global_clipnorm=0.1)), later=TF),
    "ema": Case(_plain(lambda: sgd(use_ema=True, ema_momentum=0.8, ema_overwrite_frequency=3)), later=TF),
    "accumulation": Case(_plain(lambda: sgd(gradient_accumulation_steps=2)), traced=True),
    "accumulation_and_clipping": Case(
        _plain(lambda: optimizers.Adam(0.01, gradient_accumulation_steps=2, global_clipnorm=0.1)), later=TF
    ),
    "schedule": Case(_plain(lambda: sgd(schedules.CosineDecay(0.2, 8))), later=TF),
    "loss_scale": Case(_plain(lambda: optimizers.LossScaleOptimizer(sgd())), traced=True),
    "loss_scale_and_accumulation": Case(
        _plain(lambda: optimizers.LossScaleOptimizer(sgd(gradient_accumulation_steps=2))), later=TF
    ),
    "compiled_step": Case(_plain(sgd, jit_compile=True), TF, traced=True),
    "several_steps_at_once": Case(_plain(sgd, steps_per_execution=3), TF, traced=True),
    "eager": Case(_plain(sgd, run_eagerly=True), later=TF),
}
CASES.update(OPTIMIZERS)


# --- embeddings ------------------------------------------------------------------------------------------------------


def _tokens(optimizer: Any, model: keras.Model | None = None, **options: Any) -> Given:
    return {**plain(optimizer, model or table(), **options), "data": tokens()}


@case()
def embedding_of_bytes() -> Given:
    return _tokens(sgd())


@case(traced=True)
def embedding_with_accumulation() -> Given:
    return _tokens(sgd(gradient_accumulation_steps=2))


@case(later=TF)
def embedding_with_adam() -> Given:
    return _tokens(optimizers.Adam(0.05))


@case(later=TF)
def embedding_with_clipping() -> Given:
    return _tokens(sgd(0.5, global_clipnorm=0.05))


@case(later=BOTH)
def embedding_masked() -> Given:
    return _tokens(optimizers.Adam(0.01), table(layers.LSTM(3), mask_zero=True))


@case(later=TF)
def embedding_used_twice() -> Given:
    rows = layers.Embedding(12, 4)
    inputs = keras.Input((6,), dtype="int32")
    first, second = rows(inputs[:, :3]), rows(inputs[:, 3:])
    outputs = layers.Dense(2, "softmax")(layers.Flatten()(layers.Multiply()([first, second])))
    return _tokens(sgd(), keras.Model(inputs, outputs))


@case(later=BOTH)
def bag_of_words() -> Given:
    return _tokens(sgd(), table(layers.GlobalAveragePooling1D()))


# --- precision -------------------------------------------------------------------------------------------------------


@case(weights=2e-2, figures=3e-2, later=TF)
def mixed_bfloat16() -> Given:
    return plain(sgd(), with_policy("mixed_bfloat16", mlp))


@case(weights=1e-2, figures=1e-2, later=TF)
def mixed_float16() -> Given:
    return plain(sgd(), with_policy("mixed_float16", mlp))


@case(weights=4e-2, figures=4e-2)
def pure_bfloat16() -> Given:
    return plain(sgd(), with_policy("bfloat16", mlp))


@case(weights=1e-2, figures=1e-2, later=BOTH)
def pure_float16() -> Given:
    return plain(sgd(), with_policy("float16", mlp))


@case(later=BOTH)
def float64() -> Given:
    x, y = x_y()
    return {**plain(sgd(), with_policy("float64", mlp)), "data": (x.astype("float64"), y)}


@case(weights=1e-2, figures=1e-2, later=BOTH)
def float16_with_accumulation() -> Given:
    return plain(sgd(gradient_accumulation_steps=2), with_policy("mixed_float16", mlp))


# --- layers ----------------------------------------------------------------------------------------------------------


@case(later=TF)
def penalty() -> Given:
    return plain(sgd(), mlp(layers.Dense(5, kernel_regularizer="l2")))


@case(later=BOTH)
def activity_penalty() -> Given:
    return plain(sgd(), mlp(layers.ActivityRegularization(l2=0.05)))


@case(later=TF)
def frozen() -> Given:
    model = mlp()
    model.layers[0].trainable = False
    return plain(sgd(), model)


@case(later=BOTH)
def constrained() -> Given:
    return plain(sgd(0.5), mlp(layers.Dense(5, kernel_constraint="non_neg")))


@case(later=TF)
def layer_normalization() -> Given:
    return plain(sgd(), mlp(layers.LayerNormalization()))


@case(later=BOTH)
def group_normalization() -> Given:
    return plain(sgd(), mlp(layers.GroupNormalization(2)))


@case(backends=TF, said="synchronized=True")
def synchronized_normalization() -> Given:
    return plain(sgd(), mlp(layers.BatchNormalization(synchronized=True)))


@case(later=TF)
def convolution() -> Given:
    model = keras.Sequential([keras.Input((8,)), layers.Reshape((4, 2, 1)), layers.Conv2D(4, 2, activation="relu")])
    model.add(layers.Flatten())
    model.add(layers.Dense(3, activation="softmax"))
    return plain(sgd(), model)


@case(later=BOTH)
def separable() -> Given:
    model = keras.Sequential(
        [keras.Input((8,)), layers.Reshape((4, 2)), layers.SeparableConv1D(4, 2), layers.Flatten()]
    )
    model.add(layers.Dense(3, activation="softmax"))
    return plain(sgd(), model)


@case(weights=1e-4, later=TF)
def recurrent() -> Given:
    model = keras.Sequential([keras.Input((8,)), layers.Reshape((4, 2)), layers.GRU(4), layers.Dense(3, "softmax")])
    return plain(optimizers.Adam(0.01), model)


@case(weights=1e-4, later=BOTH)
def in_both_directions() -> Given:
    model = keras.Sequential([keras.Input((8,)), layers.Reshape((4, 2)), layers.Bidirectional(layers.LSTM(3))])
    model.add(layers.Dense(3, "softmax"))
    return plain(sgd(), model)


@case(weights=1e-3, figures=1e-3, later=TF)
def attention() -> Given:
    inputs = keras.Input((8,))
    rows = layers.Reshape((4, 2))(inputs)
    seen = layers.Flatten()(layers.MultiHeadAttention(2, 3)(rows, rows))
    return plain(optimizers.Adam(0.01), keras.Model(inputs, layers.Dense(3, "softmax")(seen)))


@case(later=TF)
def adapter() -> Given:
    model = fill(mlp())
    model.layers[0].enable_lora(2)
    return plain(sgd(), model)


class Counting(layers.Layer):  # type: ignore[misc]  # Keras has no types
    """Counts the batches of training, in a whole number."""

    def build(self, shape: tuple[int | None, ...]) -> None:
        self.seen = self.add_weight(shape=(), initializer="zeros", dtype="int32", trainable=False, name="seen")

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        if training:
            self.seen.assign_add(1)
        return inputs


@case(later=TF)
def layer_with_a_state() -> Given:
    return plain(sgd(), mlp(Counting()))


@case(backends=TF)
def own_rescaling() -> Given:
    model = keras.Sequential([keras.Input((8,)), layers.Rescaling(1 / 255), layers.Dense(3, "softmax")])
    return {**plain(sgd(), model), "data": (_bytes(), x_y()[1])}


def _bytes() -> np.ndarray:
    found: np.ndarray = np.random.default_rng(3).integers(0, 256, size=(COUNT, 8), dtype=np.uint8)
    return found


@case()
def pictures() -> Given:
    return {**plain(sgd()), "data": (_bytes(), x_y()[1]), "pictures": True}


# --- losses ----------------------------------------------------------------------------------------------------------


@case(other=("loss",))
def sum_loss() -> Given:
    """The loss that is shown is a sum over a rank's batch, which is half as large."""
    return plain(sgd(0.005), compiled={"loss": losses.SparseCategoricalCrossentropy(reduction="sum")})


@case(said="some losses of this model are sums")
def sum_loss_with_a_penalty() -> Given:
    loss = losses.SparseCategoricalCrossentropy(reduction="sum")
    return plain(sgd(), mlp(layers.Dense(5, kernel_regularizer="l2")), compiled={"loss": loss})


@case(later=BOTH)
def loss_function() -> Given:
    def smooth(y: Tensor, shown: Tensor) -> Tensor:
        return keras.ops.mean(
            keras.ops.square(keras.ops.one_hot(keras.ops.cast(keras.ops.reshape(y, (-1,)), "int32"), 3) - shown),
            axis=-1,
        )

    return plain(sgd(), compiled={"loss": smooth})


@case(said="Dice")
def loss_over_a_batch() -> Given:
    given = plain(sgd(), compiled={"loss": losses.Dice()})
    x, y = given["data"]
    return {**given, "data": (x, np.eye(3, dtype="float32")[y])}


@case(said="masks")
def loss_over_what_a_mask_leaves() -> Given:
    """Each rank divides by the number of its own time steps."""
    inputs = keras.Input((6,), dtype="int32")
    rows = layers.LSTM(3, return_sequences=True)(layers.Embedding(12, 4, mask_zero=True)(inputs))
    given = _tokens(sgd(), keras.Model(inputs, layers.Dense(2, "softmax")(rows)))
    x, _ = tokens()
    return {**given, "data": (x, (x % 2).astype("int32"))}
