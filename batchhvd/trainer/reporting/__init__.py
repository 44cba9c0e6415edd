"""What a training reports about itself: one line of JSON for each report, beside the job's logs; nothing is printed.

``hvd.report`` is this module's ``report``. It needs neither Keras nor Horovod nor PyTorch; any script can have it:

    from batchhvd.trainer.reporting import report

    report(accuracy=0.91, epoch=3)
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import SupportsFloat

from batchhvd.errors import SpecError

FILE = "metrics.jsonl"
"""The file's name, in the folder of the job's logs."""

_FOLDER = "AZ_BATCHAI_STDOUTERR_DIR"
_PLACES = ("epoch", "step")
#: Variables in which launchers set the number of a rank, in order of precedence.
_RANKS = ("HOROVOD_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "AZ_BATCHAI_TASK_INDEX")
_said: list[str] = []
_reports = 0


def report(*, epoch: int | None = None, step: int | None = None, **metrics: SupportsFloat) -> None:
    """Reports metrics of the training: rank 0 adds a line to ``metrics.jsonl`` beside the job's logs.

    ``job.metrics()``, sweeps and ``compare`` read it. Call it on every rank; only rank 0 writes, so the values must be
    those of all ranks, as ``hvd.allreduce`` gives them. A second report of an epoch (or step) replaces the names that
    it has of the first. Outside of a job nothing is written, and one line on the error output says so.

    Args:
        epoch: the number of the epoch that has ended, from 1. Without epoch and step, reports are numbered from 1.
        step: the number of steps done, if there are no epochs, or as well.
        metrics: numbers by name: Python's, numpy's, or tensors of one element.

    Raises:
        SpecError: there is no metric, or a value is not a number.
        OSError: the file cannot be written.
    """
    global _reports
    record = _record(epoch, step, metrics)
    _reports += 1
    if "epoch" not in record and "step" not in record:
        record = {"epoch": _reports, **record}
    if next((os.environ[name] for name in _RANKS if os.environ.get(name)), "0") == "0":
        _write(record)


def _record(epoch: int | None, step: int | None, metrics: dict[str, SupportsFloat]) -> dict[str, float]:
    if not metrics:
        raise SpecError("report() got no metric", remedy="give one by its name, such as accuracy=0.91")
    places = {name: value for name, value in zip(_PLACES, (epoch, step), strict=True) if value is not None}
    wrong = next((name for name, value in places.items() if int(value) != value or value < 0), None)
    if wrong:
        raise SpecError(f"{wrong} must be a whole number, not {places[wrong]!r}", remedy="count from 1")
    return {
        **{name: int(value) for name, value in places.items()},
        **{name: _number(name, metrics) for name in metrics},
    }


def _number(name: str, metrics: dict[str, SupportsFloat]) -> float:
    value = metrics[name]
    try:
        if isinstance(value, str):
            raise ValueError
        return float(value)
    except (TypeError, ValueError, RuntimeError) as error:
        remedy = "report one number for each name"
        raise SpecError(f"{name} is not a number but a {type(value).__name__}", remedy=remedy) from error


def _write(record: dict[str, float]) -> None:
    folder = os.environ.get(_FOLDER)
    if folder:
        line = json.dumps(record) + "\n"
        with Path(folder, FILE).open("a", encoding="utf-8") as stream:
            stream.write(line)
    elif not _said:
        _said.append(f"batchhvd: report() keeps nothing here: this is no job ({_FOLDER} is not set)")
        print(_said[0], file=sys.stderr, flush=True)
