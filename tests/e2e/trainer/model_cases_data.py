"""Cases of the table: forms of data, inputs and outputs, weights, validation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.e2e.trainer.model_case import (
    COUNT,
    GLOBAL,
    Batches,
    Given,
    case,
    fill,
    layers,
    losses,
    optimizers,
    plain,
    sgd,
    share,
    x_y,
)

import keras  # isort: skip
import numpy as np

TF, TORCH = ("tensorflow",), ("torch",)
BOTH = (*TF, *TORCH)


# --- inputs and outputs ----------------------------------------------------------------------------------------------


def two_inputs() -> keras.Model:
    first, second = keras.Input((4,), name="first"), keras.Input((4,), name="second")
    hidden = layers.Concatenate()([layers.Dense(3, "tanh")(first), layers.Dense(3, "tanh")(second)])
    return keras.Model([first, second], layers.Dense(3, "softmax")(hidden))


@case(later=TF)
def inputs_in_a_list() -> Given:
    x, y = x_y()
    return {**plain(sgd(), two_inputs()), "data": ([x[:, :4], x[:, 4:]], y)}


@case()
def inputs_in_a_dictionary() -> Given:
    x, y = x_y()
    return {**plain(sgd(), two_inputs()), "data": ({"first": x[:, :4], "second": x[:, 4:]}, y)}


@case()
def nested_inputs() -> Given:
    parts: Any = {"pair": [keras.Input((2,)), keras.Input((2,))], "rest": {"last": keras.Input((4,))}}
    flat = layers.Concatenate()([*parts["pair"], parts["rest"]["last"]])
    x, y = x_y()
    data = {"pair": [x[:, :2], x[:, 2:4]], "rest": {"last": x[:, 4:]}}
    return {**plain(sgd(), keras.Model(parts, layers.Dense(3, "softmax")(flat))), "data": (data, y)}


def two_outputs(kind: type, losses: Any, data: Any, rate: float = 0.1, **compiled: Any) -> Given:
    inputs = keras.Input((8,))
    hidden = layers.Dense(5, "tanh")(inputs)
    outputs = {"kind": layers.Dense(3, "softmax", name="kind")(hidden), "size": layers.Dense(1, name="size")(hidden)}
    model = fill(keras.Model(inputs, outputs if kind is dict else list(outputs.values())))
    model.compile(sgd(rate), losses, **compiled)
    return {"model": model, "data": data}


CATEGORY = "sparse_categorical_crossentropy"


@case(later=TF)
def outputs_in_a_dictionary() -> Given:
    x, y = x_y()
    weights, shown = {"kind": 1.0, "size": 0.3}, {"kind": ["accuracy"]}
    data = (x, {"kind": y, "size": x[:, :1]})
    return two_outputs(dict, {"kind": CATEGORY, "size": "mse"}, data, loss_weights=weights, metrics=shown)


@case(later=TF)
def outputs_in_a_list() -> Given:
    x, y = x_y()
    return two_outputs(list, [CATEGORY, "mae"], (x, [y, x[:, :1]]), metrics=[["accuracy"], ["mse"]])


@case(later=BOTH)
def output_without_a_loss() -> Given:
    x, y = x_y()
    return two_outputs(list, [CATEGORY, None], (x, [y, x[:, :1]]))


@case(other=("loss", "kind_loss", "size_loss"), later=TF)
def sums_of_two_losses() -> Given:
    x, y = x_y()
    both = [losses.SparseCategoricalCrossentropy(reduction="sum"), losses.MeanSquaredError(reduction="sum")]
    return two_outputs(list, both, (x, [y, x[:, :1]]), 0.005)


@case(said="some losses of this model are sums")
def a_sum_and_a_mean() -> Given:
    x, y = x_y()
    return two_outputs(list, [losses.SparseCategoricalCrossentropy(reduction="sum"), "mse"], (x, [y, x[:, :1]]))


# --- weights of samples ----------------------------------------------------------------------------------------------

WEIGHTS = np.linspace(0.1, 2, COUNT).astype("float32")


@case()
def sample_weights() -> Given:
    return {**plain(sgd(), compiled={"weighted_metrics": ["accuracy"]}), "data": (*x_y(), WEIGHTS)}


@case(later=BOTH)
def sample_weights_of_each_output() -> Given:
    x, y = x_y()
    data = (x, {"kind": y, "size": x[:, :1]}, {"kind": WEIGHTS, "size": WEIGHTS[::-1]})
    return two_outputs(dict, {"kind": CATEGORY, "size": "mse"}, data, weighted_metrics={"kind": ["accuracy"]})


@case()
def class_weights() -> Given:
    return plain(sgd(), class_weight={0: 0.5, 1: 1.0, 2: 3.0})


@case(said="mean_with_sample_weight")
def mean_by_weight() -> Given:
    """Each rank divides by the sum of its own weights."""
    loss = losses.SparseCategoricalCrossentropy(reduction="mean_with_sample_weight")
    return {**plain(sgd(), compiled={"loss": loss}), "data": (*x_y(), WEIGHTS)}


@case(later=BOTH)
def mean_by_weights_that_are_one() -> Given:
    return plain(sgd(), compiled={"loss": losses.SparseCategoricalCrossentropy(reduction="mean")})


# --- order and length ------------------------------------------------------------------------------------------------


@case(later=TF)
def in_order() -> Given:
    return plain(sgd(), shuffle=False)


@case(later=TF)
def samples_that_do_not_fill_the_last_step() -> Given:
    return {**plain(sgd()), "data": x_y(count=41), "validation": x_y(count=21)}


@case(later=BOTH)
def fewer_steps_than_data() -> Given:
    return plain(sgd(), steps_per_epoch=2)


@case(later=TF)
def begun_in_the_second_epoch() -> Given:
    return plain(optimizers.Adam(0.01), initial_epoch=1)


@case(later=BOTH)
def lists_of_numbers() -> Given:
    x, y = x_y()
    return {**plain(sgd()), "data": [x.tolist(), y.tolist()], "validation": [x.tolist(), y.tolist()]}


# --- validation ------------------------------------------------------------------------------------------------------


@case(later=BOTH)
def validated_each_epoch() -> Given:
    return plain(sgd(), validation_freq=1, epochs=3)


@case(later=TF)
def validated_after_chosen_epochs() -> Given:
    return plain(sgd(), validation_freq=[1, 3], epochs=3)


@case()
def validated_with_weights() -> Given:
    given = plain(sgd(), compiled={"weighted_metrics": ["accuracy"]})
    return {**given, "validation": [*x_y(), WEIGHTS]}


@case(backends=TF, later=TF)
def validated_on_a_tf_dataset() -> Given:
    import tensorflow as tf

    return {**plain(sgd()), "validation": tf.data.Dataset.from_tensor_slices(x_y()).batch(share())}


@case(said="cannot evaluate on generator")
def validated_on_a_generator() -> Given:
    return {**plain(sgd()), "validation": (part for part in Batches(share()))}


# --- sources of batches ----------------------------------------------------------------------------------------------


@case()
def dataset() -> Given:
    return {**plain(sgd()), "data": Batches(share()), "validation": Batches(share())}


@case(later=BOTH)
def dataset_with_workers() -> Given:
    return {**plain(sgd()), "data": Batches(share(), workers=2), "validation": x_y()}


@case()
def generator() -> Given:
    batches = Batches(share())

    def endless() -> Iterator[Any]:
        while True:
            yield from (batches[at] for at in range(len(batches)))

    return {**plain(sgd()), "data": endless(), "steps_per_epoch": COUNT // GLOBAL, "validation": x_y()}


@case(backends=TF)
def tf_dataset() -> Given:
    import tensorflow as tf

    data = tf.data.Dataset.from_tensor_slices(x_y()).batch(share(), drop_remainder=True)
    return {**plain(sgd()), "data": data, "validation": data}


@case(backends=TF, later=TF)
def endless_tf_dataset() -> Given:
    import tensorflow as tf

    data = tf.data.Dataset.from_tensor_slices(x_y()).repeat().batch(share())
    return {**plain(sgd()), "data": data, "steps_per_epoch": COUNT // GLOBAL, "validation": x_y()}


def _torch_set() -> Any:
    import torch

    return torch.utils.data.TensorDataset(*map(torch.from_numpy, x_y()))


@case(backends=TORCH)
def loader() -> Given:
    from torch.utils.data import DataLoader

    data = DataLoader(_torch_set(), batch_size=share(), shuffle=True)
    return {**plain(sgd()), "data": data, "validation": DataLoader(_torch_set(), batch_size=share())}


@case(backends=TORCH)
def loader_of_a_stream() -> Given:
    from torch.utils.data import DataLoader, IterableDataset

    class Stream(IterableDataset):  # type: ignore[misc]  # torch is not imported for types
        def __iter__(self) -> Iterator[Any]:
            yield from zip(*x_y(), strict=True)

        def __len__(self) -> int:
            return COUNT

    return {**plain(sgd()), "data": DataLoader(Stream(), batch_size=share()), "validation": x_y()}
