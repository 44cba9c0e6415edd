"""What a user and a project set once: the service, its engine, and where runs go.

From weak to strong: ``batchhvd.toml`` in ``$XDG_CONFIG_HOME`` (``~/.config``), ``[tool.batchhvd]`` in the nearest
``pyproject.toml`` from the working directory up, environment variables. Arguments and options are stronger than all.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from batchhvd.errors import SpecError
from batchhvd.wire.facts.containers import CHOICES

_HERE = ("127.0.0.1", "localhost", "::1")
PREPARE = ("overlay", "host", "skip")
DEFAULTS: Mapping[str, object] = {
    "engine": "processes",
    "prepare": "overlay",
    "containers": "auto",
    "port": 0,
    "idle": 3600,
    "group": "batchhvd",
    "workspace": "runs",
    "cluster": "nodes",
    "share": "runs",
}
VARIABLES: Mapping[str, str] = {
    "root": "BATCHHVD_ROOT",
    "endpoint": "BATCHHVD_ENDPOINT",
    "subscription": "AZURE_SUBSCRIPTION_ID",
    "group": "BATCHHVD_GROUP",
    "workspace": "BATCHHVD_WORKSPACE",
    "experiment": "BATCHHVD_EXPERIMENT",
    "cluster": "BATCHHVD_CLUSTER",
    "containers": "BATCHHVD_CONTAINERS",
    "account": "AZURE_BATCHAI_STORAGE_ACCOUNT",
}


def _text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0


def _port(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 65535


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_text, value))


def _options(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(one, (str, int, float)) for one in value.values())


# What each value must be.
_KEYS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    **dict.fromkeys(("root", "endpoint", "subscription", "engine"), (_text, "a text")),
    **dict.fromkeys(("group", "workspace", "experiment", "cluster", "account", "share"), (_text, "a name")),
    "engine_options": (_options, "a table of texts and numbers"),
    "prepare": (lambda value: value in PREPARE, " or ".join(map(repr, PREPARE))),
    "containers": (lambda value: value in CHOICES, " or ".join(map(repr, CHOICES))),
    "allow_directory": (_texts, "a list of paths"),
    "port": (_port, "a port, 0 for a free one"),
    "idle": (_number, "a number of seconds, 0 for never"),
}


class Setting(NamedTuple):
    """A value that somebody has set.

    Attributes:
        name: what is set.
        value: its value.
        source: where: a file with its line, or ``$`` and a variable; "" for a default.
    """

    name: str
    value: object
    source: str = ""


class Configuration(NamedTuple):
    """The settings that count here.

    Attributes:
        settings: by name; what nobody has set is not in it.
    """

    settings: Mapping[str, Setting]

    def given(self, name: str) -> object:
        """Returns what somebody has set, or None."""
        found = self.settings.get(name)
        return None if found is None else found.value

    def text(self, name: str) -> str:
        """Returns a value as text: the default if nobody has set it, "" if there is none."""
        found = self.given(name)
        return str(DEFAULTS.get(name, "") if found is None else found)

    def all(self) -> list[Setting]:
        """Returns every setting that there is, with its default if nobody has set it, or None."""
        return [self.settings.get(name) or Setting(name, DEFAULTS.get(name)) for name in _KEYS]


def read(here: Path | None = None) -> Configuration:
    """Returns the settings for a working directory.

    Args:
        here: the directory; None for the present one.

    Raises:
        SpecError: a file cannot be read, has an unknown key or a wrong value; the message names file and line.
    """
    levels = [*_files(here or Path.cwd()), _environment()]
    found: dict[str, Setting] = {}
    for level in levels:
        for one, other in (("root", "endpoint"), ("endpoint", "root")):
            if one in level and other not in level:
                found.pop(other, None)  # the place that counts more names another service
        found |= level
    return Configuration(found)


def user_file() -> Path:
    """Returns the path of the user's file, which need not exist."""
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base, "batchhvd.toml").expanduser()


def _files(here: Path) -> Iterator[dict[str, Setting]]:
    own = user_file()
    if own.is_file():
        yield _checked(own, own.read_bytes(), _parsed(own), shared=False)
    project = next((folder / "pyproject.toml" for folder in (here, *here.parents) if _is_project(folder)), None)
    if project:
        tool = _parsed(project).get("tool")
        table = tool.get("batchhvd") if isinstance(tool, dict) else None
        if isinstance(table, dict) and table and _is_trusted(project):
            yield _checked(project, project.read_bytes(), table, shared=True)


def _is_project(folder: Path) -> bool:
    try:
        return (folder / "pyproject.toml").is_file()
    except OSError:  # a folder above that nobody may look into
        return False


def _is_trusted(path: Path) -> bool:
    """Says whether a file is the user's or root's: others could name a service of theirs in it."""
    if path.stat().st_uid in (os.geteuid(), 0):
        return True
    warnings.warn(f"[tool.batchhvd] in {path} is not heeded: the file is another user's", stacklevel=5)
    return False


def _parsed(path: Path) -> dict[str, object]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        return dict(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"{path} is not TOML: {error}", remedy="mend the file, or remove it") from error
    except OSError as error:
        raise SpecError(f"{path} cannot be read: {error.strerror}", remedy="make it readable, or remove it") from error


def _checked(path: Path, text: bytes, table: Mapping[str, object], *, shared: bool) -> dict[str, Setting]:
    """Returns the settings of a file.

    Args:
        path: the file.
        text: its content.
        table: the settings in it.
        shared: whether it is a project's, which others may have written.
    """
    if "root" in table and "endpoint" in table:
        raise _wrong(path, text, "endpoint", "root and endpoint are both set", "they name two services; keep one")
    found = {}
    for name, value in table.items():
        if name not in _KEYS:
            import difflib  # only a mistake needs it

            near = difflib.get_close_matches(name, _KEYS, 1)
            remedy = f"did you mean {near[0]!r}?" if near else f"known are: {', '.join(_KEYS)}"
            raise _wrong(path, text, name, f"{name!r} is not a setting", remedy)
        fits, what = _KEYS[name]
        if not fits(value):
            raise _wrong(path, text, name, f"{name!r} is {value!r}", f"it must be {what}")
        if shared and name == "endpoint" and _host(value) not in _HERE:
            remedy = f"your token would be sent to it; name it in {user_file()}, or with $BATCHHVD_ENDPOINT"
            raise _wrong(path, text, name, "a project's file cannot name an endpoint on another machine", remedy)
        found[name] = Setting(name, _placed(name, value, path.parent), f"{path}:{_line(text, name)}")
    return found


def _host(url: object) -> str | None:
    from batchhvd.wire.facts.hosts import read_url

    return read_url(str(url)).hostname


def _placed(name: str, value: object, folder: Path) -> object:
    """Returns a value with its paths made absolute: in a file they are relative to its folder."""
    if name == "root":
        return str(folder / Path(str(value)).expanduser())
    if name == "allow_directory" and isinstance(value, Sequence):
        return [str(folder / Path(str(one)).expanduser()) for one in value]
    return value


def _wrong(path: Path, text: bytes, name: str, problem: str, remedy: str) -> SpecError:
    return SpecError(f"{path}:{_line(text, name)}: {problem}", remedy=remedy)


def _line(text: bytes, name: str) -> int:
    """Returns the line on which a key is set, as well as that can be seen without a parser of our own."""
    table = text.find(b"[tool.batchhvd")
    found = re.compile(rb"^[ \t]*(\[[\w.]*\b)?[\"']?%b\b" % re.escape(name.encode()), re.M).search(text, max(table, 0))
    return text.count(b"\n", 0, found.start() if found else max(table, 0)) + 1


def _environment() -> dict[str, Setting]:
    named = {name: (variable, os.environ.get(variable)) for name, variable in VARIABLES.items()}
    return {name: Setting(name, value, f"${variable}") for name, (variable, value) in named.items() if value}
