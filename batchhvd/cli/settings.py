"""``config``: what the user's and the project's files and the environment set, and the options' defaults by it."""

from __future__ import annotations

from collections.abc import Mapping

import click

from batchhvd.cli.frame.printing import shown
from batchhvd.wire import configuration
from batchhvd.wire.configuration import Configuration

# Options of other names than the settings that they take.
_NAMES = {"engine_options": "engine_options", "directories": "allow_directory"}
_OTHERS = frozenset({"emulate", "config", "export", "completion"})  # their options mean something else


@click.command("config")
@shown
def config() -> list[dict[str, object]]:
    """Lists the settings, with the place that each comes from.

    From weak to strong: batchhvd.toml in ~/.config, [tool.batchhvd] in the project's pyproject.toml, environment
    variables. The options of a command are stronger than all of them.
    """
    rows = []
    for one in configuration.read().all():
        source = one.source or ("default" if one.value is not None else "")
        rows.append({"name": one.name, "value": one.value, "source": source})
    return rows


def defaults(commands: click.Group) -> dict[str, object]:
    """Returns the defaults of all options by the settings, in the form of Click's ``default_map``.

    Raises:
        SpecError: a file of settings is wrong.
    """
    found = configuration.read()
    return _of(commands, found) if found.settings else {}


def _of(command: click.Command, found: Configuration) -> dict[str, object]:
    known = {one.name: _value(found, _NAMES.get(one.name, one.name)) for one in _options(command)}
    values = {name: value for name, value in known.items() if value is not None}
    inner: Mapping[str, click.Command] = command.commands if isinstance(command, click.Group) else {}
    groups = {name: _of(sub, found) for name, sub in inner.items() if name not in _OTHERS}
    return {**values, **groups}


def _options(command: click.Command) -> list[click.Option]:
    return [one for one in command.params if isinstance(one, click.Option) and one.name]


def _value(found: Configuration, name: str) -> object:
    """Returns a setting as an option's default."""
    value = found.given(name)
    if isinstance(value, dict):
        return tuple(f"{key}={one}" for key, one in value.items())
    return tuple(value) if isinstance(value, list) else value
