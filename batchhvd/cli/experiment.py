"""``experiment``: create, show, list, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from batchhvd.cli.context import Settings, pass_settings, scope
from batchhvd.cli.printing import shown
from batchhvd.cli.verb import common

if TYPE_CHECKING:
    from batchhvd import Experiment


@click.group()
def experiment() -> None:
    """Experiments: jobs that are looked at together."""


@experiment.command("create")
@click.argument("name")
@scope("group", "workspace")
@shown
@pass_settings
def create(settings: Settings, name: str, group: str, workspace: str) -> Experiment:
    """Creates an experiment, or shows the one that is there."""
    return settings.workspace(group, workspace).create_experiment(name)


common(
    experiment,
    ("group", "workspace"),
    lambda settings, group, workspace, name: settings.experiment(group, workspace, name),
    lambda settings, group, workspace: settings.workspace(group, workspace).experiments(),
)
