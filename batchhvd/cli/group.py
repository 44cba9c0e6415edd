"""``group``: create, show, list, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from batchhvd.cli.frame.context import CliContext, with_context
from batchhvd.cli.frame.printing import shown
from batchhvd.cli.frame.verb import Verbs, common, tags_option

if TYPE_CHECKING:
    from batchhvd import ResourceGroup


@click.group(cls=Verbs)
def group() -> None:
    """Resource groups: resources that are deleted together."""


@group.command("create")
@click.argument("name")
@click.option("-l", "--location", default="eastus", show_default=True, help="its region")
@tags_option
@shown
@with_context
def create(context: CliContext, name: str, location: str, tags: dict[str, str]) -> ResourceGroup:
    """Creates the group NAME, or shows it if it exists."""
    return context.session().create_group(name, location=location, tags=tags)


common(group, (), lambda context, name: context.group(name), lambda context: context.session().groups())
