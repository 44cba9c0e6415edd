"""``compare``: several jobs side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from batchhvd.cli.frame.context import CliContext, scope, with_context
from batchhvd.cli.frame.printing import Format, formatted

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
