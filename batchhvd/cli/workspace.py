"""``workspace``: create, show, list, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from batchhvd.cli.context import Settings, pass_settings, scope
from batchhvd.cli.printing import shown
from batchhvd.cli.verb import common, tags_option

if TYPE_CHECKING:
    from batchhvd import Workspace


@click.group()
def workspace() -> None:
    """Workspaces: clusters and experiments in one place."""


@workspace.command("create")
@click.argument("name")
@scope("group")
@click.option("-l", "--location", help="its region (default: the group's)")
@tags_option
@shown
@pass_settings
def create(settings: Settings, name: str, group: str, location: str | None, tags: dict[str, str]) -> Workspace:
    """Creates a workspace, or shows the one that is there."""
    return settings.group(group).create_workspace(name, location=location, tags=tags)


common(
    workspace,
    ("group",),
    lambda settings, group, name: settings.workspace(group, name),
    lambda settings, group: settings.group(group).workspaces(),
)
