"""The same start for all ranks: the weights and the optimizer's state of one rank are sent to the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras

from batchhvd.errors import SpecError
from batchhvd.trainer.hvd.collective import broadcast_object
from batchhvd.trainer.hvd.optimizer import prepare
from batchhvd.trainer.hvd.variable import as_array
from batchhvd.trainer.hvd.world import world

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Gives all ranks the weights and the optimizer's state of one rank before the first step.

    It belongs first in the list, and after a restored checkpoint too. A model that is built by its first batch is
    built for this from the batch's shape; where that cannot be told, the broadcast follows the first step.

    Args:
        root_rank: whose state it is.
        device, local_variables: Horovod's; only the defaults are supported.
    """

    def __init__(self, root_rank: int = 0, device: str = "", local_variables: object = None) -> None:
        super().__init__()
        if local_variables:
            raise SpecError("local_variables is not supported", remedy="leave it out: all weights are broadcast")
        self.root_rank = root_rank
        self.done = False

    def set_model(self, model: keras.Model) -> None:
        """Makes the model's step fit for several ranks, before Keras compiles it."""
        super().set_model(model)
        prepare(model)

    def on_train_begin(self, logs: Mapping[str, float] | None = None) -> None:
        """Broadcasts, or arranges for it where the model is not built yet."""
        self.done = False
        if _is_built(self.model):
            self._broadcast()
        else:
            self._build_first()

    def on_train_batch_end(self, batch: int, logs: Mapping[str, float] | None = None) -> None:
        """Broadcasts after the first step where nothing else was possible."""
        if not self.done:
            self._broadcast()

    def _broadcast(self) -> None:
        broadcast_model(self.model, self.root_rank)
        self.done = True

    def _build_first(self) -> None:
        """Puts building and the broadcast in front of the first step, which alone knows the data's shape."""
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
    """Builds a model from the shapes of its data; False where they cannot be told or the model cannot use them."""
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
    """Gives a built model's weights and its optimizer's state on one rank to all ranks."""
    optimizer = model.optimizer
    if optimizer is not None and not optimizer.built:
        optimizer.build(model.trainable_variables)
    variables = [*model.weights, *(optimizer.variables if optimizer is not None else ())]
    if world().size == 1:
        return
    mine = world().rank == root_rank
    sent: list[np.ndarray] = [as_array(variable) for variable in variables] if mine else []
    received = broadcast_object(sent, root_rank, "variables")
    if len(received) != len(variables):
        raise SpecError(
            f"rank {root_rank} has {len(received)} variables and rank {world().rank} has {len(variables)}",
            remedy="build the same model on all ranks",
        )
    if not mine:
        for variable, array in zip(variables, received, strict=True):
            variable.assign(array)
