"""``group``: create, show, list, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from batchhvd.cli.context import Settings, pass_settings
from batchhvd.cli.printing import shown
from batchhvd.cli.verb import common, tags_option

if TYPE_CHECKING:
    from batchhvd import ResourceGroup


@click.group()
def group() -> None:
    """Resource groups: what is deleted together."""


@group.command("create")
@click.argument("name")
@click.option("-l", "--location", default="eastus", show_default=True, help="its region")
@tags_option
@shown
@pass_settings
def create(settings: Settings, name: str, location: str, tags: dict[str, str]) -> ResourceGroup:
    """Creates a group, or shows the one that is there."""
    return settings.session().create_group(name, location=location, tags=tags)


common(group, (), lambda settings, name: settings.group(name), lambda settings: settings.session().groups())
