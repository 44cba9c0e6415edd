"""``compare`` and ``scale``: several jobs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchhvd.cli.frame.context import CliContext, scope, with_context
from batchhvd.cli.frame.printing import Format, formatted
from batchhvd.cli.job import described

if TYPE_CHECKING:
    from batchhvd.resources.values.comparison import Comparison


@click.command()
@click.argument("names", nargs=-1, metavar="[JOB]...")
@click.option("--metric", default="", help="the metric (default: val_accuracy, or what there is)")
@click.option("--to-tensorboard", "board", type=click.Path(file_okay=False), help="also write event files there")
@click.option("--to-mlflow", "to", metavar="URI", help="also write each job as a run of MLflow: sqlite:///runs.db")
@click.option("--from-mlflow", "source", metavar="URI", help="put MLflow's runs beside the jobs")
@click.option("--mlflow-experiment", "tracked", help="MLflow's experiment (default: the name of ours)")
@scope("group", "workspace", "experiment")
@formatted
@with_context
def compare(
    context: CliContext,
    names: tuple[str, ...],
    metric: str,
    board: str | None,
    to: str | None,
    source: str | None,
    tracked: str | None,
    group: str,
    workspace: str,
    experiment: str,
    form: Format,
) -> None:
    """Shows jobs side by side: what they tried, their metrics, their rate. Without names: all of the experiment."""
    found = context.experiment(group, workspace, experiment).compare(*names, metric="" if source else metric)
    if board:
        click.secho(f"{len(found.to_tensorboard(board))} event files in {board}", dim=True, err=True)
    if to:
        click.secho(f"{found.to_mlflow(to, tracked or experiment)} new runs in {to}", dim=True, err=True)
    if source:
        found = _with_runs(found, source, tracked or experiment, metric)
    form.show(list(found) if form.chosen else _with_curves(found))


def _with_runs(found: Comparison, uri: str, experiment: str, metric: str) -> Comparison:
    from batchhvd.resources.values import comparison

    runs = comparison.Comparison.from_mlflow(uri, experiment)
    return comparison.compare((*found.jobs, *runs.jobs), metric)


def _with_curves(found: Comparison) -> list[dict[str, object]]:
    from batchhvd.views.curves import sparkline

    return [{**row, "curve": sparkline([value for _, value in found.curves[str(row["job"])]])} for row in found]


@click.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--ranks", default="1,2,4", show_default=True, help="numbers of ranks, one on each node")
@click.option("--seconds", type=float, default=20.0, show_default=True, help="the most that one measurement takes")
@click.option("--precision", type=float, default=0.03, show_default=True, help="of a step's time")
@click.option("-n", "--name", help="the jobs' name, before -scale-N (default: the file's)")
@scope("group", "workspace", "experiment")
@described
@formatted
@with_context
def scale(
    context: CliContext,
    file: str,
    ranks: str,
    seconds: float,
    precision: float,
    name: str | None,
    group: str,
    workspace: str,
    experiment: str,
    cluster: str,
    account: str | None,
    mounts: tuple[str, ...],
    form: Format,
) -> None:
    """Says how many ranks pay for the training that FILE, a job.json, describes.

    Runs it for some seconds on each number of ranks, one after another. The script trains with model.fit after
    hvd.init(); without a service, use python -m batchhvd.trainer scale.
    """
    from batchhvd.cli.frame.spec_file import job_spec

    try:
        sizes = [int(part) for part in ranks.split(",")]
    except ValueError:
        raise click.BadParameter(f"{ranks!r} is not a list of numbers such as 1,2,4", param_hint="--ranks") from None
    spec = job_spec(context, file, group, account, mounts)
    on = context.workspace(group, workspace).cluster(cluster)
    found = context.experiment(group, workspace, experiment).scale(
        spec,
        cluster=on,
        ranks=sizes,
        name=name or Path(file).stem,
        seconds=seconds,
        precision=precision,
        report=context.report(),
    )
    if form.chosen:
        form.show(found.to_document())
    else:
        click.echo(str(found))
