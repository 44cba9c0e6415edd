"""How the gradients of all ranks are combined: layers on top of the classes of Keras's optimizers.

Keras hands all gradients to one documented method, `keras.optimizers.Optimizer.apply`. The layer's `apply` reduces
first, and everything that Keras does afterwards (unscaling, clipping, weight decay, the update itself) sees gradients
that are equal on all ranks.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import keras
from attrs import frozen

from batchhvd.trainer.hvd.binding import Binding, Compression, Compressor, Op
from batchhvd.trainer.hvd.world import world

if TYPE_CHECKING:
    from batchhvd.trainer.hvd.binding import Tensor

# Ranks match reductions by name. The names number the distributed optimizers of this process, because Keras's own
# names differ between ranks as soon as one of them creates an extra object.
_serials = itertools.count()


STEPS = 61  # steps are compared modulo a prime, so that epochs of different lengths are told apart
_MIXED = (
    "the gradients of this reduction belong to different steps: the optimizers of the ranks have made different "
    "numbers of steps. Begin with the optimizer's variables of rank 0 on all ranks, and apply as many updates on each"
)


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

    def reduce(self, gradients: Sequence[Tensor], name: str, step: Tensor | None = None) -> list[Tensor]:
        """Returns the combined gradients of all ranks; with one rank, those that were given.

        Args:
            gradients: of this rank.
            name: of the reduction.
            step: the number of the optimizer's step, which must be the same on all ranks; None does not compare it.
        """
        gradients = [_dense(gradient) if self.sparse_as_dense else gradient for gradient in gradients]
        binding = world().binding
        if binding is not None and gradients:
            gradients = self._exchange(binding, gradients, name, step)
        if self.passes > 1:
            gradients = [_dense(gradient) * self.passes for gradient in gradients]
        return gradients

    def _exchange(self, binding: Binding, gradients: list[Tensor], name: str, step: Tensor | None) -> list[Tensor]:
        if step is None:
            return binding.reduce(gradients, name, self.op, self.compression)
        mine = keras.ops.cast(keras.ops.mod(step, STEPS), "float32")
        if self.compression.half:  # the step is not to be rounded
            found = binding.reduce(gradients, name, self.op, self.compression)
            (seen,) = binding.reduce([mine], f"{name}.step", self.op, Compression.none)
        else:
            *found, seen = binding.reduce([*gradients, mine], name, self.op, self.compression)
        binding.require_equal(seen, mine * (world().size if self.op is Op.SUM else 1), _MIXED)
        return found


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


def scale_together() -> None:
    """Makes loss scaling around a distributed optimizer skip a step on all ranks or on none.

    Keras's ``compile`` puts `keras.optimizers.LossScaleOptimizer` around an optimizer in mixed float16, and scripts do
    so by hand; neither asks anybody. Therefore the method of that class which decides is replaced, once: it agrees with
    the other ranks if the optimizer inside is distributed, and is Keras's own otherwise.
    """
    scaling = keras.optimizers.LossScaleOptimizer
    alone: Callable[[keras.optimizers.LossScaleOptimizer, Sequence[Tensor | None]], Tensor] = scaling.check_finite
    if hasattr(alone, "__wrapped__"):
        return

    @functools.wraps(alone)
    def check_finite(self: keras.optimizers.LossScaleOptimizer, grads: Sequence[Tensor | None]) -> Tensor:
        finite = alone(self, grads)
        inner, binding = self.inner_optimizer, world().binding
        if not isinstance(inner, Distributed) or binding is None:
            return finite
        name = f"{inner.reduction_name}.finite"
        agreed = binding.reduce([keras.ops.cast(finite, "float32")], name, Op.MIN, Compression.none)[0]
        return keras.ops.greater(agreed, 0.5)

    scaling.check_finite = check_finite


def settle_name(optimizer: Distributed) -> None:
    """Gives an optimizer's reductions the next name, unless they have one."""
    if not optimizer.reduction_name:
        optimizer.reduction_name = f"batchhvd.optimizer{next(_serials)}"


def _dense(gradient: Tensor) -> Tensor:
    if hasattr(gradient, "indices") and hasattr(gradient, "dense_shape"):  # IndexedSlices, which Keras leaves as it is
        import tensorflow as tf

        return tf.convert_to_tensor(gradient)
    return keras.ops.convert_to_tensor(gradient, sparse=False)


def _reduce_present(optimizer: keras.optimizers.Optimizer, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Reduces the gradients that are not None."""
    places = [place for place, gradient in enumerate(grads) if gradient is not None]
    reduced: list[Tensor | None] = list(grads)
    present = [grads[place] for place in places]
    found = optimizer.reduction.reduce(present, optimizer.reduction_name, optimizer._iterations.value)
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
        reduced = optimizer.reduction.reduce(totals, optimizer.reduction_name, optimizer._iterations.value)
        for total, found in zip(sums, reduced, strict=True):
            total.assign(found)
        return [keras.ops.zeros_like(gradient) for gradient in local]

    steps = optimizer.gradient_accumulation_steps
    last = keras.ops.equal((optimizer._iterations + 1) % steps, 0)
    rest = keras.ops.cond(last, complete, lambda: list(local))
    passed: list[Tensor | None] = list(grads)
    for place, gradient in zip(places, rest, strict=True):
        passed[place] = gradient
    return passed
