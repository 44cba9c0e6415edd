"""What patterns fit, and the name of each file of a transfer at the other end."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from batchhvd.errors import SpecError

_PATTERN = re.compile(r"[*?\[]")
_NOT_TEXT = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff\ufffe\uffff]")  # what no URL or XML answer can carry


def targets(files: Mapping[str, Path], to: str, *, case_matters: bool = True) -> list[tuple[Path, str]]:
    """Returns local files with their paths in the share.

    Args:
        files: each local file by its name below the target.
        to: the folder in the share.
        case_matters: whether the share tells names apart that differ in their case only.

    Raises:
        SpecError: two files would have one path there, or a path that no share can have.
    """
    found: dict[str, tuple[Path, str]] = {}
    for name, path in files.items():
        target = inside(f"{to}/{name}")
        other = found.setdefault(target if case_matters else target.casefold(), (path, target))
        if other[0] is not path:
            problem = f"{other[0]} and {path} would both become {target!r} in the share"
            raise SpecError(problem, remedy="rename one of them, or upload them to different folders")
    return list(found.values())


def inside(path: str) -> str:
    """Returns a path in a share without slashes at its ends.

    Raises:
        SpecError: no share can have it.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise SpecError(f"{path!r} has a ..", remedy="give the path from the share's root")
    if not is_text(path):
        raise SpecError(f"{path!r} is not UTF-8", remedy="rename it: names in a share are text without control signs")
    return "/".join(parts)


def is_text(text: str) -> bool:
    """Says whether a text can be sent: no control characters, and no bytes that are not UTF-8."""
    return not any(
        ord(sign) < 32 or 0xD800 <= ord(sign) < 0xE000 or ord(sign) in (0x7F, 0xFFFE, 0xFFFF) for sign in text
    )


def names_a_file(to: str, name: str) -> bool:
    """Says whether the target of one file is its new path rather than a folder.

    It is if it ends with the file's suffix, or with any if the file has none (``model`` to ``model.h5``).
    """
    ending, own = PurePosixPath(to).suffix, PurePosixPath(name).suffix
    return not to.endswith("/") and ending != "" and ending == (own or ending)


def is_pattern(path: str) -> bool:
    """Says whether a path has wildcards."""
    return _PATTERN.search(path) is not None


def fixed_folder(pattern: str) -> str:
    """Returns the part of a pattern that comes before the first wildcard, as a folder."""
    parts = pattern.split("/")
    first = next(index for index, part in enumerate(parts) if is_pattern(part))
    return "/".join(parts[:first])


def matches(path: str, pattern: str) -> bool:
    """Says whether a path fits a pattern: ``*`` stays in its folder, ``**`` is any number of folders."""
    return _match(path.split("/"), pattern.split("/"))


def _match(parts: Sequence[str], patterns: Sequence[str]) -> bool:
    if not patterns:
        return not parts
    if patterns[0] == "**":
        deepest = next((index for index, part in enumerate(parts) if part.startswith(".")), len(parts))
        return any(_match(parts[skipped:], patterns[1:]) for skipped in range(deepest + 1))
    return bool(parts) and fits(parts[0], patterns[0]) and _match(parts[1:], patterns[1:])


def fits(name: str, pattern: str) -> bool:
    """Says whether a name fits one part of a pattern; as in a shell, a wildcard does not match a dot at its start."""
    return fnmatchcase(name, pattern) and (not name.startswith(".") or pattern.startswith("."))


def target_here(to: str | os.PathLike[str], name: str) -> Path:
    """Returns the local path for a file's name below the target folder.

    Raises:
        SpecError: the name leads out of the folder, which only a malicious service would send.
    """
    parts = name.split("/")
    if any(part in ("", ".", "..") or os.sep in part or "\0" in part for part in parts):
        raise SpecError(
            f"the share has a file {name!r}, which leads out of {os.fspath(to)!r}", remedy="rename it there"
        )
    return Path(to, *parts)
