"""Keras callbacks for several ranks: the same start, the same figures, the same decisions.

All of these go on every rank. Those that write do so on rank 0 only, but talk to the others first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from batchhvd.errors import SpecError
from batchhvd.trainer.hvd.binding import Op
from batchhvd.trainer.hvd.collective import allgather_object, broadcast_object, grouped_allreduce
from batchhvd.trainer.hvd.optimizer import prepare
from batchhvd.trainer.hvd.world import world
from batchhvd.trainer.schedule import Warmup

__all__ = [
    "AverageMovingStatistics",
    "BroadcastGlobalVariablesCallback",
    "EarlyStopping",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
    "ReduceLROnPlateau",
    "broadcast_model",
    "samples_seen",
]


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Gives all ranks the weights and the optimizer's state of one rank before the first step.

    It belongs first in the list, and after a restored checkpoint too. A model that is built by its first batch is
    built for this from the batch's shape; where that cannot be told, the broadcast follows the first step.

    Args:
        root_rank: whose state it is.
        device, local_variables: Horovod's; only the defaults are supported.
    """

    def __init__(self, root_rank: int = 0, device: str = "", local_variables: Any = None) -> None:
        super().__init__()
        if local_variables:
            raise SpecError("local_variables is not supported", remedy="leave it out: all weights are broadcast")
        self.root_rank = root_rank
        self.done = False

    def set_model(self, model: Any) -> None:
        """Makes the model's step fit for several ranks, before Keras compiles it."""
        super().set_model(model)
        prepare(model)

    def on_train_begin(self, logs: Any = None) -> None:
        """Broadcasts, or arranges for it where the model is not built yet."""
        self.done = False
        if _is_built(self.model):
            self._broadcast()
        else:
            self._build_first()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Broadcasts after the first step where nothing else was possible."""
        if not self.done:
            self._broadcast()

    def _broadcast(self) -> None:
        broadcast_model(self.model, self.root_rank)
        self.done = True

    def _build_first(self) -> None:
        """Puts building and the broadcast in front of the first step, which alone knows the data's shape."""
        step = self.model.train_function

        def first(data: Any) -> Any:
            self.model.train_function = step
            if _build(self.model, data):
                self._broadcast()
            return step(data)

        self.model.train_function = first


def _is_built(model: Any) -> bool:
    return bool(model.built) and bool(model.weights)


def _build(model: Any, iterator: Any) -> bool:
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


def broadcast_model(model: Any, root_rank: int = 0) -> None:
    """Gives a built model's weights and its optimizer's state on one rank to all ranks."""
    optimizer = model.optimizer
    if optimizer is not None and not optimizer.built:
        optimizer.build(model.trainable_variables)
    variables = [*model.weights, *(optimizer.variables if optimizer is not None else ())]
    if world().size == 1:
        return
    mine = world().rank == root_rank
    sent = [_array(variable) for variable in variables] if mine else None
    received = broadcast_object(sent, root_rank, "variables")
    if len(received) != len(variables):
        raise SpecError(
            f"rank {root_rank} has {len(received)} variables and rank {world().rank} has {len(variables)}",
            remedy="build the same model on all ranks",
        )
    if not mine:
        for variable, array in zip(variables, received, strict=True):
            variable.assign(array)


def _array(variable: Any) -> Any:
    # The value and not the variable: numpy warns of the way in which variables turn themselves into arrays.
    return keras.ops.convert_to_numpy(getattr(variable, "value", variable))


def samples_seen(model: Any) -> float:
    """Returns how many samples the loss shown by Keras is the mean of, 1 where it is not known."""
    tracker = next((metric for metric in model.metrics if metric.name == "loss" and hasattr(metric, "count")), None)
    return float(_array(tracker.count)) if tracker is not None else 1.0


class MetricAverageCallback(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Replaces each epoch's figures by their means over all ranks, weighted by the samples that each rank saw.

    It belongs before all callbacks that read figures. Figures that only some ranks have are the means of these.
    """

    def __init__(self, device: str = "") -> None:
        super().__init__()
        self.trained: float | None = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Forgets the samples of the epoch before."""
        self.trained = None

    def on_test_begin(self, logs: Any = None) -> None:
        """Notes how many samples were trained on: validation starts counting anew."""
        if self.trained is None:
            self.trained = samples_seen(self.model)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Averages the figures in place, so that the callbacks after this one read the means."""
        if logs is None or world().size == 1:
            return
        now = samples_seen(self.model)
        trained = now if self.trained is None else self.trained
        mine = {name: (float(value), now if name.startswith("val_") else trained) for name, value in logs.items()}
        everyone = allgather_object(mine, "metrics")
        for name in logs:
            logs[name] = _mean([figures[name] for figures in everyone if name in figures])


def _mean(weighted: list[tuple[float, float]]) -> float:
    total = sum(weight for _, weight in weighted)
    return sum(value * weight for value, weight in weighted) / total if total else float("nan")


class AverageMovingStatistics(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Averages what layers learn without gradients, such as batch normalisation's means, at the end of each epoch.

    Each rank sees other data, so these differ between ranks although all weights are alike. It happens before
    validation where the number of steps is known, else after it.
    """

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Starts a new epoch."""
        self.done = False

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Averages after the epoch's last step."""
        steps = (self.params or {}).get("steps")
        if steps and batch == steps - 1:
            self._average()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Averages where the number of steps was not known."""
        if not self.done:
            self._average()

    def _average(self) -> None:
        self.done = True
        if world().size == 1:
            return
        variables = [v for v in self.model.non_trainable_weights if keras.backend.is_float_dtype(v.dtype)]
        arrays = [_array(variable).astype("float32") for variable in variables]
        low, high, mean = (grouped_allreduce(arrays, "statistics", op=op) for op in (Op.MIN, Op.MAX, Op.AVERAGE))
        for number, variable in enumerate(variables):
            # Weights of frozen layers are among them, alike on all ranks: an average would round them anew each time.
            if not np.array_equal(low[number], high[number]):
                variable.assign(mean[number])


class EarlyStopping(keras.callbacks.EarlyStopping):  # type: ignore[misc]  # Keras has no types
    """Keras's early stopping, decided by rank 0's figure for all ranks, so that all stop together."""

    def get_monitor_value(self, logs: Any) -> Any:
        """Returns rank 0's value of the monitored figure."""
        value = super().get_monitor_value(logs) if world().rank == 0 else None
        return broadcast_object(value, 0, "early_stopping")


class ReduceLROnPlateau(keras.callbacks.ReduceLROnPlateau):  # type: ignore[misc]  # Keras has no types
    """Keras's reduction of the rate on a plateau, decided by rank 0's figure for all ranks."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Decides with rank 0's figures."""
        mine = {name: value for name, value in (logs or {}).items() if name == self.monitor}
        agreed = {**(logs or {}), **broadcast_object(mine, 0, "plateau")}
        super().on_epoch_end(epoch, agreed)
        if logs is not None:
            logs["learning_rate"] = agreed["learning_rate"]


class LearningRateScheduleCallback(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Sets the learning rate to ``initial_lr · multiplier(epoch)`` between two epochs.

    Args:
        initial_lr: the rate that is multiplied.
        multiplier: a number, or a function of the epoch.
        start_epoch: the first epoch that it is for.
        end_epoch: the first epoch that it is no longer for; None for ever.
        staircase: once an epoch, with whole epochs; False each step, with fractions.
        momentum_correction: Horovod's; without effect, since Keras 3 compiles the momentum into the step.
        steps_per_epoch: where Keras does not know it.
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

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Notes the epoch, and sets its rate where it is one for the whole epoch."""
        self.epoch = epoch
        if self.staircase:
            self._set(epoch)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Sets the rate of this step."""
        if not self.staircase:
            self._set(self.epoch + batch / self._steps())

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Shows the rate among the figures."""
        if logs is not None:
            logs["learning_rate"] = float(_array(self.model.optimizer.learning_rate))

    def _set(self, epoch: float) -> None:
        if epoch >= self.start_epoch and (self.end_epoch is None or epoch < self.end_epoch):
            self.model.optimizer.learning_rate = self.initial_lr * self.multiplier(epoch)

    def _steps(self) -> int:
        steps = self.steps_per_epoch or (self.params or {}).get("steps")
        if not steps:
            raise SpecError("the number of steps of an epoch is not known", remedy="pass steps_per_epoch")
        return int(steps)


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Grows the rate from ``initial_lr / size`` to ``initial_lr`` within the first epochs; see `schedule.Warmup`.

    Args:
        initial_lr: the rate after warm-up, which is the one scaled for all ranks.
        warmup_epochs: how long it takes.
        momentum_correction: without effect, as in `LearningRateScheduleCallback`.
        steps_per_epoch: where Keras does not know it.
        verbose: 1 lets rank 0 say when warm-up has ended.
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
        # One step beyond the end, so that the rate is exactly the full one afterwards.
        if epoch < self.warmup_epochs + 1 / self._steps():
            super()._set(epoch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Shows the rate, and says once that warm-up has ended."""
        super().on_epoch_end(epoch, logs)
        if self.verbose and world().rank == 0 and epoch < self.warmup_epochs <= epoch + 1:
            print(f"Epoch {epoch + 1}: warm-up ended at learning rate {self.initial_lr:g}")
