"""``share``: create, show, list, delete, mkdir, files, upload, download, rm."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from batchhvd.cli.frame.context import CliContext, scope, with_context
from batchhvd.cli.frame.meter import transfer_bar
from batchhvd.cli.frame.names import completed
from batchhvd.cli.frame.printing import shown
from batchhvd.cli.frame.verb import Verbs, common
from batchhvd.errors import NotFoundError

if TYPE_CHECKING:
    from batchhvd import FileEntry, FileShare

_HERE = ("group", "account")
_SUBSCRIPTION = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # what Batch AI's paths of outputs begin with


@click.group(cls=Verbs)
def share() -> None:
    """File shares: files for both people and jobs."""


@share.command("create")
@click.argument("name")
@scope(*_HERE)
@shown
@with_context
def create(context: CliContext, name: str, group: str, account: str) -> FileShare:
    """Creates the share NAME, or shows it if it exists."""
    return context.storage(group, account).create_share(name)


@share.command("mkdir")
@click.argument("name", shell_complete=completed("share"))
@click.argument("path")
@scope(*_HERE)
@with_context
def mkdir(context: CliContext, name: str, path: str, group: str, account: str) -> None:
    """Creates a directory in share NAME, and its parents."""
    context.storage(group, account).share(name).create_directory(path)


@share.command("files")
@click.argument("name", shell_complete=completed("share"))
@click.argument("folder", default="")
@scope(*_HERE)
@click.option("-r", "--recursive", is_flag=True, help="include the folders below")
@shown
@with_context
def files(context: CliContext, name: str, folder: str, group: str, account: str, recursive: bool) -> list[FileEntry]:
    """Lists files and folders in share NAME."""
    found = list(context.storage(group, account).share(name).files(folder, recursive=recursive))
    outputs = [entry.path for entry in found if entry.is_directory and _SUBSCRIPTION.fullmatch(entry.path)]
    for place in outputs:
        text = f"{place} has what jobs wrote whose prefix is the share itself: GROUP/workspaces/…/jobs/NAME below it"
        click.secho(f"{text}. `batchhvd job files NAME` lists it", dim=True, err=True)
    return found


@share.command("upload", short_help="Copies files of this machine to share NAME.")
@click.argument("name", shell_complete=completed("share"))
@click.argument("source")
@scope(*_HERE)
@click.option("--to", default="", help="the folder in the share, or the file's new path")
@with_context
def upload(context: CliContext, name: str, source: str, to: str, group: str, account: str) -> None:
    """Copies a file, a folder or a pattern to share NAME; files that have not changed are skipped.

    Files found by a pattern keep their folders. Links to folders, and what is not a file, are left out and named.
    """
    from batchhvd.cli.frame.context import told

    found = context.storage(group, account).share(name)
    with told(), transfer_bar(context, source) as progress:
        done = found.upload(source, to=to, progress=progress)
    click.echo(str(done), err=True)


@share.command("download", short_help="Copies files of share NAME to this machine.")
@click.argument("name", shell_complete=completed("share"))
@click.argument("path")
@scope(*_HERE)
@click.option("--to", default=".", show_default=True, help="the local folder, or the file's new path")
@with_context
def download(context: CliContext, name: str, path: str, to: str, group: str, account: str) -> None:
    """Copies a file, a folder or a pattern from share NAME; files that have not changed are skipped."""
    found = context.storage(group, account).share(name)
    with transfer_bar(context, path) as progress:
        done = found.download(path, to=to, progress=progress)
    click.echo(str(done), err=True)


@share.command("rm")
@click.argument("name", shell_complete=completed("share"))
@click.argument("path")
@scope(*_HERE)
@click.option("-r", "--recursive", is_flag=True, help="remove a folder, with everything in it")
@with_context
def rm(context: CliContext, name: str, path: str, group: str, account: str, recursive: bool) -> None:
    """Removes a file, or with -r a folder, from share NAME."""
    found = context.storage(group, account).share(name)
    if found.directory_exists(path):
        if not recursive:
            raise click.UsageError(f"{path} is a folder; -r removes it with everything in it")
        found.delete_directory(path)
    elif found.file_exists(path):
        found.delete_file(path)
    else:
        raise NotFoundError(f"share {name!r} has no {path!r}").told(
            f"share {name} has no {path}; `batchhvd share files {name}` lists what there is"
        )
    click.echo(f"removed {path}", err=True)


common(
    share,
    _HERE,
    lambda context, group, account, name: context.storage(group, account).share(name),
    lambda context, group, account: context.storage(group, account).shares(),
)
