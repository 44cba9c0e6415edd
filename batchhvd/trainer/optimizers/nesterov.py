"""Momentum for the fast recipe: one rate for kernels and another for biases, on any Keras backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import keras

if TYPE_CHECKING:
    from batchhvd.trainer.hvd.binding import Tensor


@keras.saving.register_keras_serializable("batchhvd")
class Nesterov(keras.optimizers.Optimizer):  # type: ignore[misc]  # Keras has no types
    """Descends with Nesterov's momentum; weight decay is separate from the gradient and does not affect biases.

    Unlike Keras's SGD it never reads the learning rate back to the host, so that a GPU can run a recorded step.

    Args:
        learning_rate: a number or a schedule.
        momentum: the fraction of the previous move that is kept.
        decay: the fraction of each kernel that is subtracted per step, times the learning rate.
        bias_rate: factor of the learning rate for one-dimensional weights.
        **options: those of every Keras optimizer.
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.1,
        momentum: float = 0.85,
        decay: float = 0.0,
        bias_rate: float = 1.0,
        **options: object,
    ) -> None:
        super().__init__(learning_rate=learning_rate, **options)
        self.momentum = momentum
        self.decay = decay
        self.bias_rate = bias_rate

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Creates one velocity for each weight."""
        if self.built:
            return
        super().build(variables)
        self.velocities = self.add_optimizer_variables(variables, "velocity")

    def update_step(self, gradient: Tensor, variable: keras.Variable, learning_rate: Tensor) -> None:
        """Updates one weight."""
        ops = keras.ops
        velocity = self.velocities[self._get_variable_index(variable)]
        bias = len(variable.shape) == 1
        rate = ops.cast(learning_rate, variable.dtype) * (self.bias_rate if bias else 1.0)
        gradient = ops.cast(gradient, variable.dtype)
        self.assign(velocity, self.momentum * ops.convert_to_tensor(velocity) + gradient)
        move = rate * (gradient + self.momentum * ops.convert_to_tensor(velocity))
        kept = 1.0 if bias else 1.0 - rate * self.decay
        self.assign(variable, ops.convert_to_tensor(variable) * kept - move)

    def get_config(self) -> dict[str, object]:
        """Returns the configuration from which the same optimizer can be made."""
        own = {"momentum": self.momentum, "decay": self.decay, "bias_rate": self.bias_rate}
        return {**super().get_config(), **own}
