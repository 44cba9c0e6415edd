"""The same start for all ranks: one rank sends its weights and the state of its optimizer to the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras

from batchhvd.errors import SpecError
from batchhvd.trainer.hvd.agreement import EqualStart, require_agreement, shapes
from batchhvd.trainer.hvd.collective import broadcast_object
from batchhvd.trainer.hvd.optimizer import prepare, undistributed
from batchhvd.trainer.hvd.optimizer_search import optimizers_of
from batchhvd.trainer.hvd.variable import as_array
from batchhvd.trainer.hvd.weight_check import check_weights
from batchhvd.trainer.hvd.world import world
from batchhvd.trainer.reporting import training_record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import tensorflow as tf
    import torch


class BroadcastGlobalVariablesCallback(EqualStart):
    """Sends the weights and the optimizer's state of one rank to all ranks before the first step.

    Put it first in the list, also after a checkpoint was restored. A model that its first batch would build is built
    from the shape of that batch; if the shape is unknown, the broadcast follows the first step. After the first step
    the weights of all ranks are compared, unless a warning has said already that an optimizer is not distributed.
    Epochs, steps and trained variables of all ranks must be the same, or training ends before the first step.

    Args:
        root_rank: the rank whose state is sent.
        device, local_variables: Horovod's; only the defaults are supported.
    """

    def __init__(self, root_rank: int = 0, device: str = "", local_variables: object = None) -> None:
        super().__init__()
        if local_variables:
            raise SpecError("local_variables is not supported", remedy="leave it out: all weights are broadcast")
        self.root_rank = root_rank
        self.done = self.compared = False

    def set_model(self, model: keras.Model) -> None:
        """Prepares the model's step for several ranks, before Keras compiles it."""
        super().set_model(model)
        prepare(model)

    def on_train_begin(self, logs: Mapping[str, float] | None = None) -> None:
        """Broadcasts, or schedules the broadcast if the model is not built yet."""
        self.done = self.compared = False
        super().on_train_begin(logs)
        if _is_built(self.model):
            self._broadcast()
        else:
            self._build_first()
        if world().rank == 0:
            binding = world().binding
            exchange = "none" if binding is None else getattr(binding.module, "__name__", type(binding.module).__name__)
            training_record.begin(keras.config.backend(), world().size, exchange)

    def on_train_end(self, logs: Mapping[str, float] | None = None) -> None:
        """Notes a digest of the weights beside the logs of a job."""
        if world().rank == 0:
            training_record.end(map(as_array, self.model.weights), {})

    def on_train_batch_end(self, batch: int, logs: Mapping[str, float] | None = None) -> None:
        """Broadcasts after the first step if it was not possible before, and compares the weights."""
        if not self.done:
            self._broadcast()
        if not self.compared and not undistributed(optimizers_of(self.model)):
            check_weights(self.model, "the first step")
        self.compared = True

    def _broadcast(self) -> None:
        broadcast_model(self.model, self.root_rank)
        self.done = True

    def _build_first(self) -> None:
        """Builds the model and broadcasts just before the first step, when the shape of the data is known."""
        step = self.model.train_function

        def first(data: object) -> object:
            self.model.train_function = step
            if _build(self.model, data):
                self._broadcast()
            return step(data)

        self.model.train_function = first


def _is_built(model: keras.Model) -> bool:
    return bool(model.built) and bool(model.weights)


def _build(model: keras.Model, iterator: object) -> bool:
    """Builds a model from the shapes of its data; False if they are unknown or the model cannot use them."""
    spec = getattr(iterator, "element_spec", None)
    if spec is None:
        return False
    inputs = spec[0] if isinstance(spec, (tuple, list)) else spec
    try:
        model(keras.tree.map_structure(lambda part: keras.KerasTensor(part.shape, part.dtype.name), inputs))
    except (TypeError, ValueError, AttributeError, NotImplementedError, RuntimeError):
        # A model whose call needs numbers cannot be built from shapes: the caller broadcasts after the first step.
        return False
    return _is_built(model)


def broadcast_model(model: keras.Model, root_rank: int = 0) -> None:
    """Sends the weights of a built model and the state of its optimizers from one rank to all ranks."""
    if model.optimizer is not None and not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    variables = {id(variable): variable for variable in model.weights}
    for optimizer in optimizers_of(model).values():
        variables |= {id(variable): variable for variable in optimizer.variables}
    broadcast_variables(list(variables.values()), root_rank)


def broadcast_variables(variables: Sequence[keras.Variable | tf.Variable | torch.Tensor], root_rank: int = 0) -> None:
    """Sends the values of variables from one rank to all ranks.

    Args:
        variables: as many of the same shapes on all ranks, for example ``model.variables`` or ``optimizer.variables``.
        root_rank: the rank whose values are sent.

    Raises:
        SpecError: The ranks have different variables; raised on every rank.
    """
    variables = list(variables)
    if _inside_function() and world().size > 1:
        _send_in_graph(variables, root_rank)
    else:
        require_agreement({"variables": shapes(variables)})
        _send(variables, root_rank)


def _inside_function() -> bool:
    """Returns whether a function of TensorFlow is being traced; there variables have no values yet."""
    if keras.config.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return not tf.executing_eagerly()


def _send_in_graph(variables: Sequence[keras.Variable | tf.Variable], root_rank: int) -> None:
    """Adds the broadcast to the step that is traced, after what the step has done with the variables until here."""
    import tensorflow as tf

    def send(*tensors: tf.Tensor) -> list[np.ndarray]:
        require_agreement({"variables": shapes(tensors)})
        sent: list[np.ndarray] = [tensor.numpy() for tensor in tensors] if world().rank == root_rank else []
        received: list[np.ndarray] = broadcast_object(sent, root_rank, "variables")
        return received

    values = [tf.convert_to_tensor(variable) for variable in variables]
    received = tf.py_function(send, values, [value.dtype for value in values])
    for variable, value in zip(variables, received, strict=True):
        variable.assign(tf.ensure_shape(value, variable.shape))


def _send(variables: Sequence[keras.Variable | tf.Variable | torch.Tensor], root_rank: int) -> None:
    if world().size == 1:
        return
    mine = world().rank == root_rank
    sent: list[np.ndarray] = [as_array(variable) for variable in variables] if mine else []
    received = broadcast_object(sent, root_rank, "variables")
    if not mine:
        for variable, array in zip(variables, received, strict=True):
            _assign(variable, array)


def _assign(variable: keras.Variable | tf.Variable | torch.Tensor, array: np.ndarray) -> None:
    if hasattr(variable, "assign"):
        variable.assign(array)
    else:
        variable.data.copy_(keras.ops.convert_to_tensor(array))
