"""Learning rates that change while several ranks train: Horovod's schedule and warm-up as Keras callbacks."""

from __future__ import annotations

from collections.abc import Callable

import keras

from batchhvd.errors import SpecError
from batchhvd.trainer.hvd.variable import as_array
from batchhvd.trainer.hvd.warmup import Warmup
from batchhvd.trainer.hvd.world import world


class LearningRateScheduleCallback(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Sets the learning rate to ``initial_lr · multiplier(epoch)`` between two epochs.

    Args:
        initial_lr: the rate that is multiplied.
        multiplier: a number, or a function of the epoch.
        start_epoch: the first epoch to which it applies.
        end_epoch: the first epoch to which it no longer applies; None means that there is none.
        staircase: True sets the rate once an epoch; False at each step, with fractions of epochs.
        momentum_correction: Horovod's; without effect, since Keras 3 compiles the momentum into the step.
        steps_per_epoch: needed if Keras does not know it.
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        self.initial_lr = initial_lr
        self.multiplier = multiplier if callable(multiplier) else lambda epoch: multiplier
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase or not callable(multiplier)
        self.steps_per_epoch = steps_per_epoch
        self.epoch = 0

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Notes the epoch, and sets the rate if it is the same for the whole epoch."""
        self.epoch = epoch
        if self.staircase:
            self._set(epoch)

    def on_train_batch_begin(self, batch: int, logs: dict[str, float] | None = None) -> None:
        """Sets the rate of this step."""
        if not self.staircase:
            self._set(self.epoch + batch / self._steps())

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Adds the rate to the metrics."""
        if logs is not None:
            logs["learning_rate"] = float(as_array(self.model.optimizer.learning_rate))

    def _set(self, epoch: float) -> None:
        if epoch >= self.start_epoch and (self.end_epoch is None or epoch < self.end_epoch):
            self.model.optimizer.learning_rate = self.initial_lr * self.multiplier(epoch)

    def _steps(self) -> int:
        steps = self.steps_per_epoch or (self.params or {}).get("steps")
        if not steps:
            raise SpecError("the number of steps of an epoch is unknown", remedy="pass steps_per_epoch")
        return int(steps)


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Grows the rate from ``initial_lr / size`` to ``initial_lr`` within the first epochs; see `schedule.Warmup`.

    Args:
        initial_lr: the rate after warm-up, scaled for all ranks.
        warmup_epochs: how long it takes.
        momentum_correction: without effect, as in `LearningRateScheduleCallback`.
        steps_per_epoch: needed if Keras does not know it.
        verbose: 1 makes rank 0 print a line when warm-up has ended.
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: float = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        warmup = Warmup(1.0, warmup_epochs, world().size)
        super().__init__(initial_lr, warmup.rate, staircase=False, steps_per_epoch=steps_per_epoch)
        self.warmup_epochs = warmup_epochs
        self.verbose = verbose

    def _set(self, epoch: float) -> None:
        # One step beyond the end, so that the rate is exactly the full rate afterwards.
        if epoch < self.warmup_epochs + 1 / self._steps():
            super()._set(epoch)

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Adds the rate to the metrics, and prints a line when warm-up has ended."""
        super().on_epoch_end(epoch, logs)
        if self.verbose and world().rank == 0 and epoch < self.warmup_epochs <= epoch + 1:
            print(f"Epoch {epoch + 1}: warm-up ended at learning rate {self.initial_lr:g}")
