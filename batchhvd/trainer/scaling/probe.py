"""A callback that measures the steps of any training, and ends it as soon as enough is known."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import keras
import numpy as np
from attrs import define, field, frozen

from batchhvd.errors import SpecError
from batchhvd.trainer.hvd.binding import Binding, Compression, Op
from batchhvd.trainer.hvd.collective import allgather_object, barrier
from batchhvd.trainer.hvd.world import world
from batchhvd.trainer.scaling import chunks
from batchhvd.trainer.scaling.timing import TimedBinding

if TYPE_CHECKING:
    from batchhvd.trainer.hvd.binding import Tensor

_WARM_STEPS, _WARM_SECONDS = 10, 2.0
_CHUNK = 5  # steps until the first decision
_LEAST = 1e-6  # seconds, so that nothing is divided by 0
_TRIES = 15  # exchanges of one number
_TRAINED = "this script trains in a way that is not measured: "


class Finished(BaseException):
    """Ends a training that has been measured; no ``except Exception`` of a script stops it."""


@frozen
class Patience:
    """How long to measure.

    Attributes:
        precision: half the width of the 95 % interval of a step's time, divided by it.
        seconds: the most that one measurement takes, after the warm-up.
    """

    precision: float = 0.03
    seconds: float = 20.0


@define
class Steps:
    """What was noted of the steps that count, in seconds."""

    step: list[float] = field(factory=list)
    input: list[float] = field(factory=list)
    exchange: list[float] = field(factory=list)
    means: list[float] = field(factory=list)
    sparse: float = 0.0


@frozen
class RankSteps:
    """What one rank has noted: steps as they are and, of one rank, with twice the batch; its host; its latency."""

    steps: Steps
    double: Steps | None
    host: str
    latency: float


class Probe(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Measures steps; all ranks decide together when it is enough, and `Finished` ends the training.

    Args:
        patience: how long to measure.
        told: called on every rank with the figures of all ranks; only rank 0 needs them.
        timed: the binding that notes the exchange, None on one rank.
        clock: monotonic time in seconds.
    """

    def __init__(
        self,
        patience: Patience,
        told: Callable[[dict[str, object]], None],
        timed: TimedBinding | None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__()
        self.patience, self.told, self.timed, self.clock = patience, told, timed, clock
        self.batch = 0
        self._step: object = None
        self.doubling = False
        self.noted = Steps()
        self._phase, self._left, self._seen = "warm", _CHUNK, 0
        self._began = self._last = self._started = None  # type: float | None
        self._fetched, self._exchanged, self._chunk, self._whole = 0.0, (0.0, 0.0), Steps(), Steps()

    def _wrap(self) -> None:
        """Wraps the step, to see its batch, and what fetching it and the exchange take."""
        plain = self.model.train_function
        if type(plain).__name__ == "RecordedStep":
            raise SpecError(f"{_TRAINED}its step is compiled as a whole", remedy="measure it with --step plain")

        def step(data: Iterator[object] | list[object]) -> object:
            began = self.clock()
            batches = _fetched(data, self.model.steps_per_execution)
            self._fetched = self.clock() - began
            self.batch = self.batch or _rows(batches[0])
            with self._exchanging():
                return plain(_given(data, map(_doubled, batches) if self.doubling else batches))

        self.model.train_function = self._step = step

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """The first step of an epoch waits for the data to begin again, and does not count."""
        self._last = None
        self._seen = 0

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, float] | None = None) -> None:
        """Notes when the step begins, and wraps it; another callback may have put the plain one back."""
        if self.model.train_function is not self._step:
            self._wrap()
        self._started = self.clock()
        self._fetched = 0.0

    def on_train_batch_end(self, batch: int, logs: Mapping[str, float] | None = None) -> None:
        """Notes what the step took, and decides after each chunk."""
        now = self.clock()
        taken, sparse = self._exchanged
        if self._last is not None and self._started is not None:
            self._chunk.step.append(now - self._last)
            self._chunk.input.append(self._started - self._last + self._fetched)
            self._chunk.exchange.append(taken)
            self._chunk.sparse += sparse
        self._seen += 1
        self._left -= 1
        self._began = self._began or now
        if self._left <= 0:
            self._decide(now)
        self._last = self.clock()

    @contextmanager
    def _exchanging(self) -> Iterator[None]:
        """Notes what the reductions of a step take, and none of those that callbacks make."""
        if self.timed is None:
            yield
            return
        before = self.timed.read()
        self.timed.inside = True
        yield
        self.timed.inside = False
        seconds, sparse = self.timed.read()
        self._exchanged = seconds - before[0], sparse - before[1]

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Says so if there is nothing to measure."""
        if self._seen < 2:
            raise SpecError(
                f"an epoch has {self._seen} steps, or the data has ended: too few to measure",
                remedy="give more data, or a smaller batch",
            )

    # --- what all ranks decide together -----------------------------------------------------------------------------

    def _decide(self, now: float) -> None:
        """Continues, changes the phase, or ends; as rank 0 says."""
        chunk, self._chunk = self._chunk, Steps()
        mean = float(np.mean(chunk.step)) if chunk.step else 0.0
        self._collect(chunk, mean)
        elapsed = now - (self._began or now)
        done, length = self._agreed(self._is_over(elapsed), chunks.length(mean))
        self._left = int(length)
        if done:
            self._next()

    def _collect(self, chunk: Steps, mean: float) -> None:
        if self._phase == "warm" or not chunk.step:
            return
        for name in ("step", "input", "exchange"):
            getattr(self.noted, name).extend(getattr(chunk, name))
        self.noted.sparse += chunk.sparse
        self.noted.means.append(mean)

    def _is_over(self, elapsed: float) -> bool:
        if self._phase == "warm":
            self._warmed = getattr(self, "_warmed", 0) + 1
            return self._warmed * _CHUNK >= _WARM_STEPS and elapsed >= _WARM_SECONDS
        return chunks.is_enough(self.noted.means, self.patience.precision) or (
            elapsed >= self.patience.seconds and len(self.noted.means) >= 2
        )

    def _next(self) -> None:
        """Begins the next phase, or ends the training."""
        self._began = self.clock()
        if self._phase == "warm":
            self._phase = "plain"
        elif self._phase == "plain" and world().size == 1 and not self.doubling:
            self._whole, self.noted, self.doubling, self._phase = self.noted, Steps(), True, "warm"
            self._warmed, self._left = 0, _CHUNK
        else:
            self._finish()

    def _agreed(self, over: bool, length: int) -> tuple[bool, int]:
        binding = world().binding
        if binding is None:
            return over, length
        mine = np.array([over, length] if world().rank == 0 else [0, 0], "float32")
        (found,) = _plain(binding).reduce([binding.tensor(mine)], "batchhvd.scale", Op.SUM, Compression.none)
        over, length = binding.array(found)
        return bool(over), int(length)

    def _finish(self) -> None:
        alone = world().size == 1
        mine = RankSteps(
            steps=self._whole if alone else self.noted,
            double=self.noted if alone else None,
            host=socket.gethostname(),
            latency=0.0 if alone else _latency(self.clock),
        )
        self.told(_figures(allgather_object(mine, "batchhvd.scale.figures"), self))
        raise Finished


def _plain(binding: Binding) -> Binding:
    """Returns the binding inside a timed one."""
    return binding.inner if isinstance(binding, TimedBinding) else binding


def _latency(clock: Callable[[], float]) -> float:
    """Returns the seconds of an exchange of one number."""
    taken = []
    for _ in range(_TRIES):
        began = clock()
        barrier()
        taken.append(clock() - began)
    return float(np.median(taken[3:]))


def _rows(batch: object) -> int:
    return int(next(leaf.shape[0] for leaf in keras.tree.flatten(batch) if getattr(leaf, "shape", ())))


def _doubled(batch: object) -> object:
    """Returns a batch twice, one after the other."""

    def twice(leaf: Tensor) -> Tensor:
        return keras.ops.concatenate([leaf, leaf]) if getattr(leaf, "shape", ()) else leaf

    return keras.tree.map_structure(twice, batch)


def _fetched(data: Iterator[object] | list[object], count: int) -> list[object]:
    """Returns the batches of a call: Keras hands over an iterator on TensorFlow, and a list on PyTorch."""
    return data if isinstance(data, list) else [next(data) for _ in range(count)]


def _given(data: object, batches: Iterable[object]) -> object:
    """Returns batches as Keras gave them: as an iterator on TensorFlow, as a list on PyTorch."""
    return iter(batches) if hasattr(data, "__next__") else list(batches)


def _figures(parts: list[RankSteps], probe: Probe) -> dict[str, object]:
    """Returns the figures of all ranks as those of a ``ScaleRun``."""
    steps = [part.steps for part in parts]
    count = min(len(one.step) for one in steps)
    taken = np.array([one.exchange[:count] for one in steps])  # (ranks, steps)
    exchange = float(taken.min(axis=0).mean())  # the last rank to come waits for nobody
    step = float(np.mean([np.mean(one.step) for one in steps]))
    waited = float(np.mean([np.mean(one.input) for one in steps]))
    double = parts[0].double
    return {
        "ranks": len(parts),
        "machines": len({part.host for part in parts}),
        "cores": len(os.sched_getaffinity(0)),
        "threads": int(os.environ.get("TF_NUM_INTRAOP_THREADS") or os.environ.get("OMP_NUM_THREADS") or 0),
        "batch": probe.batch,
        "step": step,
        "input": waited,
        "compute": max(step - waited - exchange, _LEAST),
        "exchange": exchange,
        "waiting": float(taken.mean()) - exchange,
        "spread": chunks.spread(steps[0].means),
        "steps": count,
        "reductions": max(1, len(probe.timed.dense)) if probe.timed else 1,
        "dense_bytes": sum(probe.timed.dense.values()) if probe.timed else 0.0,
        "sparse_bytes": steps[0].sparse / max(1, count),
        "latency": max(part.latency for part in parts),
        "double": float(np.mean(double.step) - np.mean(double.input)) if double else None,
        "backend": keras.config.backend(),
        "seconds": float(np.sum(steps[0].step)),
    }
