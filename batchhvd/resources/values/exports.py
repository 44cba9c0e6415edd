"""Comparisons for other viewers: event files of TensorBoard, runs of MLflow; and runs of MLflow read as jobs."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchhvd.errors import SpecError
from batchhvd.resources.values.compared_job import ComparedJob

if TYPE_CHECKING:
    from mlflow.entities import Metric, Run
    from mlflow.tracking import MlflowClient

_JOB = "batchhvd.job"  # the tag with a job's id
_STATES = {"succeeded": "FINISHED", "failed": "FAILED", "given up": "KILLED"}
_RANK_PARAMETER = "ranks"
_AT_A_TIME = 1000  # metrics of one request, MLflow's limit
_STRANGE = re.compile(r"[^\w\-. /:]")


def to_tensorboard(jobs: Sequence[ComparedJob], directory: Path) -> list[Path]:
    """Writes an event file for each job; see ``Comparison.to_tensorboard``."""
    return [_events(job, directory / job.name) for job in jobs]


def _events(job: ComparedJob, folder: Path) -> Path:
    """Writes a job's event file; TensorBoard's own writer of files would import TensorFlow wherever there is one."""
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter
    except ImportError as error:
        raise SpecError("TensorBoard is not installed", remedy="pip install 'batchhvd[tensorboard]'") from error
    path = folder / "events.out.tfevents.0.batchhvd"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as stream:
            writer = RecordWriter(stream)
            writer.write(Event(wall_time=0.0, file_version="brain.Event:2").SerializeToString())
            for moment, summary, step in _summaries(job):
                writer.write(Event(wall_time=moment, step=step, summary=summary).SerializeToString())
    except OSError as error:
        raise SpecError(f"{folder} cannot be written: {error}", remedy="give another folder") from error
    return path


def _summaries(job: ComparedJob) -> Iterator[tuple[float, Any, int]]:
    """Yields time, metrics and epoch of each record; a time is the job's start and the seconds of its epochs."""
    from tensorboard.compat.proto.summary_pb2 import Summary

    for moment, record in _timed(job):
        values = [Summary.Value(tag=name, simple_value=one) for name, one in record.items() if name != "epoch"]
        yield moment, Summary(value=values), int(record["epoch"])


def _timed(job: ComparedJob) -> Iterator[tuple[float, dict[str, float]]]:
    moment = job.began.timestamp() if job.began else 0.0
    for record in job.records:
        moment += record.get("seconds", 0.0)
        yield moment, dict(record)


def to_mlflow(jobs: Sequence[ComparedJob], uri: str, experiment: str) -> int:
    """Writes a run for each job; see ``Comparison.to_mlflow``."""
    client = _client(uri)
    with _refusing(uri):
        found = client.get_experiment_by_name(experiment)
        place = found.experiment_id if found else client.create_experiment(experiment)
        return sum(_run(client, place, job) for job in jobs)


def _run(client: MlflowClient, place: str, job: ComparedJob) -> bool:
    """Writes a job, unless it has ended and is there; says whether it did."""
    known = client.search_runs([place], f"tags.`{_JOB}` = '{job.id}'") if job.id else []
    if any(run.info.status in _STATES.values() for run in known):
        return False
    for run in known:
        client.delete_run(run.info.run_id)
    began = _milliseconds(job.began)
    tags = {_JOB: job.id, "batchhvd.files": job.files}
    run_id = client.create_run(place, began, {name: one for name, one in tags.items() if one}, job.name).info.run_id
    metrics = list(_metrics(job))
    for at in range(0, len(metrics), _AT_A_TIME):
        client.log_batch(run_id, metrics=metrics[at : at + _AT_A_TIME])
    point = {**job.point, **({_RANK_PARAMETER: job.ranks} if job.ranks else {})}
    for name, value in point.items():
        client.log_param(run_id, _plain(name), value if isinstance(value, str) else repr(value))
    if job.state in _STATES:
        client.set_terminated(run_id, _STATES[job.state], _milliseconds(job.ended))
    return True


def _metrics(job: ComparedJob) -> Iterator[Metric]:
    from mlflow.entities import Metric

    for moment, record in _timed(job):
        for name, value in record.items():
            if name != "epoch":
                yield Metric(_plain(name), value, int(1000 * moment), int(record["epoch"]))


def _plain(name: str) -> str:
    plain = _STRANGE.sub("_", name)
    if plain != name:
        warnings.warn(f"MLflow takes no name such as {name!r}; it is {plain!r} there", UserWarning, stacklevel=2)
    return plain


def _milliseconds(moment: datetime | None) -> int | None:
    return None if moment is None else int(1000 * moment.timestamp())


def from_mlflow(uri: str, experiment: str) -> list[ComparedJob]:
    """Returns the runs of an experiment of MLflow as jobs, the oldest first; a metric's step is the epoch.

    Raises:
        SpecError: MLflow is not installed, or there is no such experiment.
    """
    client = _client(uri)
    with _refusing(uri):
        found = client.get_experiment_by_name(experiment)
        if found is None:
            raise SpecError(f"MLflow has no experiment {experiment!r} at {uri}", remedy="name another one")
        runs = list(_pages(client, found.experiment_id))
        names = Counter(run.info.run_name for run in runs)
        return [_job(client, run, names[run.info.run_name] == 1) for run in runs]


def _pages(client: MlflowClient, place: str) -> Iterator[Run]:
    token = None
    while True:
        page = client.search_runs([place], order_by=["attributes.start_time ASC"], page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def _job(client: MlflowClient, run: Run, is_alone: bool) -> ComparedJob:
    """Returns a run as a job; if others have its name, the beginning of its id stands behind it."""
    name = run.info.run_name if is_alone else f"{run.info.run_name} {run.info.run_id[:8]}"
    rows: dict[int, dict[str, float]] = {}
    for metric in run.data.metrics:
        for one in client.get_metric_history(run.info.run_id, metric):
            rows.setdefault(one.step, {"epoch": one.step})[metric] = one.value
    point = {key: _value(text) for key, text in run.data.params.items()}
    ranks = point.pop(_RANK_PARAMETER, None)
    states = {word: state for state, word in _STATES.items()}
    return ComparedJob(
        name,
        states.get(run.info.status, run.info.status.lower()),
        point,
        [rows[step] for step in sorted(rows)],
        ranks=ranks if isinstance(ranks, int) else None,
        began=_moment(run.info.start_time),
        ended=_moment(run.info.end_time),
        files=run.data.tags.get("batchhvd.files", ""),
        id=run.data.tags.get(_JOB, ""),
    )


def _moment(milliseconds: int | None) -> datetime | None:
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc) if milliseconds else None


def _value(text: str) -> object:
    """Returns the number that a text is written as, else the text."""
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if repr(number) == text:
            return number
    return text == "True" if text in ("True", "False") else text


def _client(uri: str) -> MlflowClient:
    try:
        from mlflow.tracking import MlflowClient
    except ImportError as error:
        raise SpecError("MLflow is not installed", remedy="pip install 'batchhvd[mlflow]'") from error
    with _refusing(uri):
        return MlflowClient(uri)


@contextmanager
def _refusing(uri: str) -> Iterator[None]:
    """Tells MLflow's own errors as ours."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        first = str(error).partition("\n")[0]
        raise SpecError(f"MLflow at {uri} refuses: {first}", remedy="look at the tracking URI") from error
