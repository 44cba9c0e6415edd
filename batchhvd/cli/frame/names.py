"""Names for the shell's completion: of clusters, jobs and shares, from a file.

A shell waits for its completion, so no service is asked: every command notes the names that it has met. The file
holds names only, by kind.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import click

from batchhvd.wire.roots import resolved_root

_MOST = 500  # names of a kind in one place, the latest


def cache(context: click.Context) -> Path:
    """Returns the file that holds the names of one service: in a local service's own folder, else in the cache."""
    given = context.find_root().params
    if endpoint := given.get("endpoint"):
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(base, "batchhvd", f"names-{re.sub('[^A-Za-z0-9]+', '-', endpoint)}.json")
    return Path(resolved_root(given.get("root")), "names.json")


def completed(kind: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Returns what completes the names of a kind, such as ``"job"``, the latest first."""

    def complete(context: click.Context, _parameter: click.Parameter, start: str) -> list[str]:
        return [name for name in reversed(_read(cache(context)).get(kind, [])) if name.startswith(start)]

    return complete


def note(kind: str, names: Iterable[str]) -> None:
    """Adds names of a kind that the present command has met."""
    _change(kind, lambda before: [*(name for name in before if name not in set(names)), *names][-_MOST:])


def forget(kind: str, name: str) -> None:
    """Removes a name that is gone."""
    _change(kind, lambda before: [one for one in before if one != name])


def _change(kind: str, change: Callable[[list[str]], list[str]]) -> None:
    """Changes the names of a kind; what cannot be written is left out, since completion is only a help."""
    path = cache(click.get_current_context())
    found = _read(path)
    before = found.get(kind, [])
    if (now := change(before)) != before:
        with suppress(OSError):
            _write(path, {**found, kind: now})


def _read(path: Path) -> dict[str, list[str]]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {kind: [str(name) for name in names] for kind, names in found.items() if isinstance(names, list)}


def _write(path: Path, found: dict[str, list[str]]) -> None:
    import tempfile  # only what changes the file needs it, and completion does not

    path.parent.mkdir(parents=True, exist_ok=True)
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=".names-")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(found, file)
    Path(beside).replace(path)
