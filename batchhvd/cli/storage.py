"""``storage``: create, show, list, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from batchhvd.cli.frame.context import CliContext, scope, with_context
from batchhvd.cli.frame.printing import shown
from batchhvd.cli.frame.verb import common

if TYPE_CHECKING:
    from batchhvd import StorageAccount


@click.group()
def storage() -> None:
    """Storage accounts: file shares, containers of blobs and their keys."""


@storage.command("create")
@click.argument("name")
@scope("group")
@click.option("-l", "--location", help="its region (default: the group's)")
@click.option("--sku", default="Standard_LRS", show_default=True, help="its redundancy")
@shown
@with_context
def create(context: CliContext, name: str, group: str, location: str | None, sku: str) -> StorageAccount:
    """Creates the storage account NAME, or shows it if it exists."""
    return context.group(group).create_storage_account(name, location=location, sku=sku)


common(
    storage,
    ("group",),
    lambda context, group, name: context.storage(group, name),
    lambda context, group: context.group(group).storage_accounts(),
)
