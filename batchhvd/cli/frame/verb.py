"""What the verbs of several nouns share: ``show``, ``list`` and ``delete``, and the option ``--tag``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

from batchhvd.cli.frame.context import CliContext, scope, with_context
from batchhvd.cli.frame.names import completed, forget
from batchhvd.cli.frame.printing import Format, formatted, shown

if TYPE_CHECKING:
    from batchhvd import Resource

Handle = Callable[..., "Resource"]
_PREVIEW = 12  # resources that are listed before a deletion; the rest is counted


class Verbs(click.Group):
    """A group of verbs whose list has whole sentences, however narrow the terminal is."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the list of verbs; click would cut what they do after a line."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.get_short_help_str(1000)) for name, verb in found if verb])


def common(
    verbs: click.Group, scopes: tuple[str, ...], handle: Handle, listing: Callable[..., Iterable[Resource]]
) -> None:
    """Adds ``show``, ``list`` and ``delete`` to a group of verbs.

    Args:
        verbs: the group of verbs.
        scopes: the options that say where the resource is.
        handle: returns the handle for the context, the scopes' values and a name.
        listing: returns the resources for the context and the scopes' values.
    """
    noun = "storage account" if verbs.name == "storage" else str(verbs.name)
    of = f" of a {scopes[-1]}" if scopes else ""
    of = of.replace("a account", "a storage account")
    named = click.argument("name", shell_complete=completed(noun))

    @verbs.command("show", help=f"Shows the {noun} NAME.")
    @named
    @scope(*scopes)
    @formatted
    @with_context
    def show(context: CliContext, name: str, form: Format, **where: str) -> None:
        form.show(_described(handle(context, name=name, **where).refresh()), detailed=True)

    @verbs.command("list", help=f"Lists the {noun}s{of}.")
    @scope(*scopes)
    @shown
    @with_context
    def list_all(context: CliContext, **where: str) -> list[Resource]:
        return [_described(found) for found in listing(context, **where)]

    @verbs.command("delete", help=f"Deletes the {noun} NAME, with everything in it.")
    @named
    @scope(*scopes)
    @click.option("-y", "--yes", is_flag=True, help="do not ask for confirmation")
    @with_context
    def delete(context: CliContext, name: str, yes: bool, **where: str) -> None:
        remove(handle(context, name=name, **where), yes)


def _described(found: Resource) -> Resource:
    """Looks whether a job is being prepared, which its document does not say."""
    from batchhvd import Job

    if isinstance(found, Job) and found.state == "running":
        found.describe()
    return found


def remove(resource: Resource, yes: bool) -> None:
    """Deletes a resource after listing what is deleted with it."""
    if not resource.exists():
        click.echo(f"{resource.kind} {resource.name} does not exist; nothing to delete", err=True)
        return
    if not yes:
        contents = resource.contents()
        for inner in contents[:_PREVIEW]:
            click.echo(f"  {inner.kind} {inner.name}", err=True)
        if len(contents) > _PREVIEW:
            click.echo(f"  and {len(contents) - _PREVIEW} more", err=True)
        what = f"{resource.kind} {resource.name}" + (f" and the {len(contents)} above" if contents else "")
        click.confirm(f"Delete {what}?", abort=True, err=True)
    resource.delete()
    forget(resource.kind, resource.name)
    click.echo(f"deleted {resource.kind} {resource.name}", err=True)


def _tags(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    wrong = [name for name, equals, _ in pairs if not equals or not name]
    if wrong:
        raise click.BadParameter(f"{wrong[0]!r} is not of the form NAME=VALUE")
    return {name: value for name, _, value in pairs}


tags_option = click.option(
    "--tag", "tags", multiple=True, metavar="NAME=VALUE", callback=_tags, help="a tag (repeatable)"
)
