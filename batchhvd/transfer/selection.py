"""Which files a transfer selects (a file, a folder or a pattern), and the name of each at the other end."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from batchhvd.errors import SpecError

_PATTERN = re.compile(r"[*?\[]")


def local_files(source: str | os.PathLike[str]) -> list[tuple[Path, str]]:
    """Returns the local files that a path selects, each with its name below the target.

    Args:
        source: a file (its own name), a folder (its name and the paths below it), or a pattern (``**`` for any
            depth).

    Raises:
        SpecError: no file matches.
    """
    text = os.fspath(source)
    found = [text] if os.path.lexists(text) else sorted(glob.glob(text, recursive=True))
    if not found:
        raise SpecError(f"there is no file {text!r} here", remedy=f"give a path from {os.getcwd()}, or an absolute one")
    return [pair for path in found for pair in _below(Path(path))]


def _below(path: Path) -> Iterator[tuple[Path, str]]:
    if not path.is_dir():
        yield path, path.name
        return
    name = path.resolve().name
    for folder, folders, files in os.walk(path):
        folders.sort()
        for file in sorted(files):
            inside = Path(folder, file)
            yield inside, f"{name}/{inside.relative_to(path).as_posix()}"


def target_in_share(files: Sequence[tuple[Path, str]], to: str) -> list[tuple[Path, str]]:
    """Returns the local files with their paths in the share.

    Args:
        files: local files, each with its name below the target.
        to: a folder; or the file's new path, if its last part has the suffix of the only file (``train.py``,
            ``a/other.py``).
    """
    to = "/".join(part for part in to.split("/") if part not in ("", "."))
    if len(files) == 1 and _is_file_name(to, files[0][1]):
        return [(files[0][0], to)]
    return [(path, f"{to}/{name}".lstrip("/")) for path, name in files]


def _is_file_name(to: str, name: str) -> bool:
    ending = PurePosixPath(name).suffix
    return "/" not in name and ending != "" and PurePosixPath(to).suffix == ending


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
        return any(_match(parts[skipped:], patterns[1:]) for skipped in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], patterns[0]) and _match(parts[1:], patterns[1:])


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
