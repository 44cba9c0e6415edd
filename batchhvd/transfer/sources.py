"""Which local files an upload takes: a file, a folder or a pattern, and what is left out and named instead.

One rule for links, which the service has for a download too: a link to a file counts as that file; a link to a folder
is not followed. So no walk goes in circles.
"""

from __future__ import annotations

import os
import stat
import warnings
from collections.abc import Iterator
from pathlib import Path

from attrs import define, field

from batchhvd.errors import SpecError
from batchhvd.transfer.checksum import READABLE
from batchhvd.transfer.selection import fits, fixed_folder, is_pattern

_NAMED = 5  # of what is left out, in one warning


@define
class Sources:
    """What an upload takes.

    Attributes:
        files: each local file by its name below the target.
        folders: the names of folders that hold no file and no folder.
        skipped: the reason for each path that is left out.
    """

    files: dict[str, Path] = field(factory=dict)
    folders: dict[str, None] = field(factory=dict)
    skipped: dict[str, str] = field(factory=dict)

    def warn(self) -> None:
        """Names what is left out, as a warning of Python."""
        if self.skipped:
            warnings.warn(f"not uploaded: {self.reasons()}", UserWarning, stacklevel=3)

    def reasons(self) -> str:
        """Returns what is left out with the reasons, or "" if there is nothing."""
        more = [f"and {len(self.skipped) - _NAMED} more"] if len(self.skipped) > _NAMED else []
        named = [f"{path} ({reason})" for path, reason in list(self.skipped.items())[:_NAMED]]
        return "; ".join([*named, *more])

    def add(self, path: Path, name: str) -> None:
        """Takes a file, a folder with everything in it, or notes why it cannot."""
        problem = _problem(path)
        if problem:
            self.skipped[str(path)] = problem
        elif path.is_dir():
            self.walk(path, name)
        else:
            self.files[name] = path

    def walk(self, top: Path, name: str) -> None:
        """Takes everything below a folder."""
        for folder, folders, files in os.walk(top, onerror=_unreadable):
            below = "/".join(part for part in (name, *Path(folder).relative_to(top).parts) if part)
            links = [one for one in folders if os.path.islink(os.path.join(folder, one))]
            folders[:] = sorted(set(folders) - set(links))
            kept = len(self.files)
            for one in sorted([*links, *files]):
                self.add(Path(folder, one), f"{below}/{one}".lstrip("/"))
            if below and not folders and len(self.files) == kept:
                self.folders[below] = None

    def match(self, top: Path, pattern: list[str]) -> None:
        """Takes what fits a pattern below a folder, each under its path from there.

        A folder that fits is taken whole, unless the pattern goes to any depth: it then selects files.
        """
        whole = "**" not in pattern
        waiting = [(top, "", pattern)]
        while waiting:
            folder, name, (first, *rest) = waiting.pop()
            anywhere, last = first == "**", not rest
            if anywhere:
                waiting.append((folder, name, rest or ["*"]))
            for entry in _entries(folder):
                path, below = Path(entry.path), f"{name}/{entry.name}".lstrip("/")
                real = entry.is_dir(follow_symlinks=False)
                if not fits(entry.name, "*" if anywhere else first):
                    continue
                if real and not last or real and anywhere:
                    waiting.append((path, below, [first, *rest] if anywhere else rest))
                elif not real and (last and not anywhere or os.path.isdir(path)) or real and whole:
                    self.add(path, below)


def select(source: str | os.PathLike[str]) -> Sources:
    """Returns what a path selects here.

    Args:
        source: a file (its own name), a folder (its name and the paths below it), or a pattern (the paths from its
            fixed part on; ``**`` for any depth, and a wildcard does not match a dot at the start of a name).

    Raises:
        SpecError: no file matches, or something cannot be read.
    """
    text = os.fspath(source)
    found, path = Sources(), Path(text)
    if os.path.isdir(text):
        found.walk(path, path.resolve().name)
    elif os.path.lexists(text):
        found.add(path, path.name)
    elif is_pattern(text) and "\0" not in text:
        top = fixed_folder(text)
        found.match(Path(top or "."), _checked(text[len(top) :].split("/"), text))
    if not found.files and not found.folders:
        reason = f" to upload, only {found.reasons()}" if found.skipped else ""
        remedy = f"give a path from {os.getcwd()}, or an absolute one"
        raise SpecError(f"there is no file {text!r} here{reason}", remedy=remedy)
    return found


def _checked(parts: list[str], text: str) -> list[str]:
    if ".." in parts:
        raise SpecError(f"{text!r} has a .. after its first wildcard", remedy="give the .. before any wildcard")
    return [part for part in parts if part not in ("", ".")]


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            yield from sorted(found, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        _unreadable(error)


def _unreadable(error: OSError) -> None:
    raise SpecError(f"{error.filename} cannot be read: {error.strerror}", remedy=READABLE)


def _problem(path: Path) -> str:
    """Returns why a file is left out, "" if it is not."""
    try:
        kind = path.stat().st_mode
    except OSError as error:  # a circle of links has a reason of its own
        return "a link that leads nowhere" if path.is_symlink() else f"cannot be read: {error.strerror}"
    if stat.S_ISDIR(kind):
        return "a link to a folder; upload that folder itself" if path.is_symlink() else ""
    if stat.S_ISREG(kind):
        if not os.access(path, os.R_OK):
            raise SpecError(f"{path} cannot be read: Permission denied", remedy=READABLE)
        return ""
    return {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}.get(stat.S_IFMT(kind), "a device")
