"""Keras callbacks for several ranks: the same start, the same metrics, the same decisions.

Put each of them on every rank, because they communicate with the other ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import keras
import numpy as np
from attrs import evolve, frozen

from batchhvd.trainer.hvd.binding import Op
from batchhvd.trainer.hvd.collective import allgather_object, broadcast_object, grouped_allreduce
from batchhvd.trainer.hvd.model_broadcast import BroadcastGlobalVariablesCallback, broadcast_model
from batchhvd.trainer.hvd.rate_callbacks import LearningRateScheduleCallback, LearningRateWarmupCallback
from batchhvd.trainer.hvd.unsupported import refusal
from batchhvd.trainer.hvd.variable import as_array
from batchhvd.trainer.hvd.world import world

if TYPE_CHECKING:
    from batchhvd.trainer.hvd.binding import Tensor

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


@frozen
class Counted:
    """What the metrics of one rank counted while it passed over its data once.

    Attributes:
        samples: how many samples there were.
        values: the metrics' values by name.
        sums: the state of each metric by its place; all are sums over samples.
        exact: names of the values that follow from the sums: those of Keras's own metrics.
    """

    samples: float
    values: Mapping[str, np.ndarray]
    sums: Sequence[np.ndarray]
    exact: frozenset[str]


def counted(model: keras.Model, shown: Mapping[str, float | np.ndarray]) -> Counted:
    """Returns what the metrics of a model have counted since they were reset.

    Args:
        model: after a pass over data.
        shown: the values that Keras shows; those that a custom step has made itself do not follow from the metrics.
    """
    values = {name: np.asarray(value, "float64") for name, value in shown.items()}
    results = {name: as_array(value) for name, value in _results(model).items()}
    foreign = [
        metric.name for metric in _each_metric(model.metrics) if not type(metric).__module__.startswith("keras.")
    ]
    exact = {
        name
        for name, value in results.items()
        if name in values
        and np.allclose(values[name], value, equal_nan=True)
        and not any(name.endswith(other) for other in foreign)
    }
    sums = [as_array(variable) for variable in _metric_variables(model)] if exact else []
    return Counted(samples_seen(model), values, sums, frozenset(exact))


def _results(model: keras.Model) -> Mapping[str, Tensor]:
    try:
        results: Mapping[str, Tensor] = model.get_metrics_result()
    except ValueError:  # metrics that have counted nothing yet
        return {}
    return results


def _each_metric(metrics: Iterable[keras.Metric]) -> Iterator[keras.Metric]:
    for metric in metrics:
        inner = getattr(metric, "metrics", None)
        yield from _each_metric(inner) if inner else [metric]


def _metric_variables(model: keras.Model) -> list[keras.Variable]:
    return [variable for metric in model.metrics for variable in metric.variables]


def merged(model: keras.Model, names: Iterable[str], parts: Sequence[Counted]) -> dict[str, float | np.ndarray]:
    """Returns the metrics over the data of all ranks.

    Values of Keras's metrics are computed from the sums of all ranks. Others are means, weighted by samples.
    """
    shapes = {tuple(array.shape for array in part.sums) for part in parts}
    exact = frozenset.intersection(*(part.exact for part in parts)) if len(shapes) == 1 else frozenset()
    whole = _from_sums(model, [part.sums for part in parts]) if exact else {}
    found: dict[str, float | np.ndarray] = {}
    for name in names:
        value: np.ndarray
        if name in exact:
            value = whole[name].astype("float64")
        else:
            having = [(part.values[name], part.samples) for part in parts if name in part.values]
            value = _mean(having)
        found[name] = value if value.ndim else float(value)
    return found


def _mean(weighted: Sequence[tuple[np.ndarray, float]]) -> np.ndarray:
    """Returns the mean of values by weight; if nothing was counted, as in a step of the user's, all weigh alike."""
    weights = [weight for _, weight in weighted]
    if not any(weights):
        weights = [1.0] * len(weighted)
    total = sum(value * weight for (value, _), weight in zip(weighted, weights, strict=True))
    mean: np.ndarray = np.asarray(total / sum(weights) if weighted else np.nan)
    return mean


def _from_sums(model: keras.Model, parts: Sequence[Sequence[np.ndarray]]) -> dict[str, np.ndarray]:
    """Returns what the metrics of a model would show if they had counted for all ranks."""
    variables = _metric_variables(model)
    own: list[np.ndarray] = [as_array(variable).copy() for variable in variables]
    try:
        for variable, *arrays in zip(variables, *parts, strict=True):
            variable.assign(sum(arrays))
        # Copies, because a result may be a view of a variable that gets its own value back.
        return {name: as_array(value).copy() for name, value in _results(model).items()}
    finally:
        for variable, array in zip(variables, own, strict=True):
            variable.assign(array)


def numbers(logs: Mapping[str, float | np.ndarray]) -> dict[str, float]:
    """Returns metrics as numbers; one whose value is an array has a name for each of its numbers, such as ``f1[0]``."""
    found: dict[str, float] = {}
    for name, value in logs.items():
        array = np.asarray(value, "float64")
        parts = {name: array} if not array.ndim else {f"{name}[{at}]": part for at, part in enumerate(array.ravel())}
        found |= {label: float(part) for label, part in parts.items()}
    return found


class MetricAverageCallback(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Replaces the metrics of each epoch by those over the data of all ranks; see `merged`.

    Put it before all callbacks that read metrics. A metric that only some ranks have is taken from these.
    """

    def __init__(self, device: str = "") -> None:
        super().__init__()
        self.trained: Counted | None = None
        self.last: Mapping[str, float | np.ndarray] = {}

    def on_epoch_begin(self, epoch: int, logs: dict[str, float | np.ndarray] | None = None) -> None:
        """Forgets the previous epoch."""
        self.trained, self.last = None, {}

    def on_train_batch_end(self, batch: int, logs: dict[str, float | np.ndarray] | None = None) -> None:
        """Notes what the step shows, because on PyTorch validation changes some values that Keras shows afterwards."""
        self.last = logs or {}

    def on_test_begin(self, logs: dict[str, float | np.ndarray] | None = None) -> None:
        """Notes what was counted in training, because validation resets it."""
        if self.trained is None:
            self.trained = counted(self.model, {name: as_array(value) for name, value in _results(self.model).items()})

    def on_epoch_end(self, epoch: int, logs: dict[str, float | np.ndarray] | None = None) -> None:
        """Merges the metrics in place, so that later callbacks read those of all ranks."""
        if logs is None or (world().size == 1 and self.trained is None):
            return
        trained, tested = self._passes(logs)
        everyone = allgather_object((trained, tested), "metrics")
        logs.update(merged(self.model, trained.values, [part for part, _ in everyone]))
        seen = [part for _, part in everyone if part is not None]
        if tested is not None:
            found = merged(self.model, tested.values, seen)
            logs.update({f"val_{name}": value for name, value in found.items()})

    def _passes(self, logs: Mapping[str, float | np.ndarray]) -> tuple[Counted, Counted | None]:
        """Returns what was counted in training and in validation, if there was one."""
        shown = {name: value for name, value in logs.items() if not name.startswith("val_")}
        validated = {name.removeprefix("val_"): value for name, value in logs.items() if name.startswith("val_")}
        if self.trained is None:
            return counted(self.model, shown), None
        values = {name: np.asarray(value, "float64") for name, value in shown.items()}
        kept = {
            name
            for name in self.trained.exact
            if name in values
            and np.allclose(self.last.get(name, values[name]), self.trained.values[name], equal_nan=True)
        }
        values |= {name: self.trained.values[name] for name in kept}
        trained = evolve(self.trained, values=values, exact=frozenset(kept))
        return trained, counted(self.model, validated) if validated else None


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
