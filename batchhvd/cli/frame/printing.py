"""What commands print: a table for people, or JSON with a JMESPath query for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import click

from batchhvd.cli.frame.names import note

if TYPE_CHECKING:
    from rich.console import RenderableType

FORMATS = ("table", "json")

Row = Mapping[str, object]


class Query(Protocol):
    """A JMESPath expression that was parsed."""

    def search(self, value: object) -> object:
        """Returns what the expression finds in a JSON value."""


@runtime_checkable
class _Described(Protocol):
    """A resource, as far as its JSON goes."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def document(self) -> Row: ...


@runtime_checkable
class _Summarized(Protocol):
    """A resource, as far as its row in a table goes."""

    @property
    def name(self) -> str: ...
    def _facts(self) -> Row: ...


@runtime_checkable
class _Detailed(Protocol):
    """A resource of which more can be shown than a row."""

    @property
    def name(self) -> str: ...
    def _where(self) -> Row: ...
    def _details(self) -> Row: ...


class Format(NamedTuple):
    """How a command was asked to print.

    Attributes:
        output: ``"table"``, ``"json"``, or None for the default.
        query: a JMESPath expression, or None.
    """

    output: str | None = None
    query: Query | None = None

    @property
    def chosen(self) -> bool:
        """Whether the command line says how to print."""
        return bool(self.output) or self.query is not None

    def show(self, found: object, *, detailed: bool = False) -> None:
        """Prints what a command found; for people, all of one resource if it is to be detailed."""
        _noted(found if isinstance(found, list) else [found])
        if detailed and not self.chosen and isinstance(found, _Detailed):
            details(found)
            return
        display(found, self.output, self.query)


def formatted(command: Callable[..., object]) -> Callable[..., None]:
    """Gives a command ``--output`` and ``--query``, together as the argument ``form``."""

    @click.option(
        "-o",
        "--output",
        type=click.Choice(FORMATS),
        envvar="BATCHHVD_OUTPUT",
        help="table (the default), or json for programs",
    )
    @click.option(
        "--query", metavar="JMESPATH", help="the part of the JSON to print, such as name, or [].name of a list"
    )
    @wraps(command)
    def run(*args: object, output: str | None, query: str | None, **options: object) -> None:
        # The query is parsed first, so that a mistake in it is reported before anything is done.
        command(*args, form=Format(output, compiled(query) if query else None), **options)

    return run


def shown(command: Callable[..., object]) -> Callable[..., None]:
    """Gives a command both options, and prints what it returns: resources, mappings, lists of them."""

    @formatted
    @wraps(command)
    def run(*args: object, form: Format, **options: object) -> None:
        found = command(*args, **options)
        if found is not None:
            form.show(found)

    return run


def compiled(query: str) -> Query:
    """Returns a JMESPath expression, ready to search with.

    Raises:
        click.BadParameter: the text is not a JMESPath expression.
    """
    import jmespath

    try:
        expression: Query = jmespath.compile(query)
    except jmespath.exceptions.JMESPathError as error:
        message = f"{query!r} is not a JMESPath expression: {str(error).splitlines()[0]}"
        raise click.BadParameter(message, param_hint="--query") from error
    return expression


def display(found: object, output: str | None, query: Query | None = None) -> None:
    """Prints what a command found.

    Args:
        found: a resource, a mapping, a text, or a sequence of them.
        output: ``"table"``, ``"json"``, or None: JSON for the result of a query, else a table.
        query: a JMESPath expression, or None.
    """
    if isinstance(found, Iterable) and not isinstance(found, (str, Mapping, Sequence)):
        found = list(found)
    if output != "json" and query is None:
        _for_people(found)
        return
    result = query.search(plain(found)) if query is not None else plain(found)
    rows = _rows(result) if output == "table" else []
    if rows:
        table(rows)
    else:
        click.echo(json.dumps(result, indent=2, ensure_ascii=False, default=_plain_value))


def _for_people(found: object) -> None:
    if isinstance(found, str) or (_has_fields(found) and "__str__" in vars(type(found))):
        click.echo(str(found))  # verdicts and plans have words of their own
    elif not isinstance(found, list):
        table([_facts(found)])
    elif found:
        table(_without_empty_columns([{**_facts(item), **_where(item)} for item in found]), whole=False)
    else:
        click.secho("none", dim=True, err=True)


def _without_empty_columns(rows: Sequence[Row]) -> list[Row]:
    filled = {name for row in rows for name, value in row.items() if value not in ("", None, False)}
    return [{name: value for name, value in row.items() if name in filled} for row in rows]


def plain(found: object) -> object:
    """Returns JSON values; a resource as the service shows it, its ``properties`` lifted to the top."""
    if isinstance(found, (list, tuple)):
        return [plain(item) for item in found]
    if isinstance(found, Mapping):
        return {name: plain(value) for name, value in found.items()}
    if isinstance(found, _Described):
        return _flat(found)
    return _fields(found) if _has_fields(found) else found


def _flat(resource: _Described) -> dict[str, object]:
    top = {name: plain(value) for name, value in resource.document.items() if name != "properties"}
    properties = plain(resource.document.get("properties"))
    lifted = properties if isinstance(properties, dict) else {}
    return {"id": resource.id, "name": resource.name, **top, **lifted}


def _fields(value: object) -> dict[str, object]:
    names = [field.name for field in getattr(type(value), "__attrs_attrs__", ())]
    return {name: plain(getattr(value, name)) for name in names if not name.startswith("_")}


def _has_fields(value: object) -> bool:
    """Says whether a value's class is made by attrs, which the shell's completion does not wait for."""
    return hasattr(type(value), "__attrs_attrs__")


def _facts(item: object) -> Row:
    if isinstance(item, Mapping):
        return item
    if isinstance(item, _Summarized):
        return {"name": item.name, **item._facts()}
    return _fields(item) if _has_fields(item) else {"value": item}


def _noted(found: Sequence[object]) -> None:
    """Keeps the names of resources for the shell's completion."""
    met: dict[str, list[str]] = {}
    for item in found:
        if isinstance(item, _Described):
            met.setdefault(item.kind, []).append(item.name)
    for kind, names in met.items():
        note(kind, names)


def _where(item: object) -> Row:
    return item._where() if isinstance(item, _Detailed) else {}


def _rows(result: object) -> list[Row]:
    """Returns the rows of a result that is a table; none if it is anything else."""
    items = result if isinstance(result, list) else [result]
    rows = [item for item in items if isinstance(item, Mapping)]
    return rows if len(rows) == len(items) else []


def table(rows: Sequence[Row], *, whole: bool = True) -> None:
    """Prints mappings as a table, one row each.

    Args:
        rows: the mappings.
        whole: False leaves out the last columns in a narrow terminal, and names them on stderr.
    """
    from rich.console import Console

    from batchhvd.views import terminal

    readable = [{name: _readable(value) for name, value in row.items()} for row in rows]
    console, names = Console(), terminal.columns(readable)
    shown = names if whole or not console.is_terminal else terminal.fitting(readable, console.width)
    printed(terminal.rows(readable, shown))
    if left := names[len(shown) :]:
        click.secho(f"too narrow for: {', '.join(left)} (show NAME has all)", dim=True, err=True)


def details(resource: _Detailed) -> None:
    """Prints one resource, a line for each fact."""
    from batchhvd.views import terminal

    found = {"name": resource.name, **resource._details()}
    printed(terminal.facts({name: _readable(value) for name, value in found.items() if value not in ("", None)}))


def printed(what: RenderableType) -> None:
    """Prints a table as wide as the terminal; without a terminal, as wide as it needs."""
    from rich.console import Console

    console = Console(highlight=False)
    if console.is_terminal:
        console.print(what)
        return
    console.width = 1000  # a pipe has no width: whatever is cut off there would be lost
    with console.capture() as captured:
        console.print(what)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def _readable(value: object) -> object:
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value, ensure_ascii=False, default=_plain_value)
    return value


def _plain_value(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
