"""Reads a Keras network layer by layer and writes it down as a program: plain tuples that a compiler can specialize on.

Two networks with equal layers have equal programs, so a second training in a process compiles nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

import attrs
import keras

if TYPE_CHECKING:
    #: kind, place of the result, places of the inputs, places of the weights, options
    Operation: TypeAlias = tuple[str, int, tuple[int, ...], tuple[int, ...], tuple[object, ...]]
    #: What one layer adds to a program: kind, its weights, options.
    Reading: TypeAlias = tuple[str, tuple[keras.Variable, ...], tuple[object, ...]]

ACTIVATIONS = ("linear", "relu", "gelu", "silu", "tanh", "sigmoid", "softmax")


class CannotLowerError(Exception):
    """A network has a part that has no place in a program; the text says which."""


@attrs.frozen
class LayerProgram:
    """The forward pass of a network in training.

    Attributes:
        operations: in the order in which they are computed; place 0 is the input.
        output: the place of the result.
        weights: of the network, by the numbers that operations use.
        moving: moving means and variances of batch normalizations, and their momentum, in the order of the operations.
    """

    operations: tuple[Operation, ...]
    output: int
    weights: tuple[keras.Variable, ...]
    moving: tuple[tuple[keras.Variable, keras.Variable, float], ...]


def read(model: keras.Model) -> LayerProgram:
    """Returns the program of a network with one input and one output.

    Raises:
        CannotLowerError: A layer is not among those that programs know, or the model computes its steps by itself.
    """
    _require_plain(model)
    network = model._functional if isinstance(model, keras.Sequential) else model
    places = {id(network.inputs[0]): 0}
    operations: list[Operation] = []
    weights: list[keras.Variable] = []
    moving = []
    for layer, inputs, output in _calls(network):
        kind, own, options = _reading(layer)
        first = len(weights)
        weights.extend(own)
        places[output] = len(places)
        came = tuple(places[one] for one in inputs)
        operations.append((kind, places[output], came, tuple(range(first, len(weights))), options))
        if kind == "normalize":
            moving.append((layer.moving_mean, layer.moving_variance, float(layer.momentum)))
    return LayerProgram(tuple(operations), places[id(network.outputs[0])], tuple(weights), tuple(moving))


def _require_plain(model: keras.Model) -> None:
    functional = isinstance(model, (keras.Sequential, keras.models.Model)) and hasattr(model, "_functional")
    own_call = isinstance(model, keras.Sequential) and type(model).call is not keras.Sequential.call
    if own_call or (not functional and type(model).__name__ != "Functional"):
        raise CannotLowerError(f"{type(model).__name__} has a call of its own")
    own = keras.Model.train_step is not type(model).train_step or "train_step" in vars(model)
    if own or type(model).compute_loss is not keras.Model.compute_loss:
        raise CannotLowerError(f"{type(model).__name__} computes its steps by itself")
    network = getattr(model, "_functional", model)
    if network is None or len(network.inputs) != 1 or len(network.outputs) != 1:
        raise CannotLowerError("the network does not have one input and one output")


def _calls(network: keras.Model) -> Iterator[tuple[keras.layers.Layer, list[int], int]]:
    """Yields each layer with the identities of its inputs and of its output, in the order of computation."""
    seen: set[int] = set()
    for depth in sorted(network._nodes_by_depth, reverse=True):
        for node in network._nodes_by_depth[depth]:
            if node.is_input:
                continue
            layer = node.operation
            if id(layer) in seen or len(node.outputs) != 1:
                raise CannotLowerError(f"{layer.name} is used twice or has several outputs")
            seen.add(id(layer))
            yield layer, [id(one) for one in node.input_tensors], id(node.outputs[0])


def _reading(layer: keras.layers.Layer) -> Reading:
    reader = READERS.get(type(layer))
    if reader is None:
        raise CannotLowerError(f"{layer.name} is a {type(layer).__name__}")
    if getattr(layer, "activity_regularizer", None) is not None:
        raise CannotLowerError(f"{layer.name} has an activity regularizer")
    return reader(layer)


def _activation(layer: keras.layers.Layer) -> str:
    name = next((name for name in ACTIVATIONS if keras.activations.get(name) is layer.activation), None)
    if name is None:
        raise CannotLowerError(f"{layer.name} has the activation {layer.activation!r}")
    return name


def _weighted(layer: keras.layers.Layer) -> tuple[keras.Variable, ...]:
    return (layer.kernel, layer.bias) if layer.use_bias else (layer.kernel,)


def _convolution(layer: keras.layers.Layer) -> Reading:
    odd = all(side % 2 for side in layer.kernel_size)
    same = layer.padding == "same" and odd and set(layer.strides) == {1}
    plain = layer.data_format == "channels_last" and layer.groups == 1 and set(layer.dilation_rate) == {1}
    if not plain or not (same or layer.padding == "valid") or layer.lora_enabled:
        raise CannotLowerError(f"{layer.name} is a convolution with groups, dilation, or padding with strides")
    padding = tuple(side // 2 if same else 0 for side in layer.kernel_size)
    return "convolve", _weighted(layer), (tuple(layer.strides), padding, _activation(layer), layer.compute_dtype)


def _dense(layer: keras.layers.Layer) -> Reading:
    if layer.lora_enabled:
        raise CannotLowerError(f"{layer.name} has LoRA weights")
    return "multiply", _weighted(layer), (_activation(layer), layer.compute_dtype)


def _normalization(layer: keras.layers.Layer) -> Reading:
    if layer.axis not in (-1, 3) or layer.renorm or layer.synchronized or not layer.trainable:
        raise CannotLowerError(
            f"{layer.name} is a batch normalization that is frozen, renormalizes, or has another axis"
        )
    own = (layer.gamma,) * layer.scale + (layer.beta,) * layer.center
    return "normalize", own, (bool(layer.scale), bool(layer.center), float(layer.epsilon), layer.compute_dtype)


def _pooling(layer: keras.layers.Layer) -> Reading:
    if layer.padding != "valid" or layer.data_format != "channels_last":
        raise CannotLowerError(f"{layer.name} pads what it pools")
    return "pool", (), (tuple(layer.pool_size), tuple(layer.strides), layer.compute_dtype)


def _rescaling(layer: keras.layers.Layer) -> Reading:
    if not all(isinstance(part, (int, float)) for part in (layer.scale, layer.offset)):
        raise CannotLowerError(f"{layer.name} has a scale for each channel")
    return "rescale", (), (float(layer.scale), float(layer.offset), layer.compute_dtype)


READERS: dict[type, Callable[[keras.layers.Layer], Reading]] = {
    keras.layers.Conv2D: _convolution,
    keras.layers.Dense: _dense,
    keras.layers.BatchNormalization: _normalization,
    keras.layers.MaxPooling2D: _pooling,
    keras.layers.Rescaling: _rescaling,
    keras.layers.Activation: lambda layer: ("activate", (), (_activation(layer), layer.compute_dtype)),
    keras.layers.ReLU: lambda layer: ("activate", (), (_plain_relu(layer), layer.compute_dtype)),
    keras.layers.Dropout: lambda layer: ("drop", (), (_plain_rate(layer), layer.compute_dtype)),
    keras.layers.Flatten: lambda layer: ("flatten", (), (layer.compute_dtype,)),
    keras.layers.Add: lambda layer: ("add", (), (layer.compute_dtype,)),
}
"""The layers that programs know, each with what reads it."""


def _plain_relu(layer: keras.layers.Layer) -> str:
    if layer.max_value is not None or layer.negative_slope or layer.threshold:
        raise CannotLowerError(f"{layer.name} is a ReLU with a slope, a threshold or a highest value")
    return "relu"


def _plain_rate(layer: keras.layers.Layer) -> float:
    if layer.noise_shape is not None:
        raise CannotLowerError(f"{layer.name} drops in a shape of its own")
    return float(layer.rate)
