"""``workspace`` and ``experiment``: create, show, list, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from batchhvd.cli.frame.context import CliContext, scope, with_context
from batchhvd.cli.frame.printing import shown
from batchhvd.cli.frame.verb import Verbs, common, tags_option

if TYPE_CHECKING:
    from batchhvd import Experiment, Workspace


@click.group(cls=Verbs)
def workspace() -> None:
    """Workspaces: clusters and experiments of one project."""


@workspace.command("create")
@click.argument("name")
@scope("group")
@click.option("-l", "--location", help="its region (default: the group's)")
@tags_option
@shown
@with_context
def create(context: CliContext, name: str, group: str, location: str | None, tags: dict[str, str]) -> Workspace:
    """Creates the workspace NAME, or shows it if it exists."""
    return context.group(group).create_workspace(name, location=location, tags=tags)


common(
    workspace,
    ("group",),
    lambda context, group, name: context.workspace(group, name),
    lambda context, group: context.group(group).workspaces(),
)


@click.group(cls=Verbs)
def experiment() -> None:
    """Experiments: jobs that belong together."""


@experiment.command("create")
@click.argument("name")
@scope("group", "workspace")
@shown
@with_context
def create_experiment(context: CliContext, name: str, group: str, workspace: str) -> Experiment:
    """Creates the experiment NAME, or shows it if it exists."""
    return context.workspace(group, workspace).create_experiment(name)


common(
    experiment,
    ("group", "workspace"),
    lambda context, group, workspace, name: context.experiment(group, workspace, name),
    lambda context, group, workspace: context.workspace(group, workspace).experiments(),
)
