"""``storage``: create, show, list, delete; ``container``: those, files, upload, download, rm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from batchhvd.cli.frame.context import CliContext, scope, told, with_context
from batchhvd.cli.frame.meter import transfer_bar
from batchhvd.cli.frame.names import completed
from batchhvd.cli.frame.printing import shown
from batchhvd.cli.frame.verb import Verbs, common
from batchhvd.errors import NotFoundError

if TYPE_CHECKING:
    from batchhvd import Container, FileEntry, StorageAccount

_IN_ACCOUNT = ("group", "account")


@click.group(cls=Verbs)
def storage() -> None:
    """Storage accounts: what file shares and containers of blobs lie in."""


@storage.command("create")
@click.argument("name")
@scope("group")
@click.option("-l", "--location", help="its region (default: the group's)")
@click.option("--sku", default="Standard_LRS", show_default=True, help="its redundancy")
@click.option("--kind", default="StorageV2", show_default=True, help="FileStorage: premium file shares")
@shown
@with_context
def create(context: CliContext, name: str, group: str, location: str | None, sku: str, kind: str) -> StorageAccount:
    """Creates the storage account NAME, or shows it if it exists."""
    return context.group(group).create_storage_account(name, location=location, sku=sku, kind=kind)


common(
    storage,
    ("group",),
    lambda context, group, name: context.storage(group, name),
    lambda context, group: context.group(group).storage_accounts(),
)


@click.group(cls=Verbs)
def container() -> None:
    """Containers of blobs: files for both people and jobs."""


@container.command("create")
@click.argument("name")
@scope(*_IN_ACCOUNT)
@shown
@with_context
def create_container(context: CliContext, name: str, group: str, account: str) -> Container:
    """Creates the container NAME, or shows it if it exists."""
    return context.storage(group, account).create_container(name)


@container.command("files")
@click.argument("name", shell_complete=completed("container"))
@click.argument("prefix", default="")
@scope(*_IN_ACCOUNT)
@shown
@with_context
def list_blobs(context: CliContext, name: str, prefix: str, group: str, account: str) -> list[FileEntry]:
    """Lists the blobs in container NAME whose names begin with PREFIX."""
    return list(context.storage(group, account).container(name).files(prefix))


@container.command("upload", short_help="Copies files of this machine to container NAME.")
@click.argument("name", shell_complete=completed("container"))
@click.argument("source")
@scope(*_IN_ACCOUNT)
@click.option("--to", default="", help="the directory in the container, or the blob's new name")
@with_context
def upload_blobs(context: CliContext, name: str, source: str, to: str, group: str, account: str) -> None:
    """Copies a file, a folder or a pattern to container NAME; files that have not changed are skipped.

    Files found by a pattern keep their folders. Links to folders, and what is not a file, are left out and named.
    """
    found = context.storage(group, account).container(name)
    with told(), transfer_bar(context, source) as progress:
        done = found.upload(source, to=to, progress=progress)
    click.echo(str(done), err=True)


@container.command("download", short_help="Copies blobs of container NAME to this machine.")
@click.argument("name", shell_complete=completed("container"))
@click.argument("path")
@scope(*_IN_ACCOUNT)
@click.option("--to", default=".", show_default=True, help="the local folder, or the file's new path")
@with_context
def download_blobs(context: CliContext, name: str, path: str, to: str, group: str, account: str) -> None:
    """Copies a blob, a directory or a pattern from container NAME; files that have not changed are skipped."""
    found = context.storage(group, account).container(name)
    with transfer_bar(context, path) as progress:
        done = found.download(path, to=to, progress=progress)
    click.echo(str(done), err=True)


@container.command("rm", short_help="Removes blobs from container NAME.")
@click.argument("name", shell_complete=completed("container"))
@click.argument("path")
@scope(*_IN_ACCOUNT)
@click.option("-r", "--recursive", is_flag=True, help="remove a directory, with everything in it")
@with_context
def remove_blobs(context: CliContext, name: str, path: str, group: str, account: str, recursive: bool) -> None:
    """Removes a blob, or with -r all blobs of a directory, from container NAME."""
    found = context.storage(group, account).container(name)
    below = f"{path.rstrip('/')}/"
    if found.file_exists(path):
        found.delete_file(path)
    elif not (names := [entry.path for entry in found.files(below)]):
        raise NotFoundError(f"container {name!r} has no {path!r}").told(
            f"container {name} has no {path}; `batchhvd container files {name}` lists what there is"
        )
    elif not recursive:
        raise click.UsageError(f"{path} is a directory; -r removes it with everything in it")
    else:
        for each in names:
            found.delete_file(each)
    click.echo(f"removed {path}", err=True)


common(
    container,
    _IN_ACCOUNT,
    lambda context, group, account, name: context.storage(group, account).container(name),
    lambda context, group, account: context.storage(group, account).containers(),
)
