"""How the gradients of all ranks are combined: layers on top of the classes of Keras's optimizers.

Keras hands all gradients to one documented method, `keras.optimizers.Optimizer.apply`. The layer's `apply` reduces
first, and everything that Keras does afterwards (unscaling, clipping, weight decay, the update itself) sees gradients
that are equal on all ranks.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import keras
from attrs import frozen

from batchhvd.trainer.hvd.binding import Compression, Compressor, Op
from batchhvd.trainer.hvd.world import world

if TYPE_CHECKING:
    from batchhvd.trainer.hvd.binding import Tensor

# Ranks match reductions by name. The names number the distributed optimizers of this process, because Keras's own
# names differ between ranks as soon as one of them creates an extra object.
_serials = itertools.count()


@frozen
class Reduction:
    """How the gradients of all ranks are combined.

    Attributes:
        op: `Average` or `Sum`.
        compression: how they are sent.
        sparse_as_dense: sparse gradients are sent as dense ones.
        passes: number of local steps per reduction if they are added up, as in Horovod; 1 if they are averaged.
    """

    op: Op = Op.AVERAGE
    compression: Compressor = Compression.none
    sparse_as_dense: bool = False
    passes: int = 1

    def reduce(self, gradients: Sequence[Tensor], name: str) -> list[Tensor]:
        """Returns the combined gradients of all ranks; with one rank, those that were given."""
        gradients = [_dense(gradient) if self.sparse_as_dense else gradient for gradient in gradients]
        binding = world().binding
        if binding is not None and gradients:
            gradients = binding.reduce(gradients, name, self.op, self.compression)
        if self.passes > 1:
            gradients = [_dense(gradient) * self.passes for gradient in gradients]
        return gradients


class Distributed:
    """The layer on top of an optimizer's class: reduces, then lets Keras apply."""

    reduction = Reduction()
    reduction_name = ""

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Creates the variables of the optimizer and sets the name of its reductions."""
        super().build(variables)  # type: ignore[misc]  # the class below in the order of resolution is Keras's
        settle_name(self)

    def apply(
        self, grads: Sequence[Tensor | None], trainable_variables: Sequence[keras.Variable] | None = None
    ) -> None:
        """Updates the variables with the gradients of all ranks.

        Args:
            grads: this rank's gradients; None for variables without one, which must be the same on all ranks.
            trainable_variables: the variables of the gradients; may be None once the optimizer is built.
        """
        keras_optimizer: keras.optimizers.Optimizer = super()
        optimizer: keras.optimizers.Optimizer = self
        grads = list(grads)
        if not optimizer.built and trainable_variables is not None:
            optimizer.build(list(trainable_variables))
        if optimizer.gradient_accumulation_steps:
            grads = _reduce_at_boundary(optimizer, grads, trainable_variables)
        else:
            grads = _reduce_present(optimizer, grads)
        keras_optimizer.apply(grads, trainable_variables)


class DistributedLossScale:
    """The layer on top of Keras's loss scaling: a step is skipped on all ranks or on none."""

    reduction_name = ""

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Creates the variables of the optimizer and sets the name of its reduction."""
        super().build(variables)  # type: ignore[misc]  # the class below in the order of resolution is Keras's
        settle_name(self)

    def check_finite(self, grads: Sequence[Tensor | None]) -> Tensor:
        """Returns whether the gradients of all ranks are finite."""
        keras_optimizer: keras.optimizers.LossScaleOptimizer = super()
        finite = keras.ops.cast(keras_optimizer.check_finite(grads), "float32")
        binding = world().binding
        if binding is not None:
            finite = binding.reduce([finite], f"{self.reduction_name}.finite", Op.MIN, Compression.none)[0]
        return keras.ops.greater(finite, 0.5)


def settle_name(optimizer: Distributed | DistributedLossScale) -> None:
    """Gives an optimizer's reductions the next name, unless they have one."""
    if not optimizer.reduction_name:
        optimizer.reduction_name = f"batchhvd.optimizer{next(_serials)}"


def _dense(gradient: Tensor) -> Tensor:
    return keras.ops.convert_to_tensor(gradient, sparse=False)


def _reduce_present(optimizer: keras.optimizers.Optimizer, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Reduces the gradients that are not None."""
    places = [place for place, gradient in enumerate(grads) if gradient is not None]
    reduced: list[Tensor | None] = list(grads)
    found = optimizer.reduction.reduce([grads[place] for place in places], optimizer.reduction_name)
    for place, gradient in zip(places, found, strict=True):
        reduced[place] = gradient
    return reduced


def _reduce_at_boundary(
    optimizer: keras.optimizers.Optimizer,
    grads: Sequence[Tensor | None],
    variables: Sequence[keras.Variable] | None,
) -> list[Tensor | None]:
    """Lets Keras collect gradients on each rank, and reduces once they are complete.

    At the last step of a round, the reduced sum replaces what Keras collected, and zeros replace the last gradients:
    Keras then adds nothing, divides by the number of steps, and clips values that are equal on all ranks.
    """
    variables = optimizer._trainable_variables if variables is None else list(variables)
    places = [place for place, gradient in enumerate(grads) if gradient is not None]
    local = [_dense(grads[place]) for place in places]
    sums = [optimizer._accumulated_gradients[optimizer._get_variable_index(variables[place])] for place in places]

    def complete() -> list[Tensor]:
        totals = [keras.ops.add(total, gradient) for total, gradient in zip(sums, local, strict=True)]
        for total, found in zip(sums, optimizer.reduction.reduce(totals, optimizer.reduction_name), strict=True):
            total.assign(found)
        return [keras.ops.zeros_like(gradient) for gradient in local]

    steps = optimizer.gradient_accumulation_steps
    last = keras.ops.equal((optimizer._iterations + 1) % steps, 0)
    rest = keras.ops.cond(last, complete, lambda: list(local))
    reduced: list[Tensor | None] = list(grads)
    for place, gradient in zip(places, rest, strict=True):
        reduced[place] = gradient
    return reduced
