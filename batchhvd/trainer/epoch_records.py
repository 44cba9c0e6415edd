"""What rank 0 writes about each epoch while all ranks train: records in JSON, and Keras's own logs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import keras
import numpy as np

from batchhvd.trainer.hvd.binding import Op
from batchhvd.trainer.hvd.callbacks import numbers, samples_seen
from batchhvd.trainer.hvd.collective import allreduce
from batchhvd.trainer.hvd.variable import as_array
from batchhvd.trainer.hvd.world import world

#: The content of one line: the fields that `EpochRecords` names.
EpochRecord: TypeAlias = "dict[str, float]"


class EpochRecords(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Writes one line of JSON for each epoch: metrics, seconds, and images per second of all ranks together.

    The fields are ``epoch`` (from 1), ``seconds`` (training only, without validation), ``images`` and
    ``images_per_second`` (of all ranks), ``loss``, ``accuracy``, ``val_loss``, ``val_accuracy`` and other metrics
    if they exist, ``learning_rate`` and ``ranks``. Put it on every rank, after `MetricAverageCallback`. When training
    resumes, the records of epochs that are trained again are dropped, so no epoch is recorded twice.

    Args:
        path: the file; its folder is created. Only rank 0 touches it.
        clock: time in seconds.
    """

    def __init__(self, path: Path | str, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.path = Path(path)
        self.clock = clock
        self.first = True

    def on_train_begin(self, logs: Mapping[str, float] | None = None) -> None:
        """Notes that no epoch has begun yet."""
        self.first = True

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Starts the clock."""
        if self.first and world().rank == 0:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            keep_before(self.path, epoch + 1)
        self.first = False
        self.trained: tuple[float, float] | None = None
        self.started = self.clock()

    def on_test_begin(self, logs: Mapping[str, float] | None = None) -> None:
        """Stops the clock before validation."""
        if getattr(self, "trained", None) is None:
            self.trained = self._trained()

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Counts the images of all ranks and writes the record."""
        seconds, images = self.trained or self._trained()
        images = float(allreduce(np.float64(images), "images", op=Op.SUM))
        if world().rank == 0:
            self._write(epoch, seconds, images, logs or {})

    def _trained(self) -> tuple[float, float]:
        return self.clock() - getattr(self, "started", self.clock()), samples_seen(self.model)

    def _write(self, epoch: int, seconds: float, images: float, logs: Mapping[str, float]) -> None:
        record = {
            "epoch": epoch + 1,
            "seconds": round(seconds, 3),
            "images": int(images),
            "images_per_second": round(images / seconds, 1) if seconds > 0 else 0.0,
            **numbers(logs),
            "learning_rate": float(as_array(self.model.optimizer.learning_rate)),
            "ranks": world().size,
        }
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(record) + "\n")


def read_records(path: Path | str) -> list[EpochRecord]:
    """Reads epoch records; an incomplete last line, whose writer was killed, is left out."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    return [record for record in map(_record, lines) if record is not None]


def _record(line: str) -> EpochRecord | None:
    try:
        record: EpochRecord = json.loads(line)
    except json.JSONDecodeError:
        return None
    return record


def keep_before(path: Path, epoch: int) -> None:
    """Drops the records from an epoch on, and an incomplete last line; the file is replaced atomically."""
    if path.exists():
        kept = [record for record in read_records(path) if record["epoch"] < epoch]
        partial = path.with_name(path.name + ".part")
        partial.write_text("".join(json.dumps(record) + "\n" for record in kept), encoding="utf-8")
        os.replace(partial, path)


def rank0_logs(
    csv: Path | str | None = None, tensorboard: Path | str | None = None
) -> Sequence[keras.callbacks.Callback]:
    """Returns Keras's CSV and TensorBoard loggers on rank 0, and nothing on other ranks.

    Args:
        csv: the file, appended to; None for none.
        tensorboard: the folder; None for none.
    """
    if world().rank != 0:
        return []
    made = [keras.callbacks.CSVLogger(str(csv), append=True)] if csv is not None else []
    if tensorboard is not None:
        made.append(keras.callbacks.TensorBoard(str(tensorboard)))
    return made
