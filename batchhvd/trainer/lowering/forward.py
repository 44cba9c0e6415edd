"""The forward pass of a model in training, compiled as a whole, and its step with Keras's own loss and metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch.overrides import TorchFunctionMode

from batchhvd.trainer.lowering import operations
from batchhvd.trainer.lowering.program import LayerProgram

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import keras


class LoweredStep:
    """A training step that computes what the model's own ``train_step`` does, with the forward pass as one function.

    Args:
        model: compiled, and one that :func:`batchhvd.trainer.lowering.program.read` reads.
        program: what it read.
        compile_it: False computes operation by operation.
    """

    def __init__(self, model: keras.Model, program: LayerProgram, compile_it: bool = True) -> None:
        self.model, self.program = model, program
        made = operations.compiled if compile_it else operations.plain
        self._forward = made(program.operations, program.output)
        self._constants = ConstantsOnDevice()

    def __call__(self, data: Sequence[torch.Tensor]) -> Mapping[str, torch.Tensor]:
        """Trains on ``(x, y)`` or ``(x, y, sample_weight)`` and returns the metrics so far."""
        model = self.model
        x, y, weight = (*data, None)[:3]
        predicted, moments = self._forward(x, [one.value for one in self.program.weights])
        model.zero_grad()
        with torch.no_grad():
            self._move(moments)
        with self._constants:
            loss = model._compute_loss(x=x, y=y, y_pred=predicted, sample_weight=weight, training=True)
            model._loss_tracker.update_state(loss.detach(), sample_weight=x.shape[0])
            scaled = model.optimizer.scale_loss(loss)
        scaled.backward()
        variables = model.trainable_weights[:]
        with torch.no_grad(), self._constants:
            model.optimizer.apply([one.value.grad for one in variables], variables)
            logs: Mapping[str, torch.Tensor] = model.compute_metrics(x, y, predicted.detach(), sample_weight=weight)
        return logs

    def _move(self, moments: Sequence[torch.Tensor]) -> None:
        """Moves the statistics of batch normalizations towards those of the batch."""
        kept = [one.value for pair in self.program.moving for one in pair[:2]]
        parts = [1.0 - momentum for *_, momentum in self.program.moving for _ in range(2)]
        if len(set(parts)) == 1:
            torch._foreach_lerp_(kept, list(moments), parts[0])
            return
        for one, new, part in zip(kept, moments, parts, strict=True):
            one.lerp_(new, part)


class ConstantsOnDevice(TorchFunctionMode):  # type: ignore[misc]  # torch is not imported for types
    """Makes constants of Python on the device instead of copying them there, which no recording may do.

    Numbers are filled in. Other constants are copied when they are first met, and from there afterwards: enter the same
    object for a step that is not recorded before one that is.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[object, ...], torch.Tensor] = {}

    def __torch_function__(
        self,
        func: Callable[..., torch.Tensor],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> torch.Tensor:
        """Replaces ``torch.as_tensor(constant, …)``."""
        kwargs = kwargs or {}
        device = kwargs.get("device")
        if func not in (torch.as_tensor, torch.tensor) or device is None or isinstance(args[0], torch.Tensor):
            return func(*args, **kwargs)
        if isinstance(args[0], (bool, int, float)):
            return torch.full((), args[0], dtype=kwargs.get("dtype"), device=device)
        key = (repr(args[0]), kwargs.get("dtype"), str(device))
        if key not in self.kept:
            self.kept[key] = func(*args, **kwargs)
        return self.kept[key].clone()
