"""The variables of a process in a container, as a file of shell: no command line and no engine sees their values."""

from __future__ import annotations

import json
import re
import shlex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = re.compile(r"[A-Za-z_]\w*", flags=re.ASCII)


def exports(variables: Mapping[str, str]) -> bytes:
    """Returns lines of shell that set variables; ``unset_names`` tells which ones no shell can set."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items() if _NAME.fullmatch(name)]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")


def unset_names(variables: Mapping[str, str]) -> list[str]:
    """Returns the names that a shell cannot set, such as those with a dot or a hyphen."""
    return [name for name in variables if not _NAME.fullmatch(name)]


def of_image(printed: str) -> tuple[str, dict[str, str]]:
    """Returns an image's id and its variables, from what ``ContainerEngine.inspect`` prints."""
    id, _, text = printed.strip().partition(" ")
    entries = json.loads(text) if text else None
    pairs = (entry.partition("=") for entry in entries or ())
    return id, {name: value for name, _, value in pairs}
