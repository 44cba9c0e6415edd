"""Several jobs side by side: what they tried, and what came of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import field, frozen

from batchhvd.errors import SpecError
from batchhvd.resources.values.compared_job import ComparedJob
from batchhvd.sweeps.stopping import goal_of, signed

_PREFERRED = ("val_accuracy", "accuracy", "val_loss", "loss")
_NO_METRICS = ("epoch", "step", "seconds", "images_per_second", "learning_rate", "writer", "rank")


@frozen
class Comparison:
    """Jobs side by side; iterating yields a row for each.

    In a notebook it shows itself as the curves of all jobs above the table.

    Attributes:
        metric: the metric that the jobs are compared by, "" if none has reported any.
        rows: for each job its name, state, ranks, what it tried, epochs, the last and the best value of the metric with
            the epoch of the best, seconds, images per second, and a digest of its files.
        curves: (epoch, value) of the metric, by the job's name.
        jobs: what the rows were made from, with all metrics.
    """

    metric: str
    rows: tuple[Mapping[str, object], ...]
    curves: Mapping[str, Sequence[tuple[float, float]]] = field(repr=False)
    jobs: tuple[ComparedJob, ...] = field(repr=False)

    def __iter__(self) -> Iterator[Mapping[str, object]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __add__(self, other: Comparison) -> Comparison:
        """Returns the jobs of both side by side, by this one's metric."""
        return compare((*self.jobs, *other.jobs), self.metric or other.metric)

    @classmethod
    def from_mlflow(cls, uri: str, experiment: str, metric: str = "") -> Comparison:
        """Returns the runs of an experiment of MLflow side by side, the oldest first; needs ``batchhvd[mlflow]``.

        Args:
            uri: MLflow's tracking URI.
            experiment: the name of MLflow's experiment.
            metric: the metric to compare by; "" for the first that there is, as for jobs.

        Raises:
            SpecError: MLflow is not installed or refuses, there is no such experiment, or no run has the metric.
        """
        from batchhvd.resources.values import exports

        return compare(exports.from_mlflow(uri, experiment), metric)

    def to_dataframe(self) -> Any:
        """Returns the rows as a pandas DataFrame; pandas comes with ``batchhvd[notebook]``."""
        import pandas

        return pandas.DataFrame(list(self.rows)).set_index("job")

    def to_tensorboard(self, directory: str | os.PathLike[str]) -> list[Path]:
        """Writes all metrics as event files of TensorBoard, in a folder for each job, and returns the files.

        A file that an earlier call has written for a job is replaced. It needs ``batchhvd[tensorboard]``.

        Args:
            directory: what ``tensorboard --logdir`` is given; it is made if it is missing.

        Raises:
            SpecError: TensorBoard is not installed, or a file cannot be written.
        """
        from batchhvd.resources.values import exports

        return exports.to_tensorboard(self.jobs, Path(directory))

    def to_mlflow(self, uri: str, experiment: str) -> int:
        """Writes each job as a run of MLflow, and returns how many were written.

        Jobs that have ended and are there already are left out; others are written again. Needs ``batchhvd[mlflow]``.

        Args:
            uri: MLflow's tracking URI: a server, ``sqlite:///runs.db``, or the folder of a file store.
            experiment: the name of MLflow's experiment; it is made if it is missing.

        Raises:
            SpecError: MLflow is not installed, or refuses.
        """
        from batchhvd.resources.values import exports

        return exports.to_mlflow(self.jobs, uri, experiment)

    def _repr_html_(self) -> str:
        from batchhvd.views import curves, notebook

        return f"<div>{curves.compared(self.metric, self.curves)}{notebook.rows(self.rows)}</div>"


def compare(found: Sequence[ComparedJob], metric: str = "") -> Comparison:
    """Returns jobs side by side.

    Args:
        found: the jobs, and what each has reported.
        metric: the metric to compare by; "" for the first of val_accuracy, accuracy, val_loss and loss that there is.

    Raises:
        SpecError: no job has reported this metric.
    """
    known = dict.fromkeys(name for job in found for row in job.records for name in row if name not in _NO_METRICS)
    if metric and metric not in known:
        raise SpecError(f"no job has reported {metric!r}", remedy=f"take one of {', '.join(known) or 'none'}")
    chosen = metric or next((name for name in (*_PREFERRED, *known) if name in known), "")
    curves = {job.name: [(row["epoch"], row[chosen]) for row in job.records if chosen in row] for job in found}
    return Comparison(chosen, tuple(_row(job, chosen) for job in found), curves, tuple(found))


def _row(job: ComparedJob, metric: str) -> dict[str, object]:
    figures = [(row[metric], row["epoch"]) for row in job.records if metric in row]
    goal = goal_of(metric)
    best = max(figures, key=lambda figure: signed(figure[0], goal), default=None)
    rates = [row["images_per_second"] for row in job.records if "images_per_second" in row]
    return {
        **{"job": job.name, "state": job.state, "ranks": job.ranks, **job.point, "epochs": len(job.records)},
        **({metric: figures[-1][0], f"best {metric}": best[0], "at epoch": int(best[1])} if best else {}),
        "seconds": job.seconds,
        "images/s": round(sum(rates) / len(rates), 1) if rates else None,
        "files": job.files,
    }
