"""``config``: what the user's and the project's files and the environment set, and the options' defaults by it."""

from __future__ import annotations

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
    return _Defaults(commands, found) if found.settings else {}


class _Defaults(dict[str, object]):
    """The defaults of a command's options, and of the commands in it when Click asks for them: most are not loaded."""

    def __init__(self, command: click.Command, found: Configuration) -> None:
        options = [one for one in command.params if isinstance(one, click.Option) and one.name]
        known = {str(one.name): _value(found, _NAMES.get(str(one.name), str(one.name))) for one in options}
        super().__init__({name: value for name, value in known.items() if value is not None})
        self._command, self._found = command, found

    def get(self, name: str, default: object = None) -> object:  # Click asks by this alone
        """Returns the default of an option, or the defaults of a command."""
        if name in self or not isinstance(self._command, click.Group) or name in _OTHERS:
            return super().get(name, default)
        inner = self._command.get_command(click.Context(self._command), name)
        return default if inner is None else _Defaults(inner, self._found)


def _value(found: Configuration, name: str) -> object:
    """Returns a setting as an option's default."""
    value = found.given(name)
    if isinstance(value, dict):
        return tuple(f"{key}={one}" for key, one in value.items())
    return tuple(value) if isinstance(value, list) else value
