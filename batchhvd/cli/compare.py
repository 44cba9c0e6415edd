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
@scope("group", "workspace", "experiment")
@formatted
@with_context
def compare(
    context: CliContext,
    names: tuple[str, ...],
    metric: str,
    group: str,
    workspace: str,
    experiment: str,
    form: Format,
) -> None:
    """Shows jobs side by side: what they tried, their metrics, their rate. Without names: all of the experiment."""
    found = context.experiment(group, workspace, experiment).compare(*names, metric=metric)
    form.show(list(found) if form.chosen else _with_curves(found))


def _with_curves(found: Comparison) -> list[dict[str, object]]:
    from batchhvd.views.curves import sparkline

    return [{**row, "curve": sparkline([value for _, value in found.curves[str(row["job"])]])} for row in found]
