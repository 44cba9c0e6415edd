"""Several jobs side by side: what they tried, and what came of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from batchhvd.errors import SpecError
from batchhvd.resources.values.metrics import Metrics
from batchhvd.sweeps.stopping import goal_of, signed

if TYPE_CHECKING:
    from batchhvd.resources.job import Job

_PREFERRED = ("val_accuracy", "accuracy", "val_loss", "loss")
_NO_METRICS = ("epoch", "seconds", "images_per_second", "learning_rate", "writer", "rank")
_DIGITS = 8  # of the digest of a job's files


@frozen
class Comparison:
    """Jobs side by side; iterating yields a row for each.

    In a notebook it shows itself as the curves of all jobs above the table.

    Attributes:
        metric: the metric that the jobs are compared by, "" if none has reported any.
        rows: for each job its name, state, ranks, what it tried, epochs, the last and the best value of the metric with
            the epoch of the best, seconds, images per second, and a digest of its files.
        curves: (epoch, value) of the metric, by the job's name.
    """

    metric: str
    rows: tuple[Mapping[str, object], ...]
    curves: Mapping[str, Sequence[tuple[float, float]]] = field(repr=False)

    def __iter__(self) -> Iterator[Mapping[str, object]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def to_dataframe(self) -> Any:
        """Returns the rows as a pandas DataFrame; pandas comes with ``batchhvd[notebook]``."""
        import pandas

        return pandas.DataFrame(list(self.rows)).set_index("job")

    def _repr_html_(self) -> str:
        from batchhvd.views import curves, notebook

        return f"<div>{curves.compared(self.metric, self.curves)}{notebook.rows(self.rows)}</div>"


def compare(found: Sequence[tuple[Job, Metrics]], metric: str = "") -> Comparison:
    """Returns jobs side by side.

    Args:
        found: the jobs, read, and what each has reported.
        metric: the metric to compare by; "" for the first of val_accuracy, accuracy, val_loss and loss that there is.

    Raises:
        SpecError: no job has reported this metric.
    """
    known = dict.fromkeys(name for _, metrics in found for row in metrics for name in row if name not in _NO_METRICS)
    if metric and metric not in known:
        raise SpecError(f"no job has reported {metric!r}", remedy=f"take one of {', '.join(known) or 'none'}")
    chosen = metric or next((name for name in (*_PREFERRED, *known) if name in known), "")
    curves = {job.name: [(row["epoch"], row[chosen]) for row in metrics if chosen in row] for job, metrics in found}
    return Comparison(chosen, tuple(_row(job, metrics, chosen) for job, metrics in found), curves)


def _row(job: Job, metrics: Metrics, metric: str) -> dict[str, object]:
    spec = job.spec
    point = _point(spec.environment.get("BATCHHVD_POINT", ""))
    figures = [(row[metric], row["epoch"]) for row in metrics if metric in row]
    goal = goal_of(metric)
    best = max(figures, key=lambda figure: signed(figure[0], goal), default=None)
    rates = [row["images_per_second"] for row in metrics if "images_per_second" in row]
    took = (job.ended - job.started).total_seconds() if job.started and job.ended else None
    return {
        **{"job": job.name, "state": str(job.state), "ranks": spec.ranks, **point, "epochs": len(metrics)},
        **({metric: figures[-1][0], f"best {metric}": best[0], "at epoch": int(best[1])} if best else {}),
        "seconds": took,
        "images/s": round(sum(rates) / len(rates), 1) if rates else None,
        "files": _digest(spec.content),
    }


def _point(text: str) -> dict[str, object]:
    try:
        found = json.loads(text) if text else {}
    except ValueError:  # somebody else's variable
        return {}
    return dict(found) if isinstance(found, dict) else {}


def _digest(content: Mapping[str, str]) -> str:
    """Returns a digest of the files that were uploaded for a job, "" if none are known."""
    text = json.dumps(dict(content), sort_keys=True).encode()
    return hashlib.sha256(text).hexdigest()[:_DIGITS] if content else ""
