"""Muon: momentum whose moves are made orthogonal, for the filters of a network, and plain momentum for other weights.

A filter bank with n outputs moves by a matrix whose singular values are all about 1, so that rare directions learn as
fast as common ones. Source: Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024).
Gradients of several ranks are averaged before (see `batchhvd.trainer.hvd`), so every rank makes the same move.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import keras

from batchhvd.trainer.optimizers.newton_schulz import CUBIC, ITERATIONS, LINEAR, QUINTIC, TINY

if TYPE_CHECKING:
    from batchhvd.trainer.hvd.binding import Tensor


@keras.saving.register_keras_serializable("batchhvd")
class Muon(keras.optimizers.Optimizer):  # type: ignore[misc]  # Keras has no types
    """Makes orthogonal moves for kernels, and moves with Nesterov's momentum for biases and the layers in ``plain``.

    ``keras.optimizers.Muon`` leaves the kernels of convolutions to AdamW; here they are what it is for. After each step
    the kernel of a convolution is scaled to norm √outputs, so a normalization must follow such a layer.

    Args:
        learning_rate: a number or a schedule; of kernels, in parts of a kernel with singular values of 1.
        momentum: the fraction of the previous move of a kernel that is kept.
        plain: names of layers whose kernels move by momentum alone, such as the last one; and embeddings.
        plain_rate, bias_rate: factors of the learning rate for layers in ``plain``, and for one-dimensional weights.
        plain_momentum: the momentum of both.
        decay: the fraction that is subtracted from these weights per step, times the learning rate.
        brief: names of layers that learn only at first.
        brief_steps: after how many steps their rate has fallen to 0.
        **options: those of every Keras optimizer.
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.1,
        momentum: float = 0.6,
        plain: Sequence[str] = (),
        plain_rate: float = 1.0,
        bias_rate: float = 1.0,
        plain_momentum: float = 0.85,
        decay: float = 0.0,
        brief: Sequence[str] = (),
        brief_steps: int = 1,
        **options: object,
    ) -> None:
        super().__init__(learning_rate=learning_rate, **options)
        self.momentum, self.plain_momentum = momentum, plain_momentum
        self.plain, self.plain_rate, self.bias_rate = tuple(plain), plain_rate, bias_rate
        self.decay = decay
        self.brief, self.brief_steps = tuple(brief), brief_steps

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Creates one velocity for each weight."""
        if self.built:
            return
        super().build(variables)
        self.velocities = self.add_optimizer_variables(variables, "velocity")

    def velocity(self, variable: keras.Variable) -> keras.Variable:
        """Returns the velocity of a weight."""
        return self.velocities[self._get_variable_index(variable)]

    def is_kernel(self, variable: keras.Variable) -> bool:
        """Returns whether a weight makes orthogonal moves."""
        return len(variable.shape) > 1 and not self._is_of(variable, self.plain)

    def factor(self, variable: keras.Variable) -> tuple[float, bool]:
        """Returns the factor of the rate of a weight that moves by momentum alone, and whether it is brief."""
        return self.bias_rate if len(variable.shape) < 2 else self.plain_rate, self._is_of(variable, self.brief)

    def _is_of(self, variable: keras.Variable, layers: Sequence[str]) -> bool:
        """Says whether a weight is of these layers; TensorFlow hands over its own variable, which knows no path."""
        weight = self._trainable_variables[self._get_variable_index(variable)]
        return any(part in layers for part in weight.path.split("/")[:-1])

    def fading(self) -> Tensor:
        """Returns the factor of the rate of brief layers at this step: from 1 to 0."""
        done = keras.ops.cast(self.iterations, "float32") / float(self.brief_steps)
        return keras.ops.relu(1.0 - done)

    def _backend_update_step(
        self, grads: Sequence[Tensor], trainable_variables: Sequence[keras.Variable], learning_rate: Tensor
    ) -> None:
        if keras.config.backend() == "torch":
            from batchhvd.trainer.optimizers.muon_torch import update

            update(self, grads, trainable_variables, learning_rate)
        else:
            super()._backend_update_step(grads, trainable_variables, learning_rate)

    def update_step(self, gradient: Tensor, variable: keras.Variable, learning_rate: Tensor) -> None:
        """Updates one weight."""
        ops, kernel = keras.ops, self.is_kernel(variable)
        velocity, momentum = self.velocity(variable), self.momentum if kernel else self.plain_momentum
        gradient = ops.cast(gradient, variable.dtype)
        rate = ops.cast(learning_rate, variable.dtype)
        self.assign(velocity, momentum * ops.convert_to_tensor(velocity) + gradient)
        move = gradient + momentum * ops.convert_to_tensor(velocity)
        value = ops.convert_to_tensor(variable)
        if kernel:
            rows = ops.reshape(move, (-1, variable.shape[-1]))
            turned = ops.reshape(orthogonal(rows), variable.shape)
            self.assign(variable, value * _to_norm(value) - rate * turned)
        else:
            factor, brief = self.factor(variable)
            own = rate * factor * (self.fading() if brief else 1.0)
            self.assign(variable, value * (1.0 - rate * self.decay) - own * move)

    def get_config(self) -> dict[str, object]:
        """Returns the configuration from which the same optimizer can be made."""
        names = ("momentum", "plain", "plain_rate", "bias_rate", "plain_momentum", "decay", "brief", "brief_steps")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


def _to_norm(kernel: Tensor) -> Tensor | float:
    """Returns the factor that gives the kernel of a convolution the norm √outputs; 1 for other kernels."""
    if len(kernel.shape) < 3:
        return 1.0
    return float(kernel.shape[-1]) ** 0.5 / (keras.ops.sqrt(keras.ops.sum(keras.ops.square(kernel))) + TINY)


def orthogonal(rows: Tensor) -> Tensor:
    """Returns a matrix with the same singular vectors whose singular values are between about 0.5 and 1.5."""
    ops = keras.ops
    wide = rows.shape[0] < rows.shape[1]
    x = ops.transpose(rows) if wide else rows
    x = x / (ops.sqrt(ops.sum(ops.square(x))) + TINY)
    for _ in range(ITERATIONS):
        square = ops.matmul(ops.transpose(x), x)
        x = LINEAR * x + ops.matmul(x, CUBIC * square + QUINTIC * ops.matmul(square, square))
    return ops.transpose(x) if wide else x
