"""What commands print: a table for people, or JSON with a JMESPath query for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Any

import click
from attrs import asdict, has

if TYPE_CHECKING:
    from batchhvd import Resource

FORMATS = ("table", "json")


def formatted(command: Callable[..., Any]) -> Callable[..., None]:
    """Gives a command ``--output`` and ``--query``, as ``output`` and ``expression``."""

    @click.option(
        "-o",
        "--output",
        type=click.Choice(FORMATS),
        envvar="BATCHHVD_OUTPUT",
        help="table (the default), or json for programs",
    )
    @click.option(
        "--query", metavar="JMESPATH", help="what of the JSON to print, such as nodeStateCounts.idleNodeCount"
    )
    @wraps(command)
    def run(*args: Any, query: str | None, **options: Any) -> None:
        # The query first: a mistake in it is said before anything is done.
        command(*args, expression=compiled(query) if query else None, **options)

    return run


def shown(command: Callable[..., Any]) -> Callable[..., None]:
    """Gives a command both options, and prints what it returns: resources, mappings, lists of them."""

    @formatted
    @wraps(command)
    def run(*args: Any, output: str | None, expression: Any, **options: Any) -> None:
        found = command(*args, **options)
        if found is not None:
            display(found, output, expression)

    return run


def compiled(query: str) -> Any:
    """Returns a JMESPath expression, ready to search with.

    Raises:
        click.BadParameter: it is none.
    """
    import jmespath

    try:
        return jmespath.compile(query)
    except jmespath.exceptions.JMESPathError as error:
        message = f"{query!r} is no JMESPath expression: {str(error).splitlines()[0]}"
        raise click.BadParameter(message, param_hint="--query") from error


def display(found: Any, output: str | None, expression: Any = None) -> None:
    """Prints what a command found.

    Args:
        found: a resource, a mapping, a text, or a sequence of them.
        output: ``"table"``, ``"json"``, or None: JSON for the result of a query, else a table.
        expression: a JMESPath expression, or None.
    """
    if isinstance(found, Iterable) and not isinstance(found, (str, Mapping, Sequence)):
        found = list(found)
    if output == "json" or expression is not None:
        document = plain(found)
        result = expression.search(document) if expression is not None else document
        if output == "table" and _tabular(result):
            table(result if isinstance(result, list) else [result])
        else:
            click.echo(json.dumps(result, indent=2, ensure_ascii=False, default=_plain_value))
        return
    _people(found)


def _people(found: Any) -> None:
    if isinstance(found, str) or (has(type(found)) and "__str__" in vars(type(found))):
        click.echo(str(found))  # what can say itself in words does: a verdict, a plan
    elif not isinstance(found, list):
        table([_facts(found)])
    elif found:
        items = [_facts(item) for item in found]
        said = {name for item in items for name, value in item.items() if value not in ("", None, False)}
        table([{name: value for name, value in item.items() if name in said} for item in items])
    else:
        click.secho("none", dim=True, err=True)


def plain(found: Any) -> Any:
    """Returns JSON values; a resource as the service shows it, its ``properties`` lifted to the top."""
    if isinstance(found, (list, tuple)):
        return [plain(item) for item in found]
    if isinstance(found, Mapping):
        return {name: plain(value) for name, value in found.items()}
    if hasattr(found, "document") and hasattr(found, "kind"):
        return _flat(found)
    if has(type(found)):
        return plain(
            {name.lstrip("_"): value for name, value in asdict(found, recurse=False).items() if name[0] != "_"}
        )
    return found


def _flat(resource: Resource) -> dict[str, Any]:
    document = dict(resource.document)
    properties = document.pop("properties", None) or {}
    return {"id": resource.id, "name": resource.name, **plain(document), **plain(properties)}


def _facts(item: Any) -> Mapping[str, Any]:
    if isinstance(item, Mapping):
        return item
    if hasattr(item, "_facts"):
        return {"name": item.name, **item._facts()}
    return dict(plain(item)) if has(type(item)) else {"value": item}


def _tabular(result: Any) -> bool:
    items = result if isinstance(result, list) else [result]
    return bool(items) and all(isinstance(item, Mapping) for item in items)


def table(items: Sequence[Mapping[str, Any]]) -> None:
    """Prints mappings as a table, a row each."""
    from batchhvd.views import terminal

    printed(terminal.rows([_readable(item) for item in items]))


def printed(what: Any) -> None:
    """Prints a table as wide as the terminal; where there is none, as wide as it needs."""
    from rich.console import Console

    console = Console(highlight=False)
    if console.is_terminal:
        console.print(what)
        return
    console.width = 1000  # a pipe has no width: what is cut off there would be lost
    with console.capture() as captured:
        console.print(what)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def _readable(item: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _text(value) for name, value in item.items()}


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value, ensure_ascii=False, default=_plain_value)
    return value


def _plain_value(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else str(value)
