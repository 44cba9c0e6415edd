"""Keras callbacks for several ranks: the same start, the same metrics, the same decisions.

Put each of them on every rank, because they communicate with the other ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras
import numpy as np

from batchhvd.trainer.hvd.binding import Op
from batchhvd.trainer.hvd.collective import allgather_object, broadcast_object, grouped_allreduce
from batchhvd.trainer.hvd.model_broadcast import BroadcastGlobalVariablesCallback, broadcast_model
from batchhvd.trainer.hvd.rate_callbacks import LearningRateScheduleCallback, LearningRateWarmupCallback
from batchhvd.trainer.hvd.unsupported import refusal
from batchhvd.trainer.hvd.variable import as_array
from batchhvd.trainer.hvd.world import world

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def __getattr__(name: str) -> object:
    raise refusal(__name__, name)


def samples_seen(model: keras.Model) -> float:
    """Returns the number of samples in the mean loss that Keras shows, or 1 if it is unknown."""
    tracker = next((metric for metric in model.metrics if metric.name == "loss" and hasattr(metric, "count")), None)
    return float(as_array(tracker.count)) if tracker is not None else 1.0


class MetricAverageCallback(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Replaces the metrics of each epoch by their means over all ranks, weighted by the samples that each rank saw.

    Put it before all callbacks that read metrics. A metric that only some ranks have is averaged over these.
    """

    def __init__(self, device: str = "") -> None:
        super().__init__()
        self.trained: float | None = None

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Forgets the samples of the previous epoch."""
        self.trained = None

    def on_test_begin(self, logs: dict[str, float] | None = None) -> None:
        """Notes how many samples were trained on, because validation resets the count."""
        if self.trained is None:
            self.trained = samples_seen(self.model)

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Averages the metrics in place, so that later callbacks read the means."""
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
    """Averages what layers learn without gradients, such as the means of batch normalization, at the end of each epoch.

    Each rank sees other data, so these values differ between ranks although all weights are equal. They are averaged
    before validation if the number of steps is known, otherwise after it.
    """

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Starts a new epoch."""
        self.done = False

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        """Averages after the epoch's last step."""
        steps = (self.params or {}).get("steps")
        if steps and batch == steps - 1:
            self._average()

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Averages if the number of steps was unknown."""
        if not self.done:
            self._average()

    def _average(self) -> None:
        self.done = True
        if world().size == 1:
            return
        variables = [v for v in self.model.non_trainable_weights if keras.backend.is_float_dtype(v.dtype)]
        arrays: list[np.ndarray] = [as_array(variable).astype("float32") for variable in variables]
        low, high, mean = (grouped_allreduce(arrays, "statistics", op=op) for op in (Op.MIN, Op.MAX, Op.AVERAGE))
        for number, variable in enumerate(variables):
            # Weights of frozen layers are among them and equal on all ranks: averaging would round them every time.
            if not np.array_equal(low[number], high[number]):
                variable.assign(mean[number])


class EarlyStopping(keras.callbacks.EarlyStopping):  # type: ignore[misc]  # Keras has no types
    """Keras's early stopping, decided by the metric of rank 0, so that all ranks stop together."""

    def get_monitor_value(self, logs: Mapping[str, float]) -> float | None:
        """Returns the monitored metric of rank 0."""
        value: float | None = super().get_monitor_value(logs) if world().rank == 0 else None
        return broadcast_object(value, 0, "early_stopping")


class ReduceLROnPlateau(keras.callbacks.ReduceLROnPlateau):  # type: ignore[misc]  # Keras has no types
    """Keras's reduction of the rate on a plateau, decided by the metric of rank 0 for all ranks."""

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Decides with the metrics of rank 0."""
        mine = {name: value for name, value in (logs or {}).items() if name == self.monitor}
        agreed = {**(logs or {}), **broadcast_object(mine, 0, "plateau")}
        super().on_epoch_end(epoch, agreed)
        if logs is not None:
            logs["learning_rate"] = agreed["learning_rate"]
