"""Finding things inside a share without ever leaving it.

A job owns its share and may put any link in it. So a path is walked one name at a time, from one open directory to the
next, and the system never follows a link for us: when the walk meets one, its target is read and walked by the same
rules. A link that stays in the share works as it does for the job; one that leads out is refused as if it led nowhere.
A link that is swapped in while the walk goes on meets ``O_NOFOLLOW``.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from attrs import frozen

from batchhvd.errors import ServiceError
from batchhvd.service.storage.protocol.refusal import refusal

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a named pipe that a job made must not wait for its other end.
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MOST_LINKS = 40  # as many as Linux follows in one path


@frozen
class Spot:
    """A place for a directory entry.

    Attributes:
        fd: the open directory, valid inside the ``with`` block only.
        name: the entry's name in it; ``"."`` for the directory itself.
        names: the entry's path from the share's root, links resolved.
    """

    fd: int
    name: str
    names: tuple[str, ...]

    @property
    def path(self) -> str:
        """The path as one string."""
        return "/".join(self.names)

    def parent_id(self) -> int:
        """Returns the id of the directory that holds the entry, 0 for the root's."""
        if self.name != ".":
            return os.fstat(self.fd).st_ino
        return os.stat("..", dir_fd=self.fd).st_ino if self.names else 0

    def stat(self) -> os.stat_result:
        """Returns what the system knows of the entry; a link is not followed."""
        return os.stat(self.name, dir_fd=self.fd, follow_symlinks=False)


@contextmanager
def spot(share: Path, names: Sequence[str], *, follow: bool = False) -> Iterator[Spot]:
    """Opens the directory that holds an entry, which itself need not exist.

    Args:
        share: the share's directory.
        names: the entry's path, at least one name.
        follow: if the entry is a link, take what it points at.

    Raises:
        ServiceError: ShareNotFound, ParentNotFound, or ResourceNotFound for a link that leads out of the share.
    """
    with _Walk(share) as walk:
        try:
            name = walk.approach(names, follow)
        except (FileNotFoundError, NotADirectoryError):
            raise refusal("ParentNotFound") from None
        yield Spot(walk.fd, name, (*walk.names, name) if name != "." else tuple(walk.names))


@contextmanager
def directory(share: Path, names: Sequence[str]) -> Iterator[Spot]:
    """Opens a directory.

    Raises:
        OSError: it is missing or not a directory.
        ServiceError: its parent or the share is missing.
    """
    with _Walk(share) as walk:
        if names:
            try:
                walk.descend(names[:-1])
            except (FileNotFoundError, NotADirectoryError):
                raise refusal("ParentNotFound") from None
        walk.descend(names[-1:])
        yield Spot(walk.fd, ".", tuple(walk.names))


@contextmanager
def file(share: Path, names: Sequence[str], flags: int = os.O_RDONLY) -> Iterator[tuple[int, Spot]]:
    """Opens a file and closes it at the end; refuses what is not a plain file."""
    with spot(share, names, follow=True) as place:
        fd = open_file(place, flags)
        try:
            yield fd, place
        finally:
            os.close(fd)


def open_file(place: Spot, flags: int = os.O_RDONLY) -> int:
    """Returns an open file for an entry; the caller closes it. Refuses what is not a plain file."""
    fd = os.open(place.name, flags | _FILE, dir_fd=place.fd)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise refusal("ResourceNotFound", "What has this name is not a file.")


def look(share: Path, parent: Spot, name: str) -> tuple[os.stat_result | None, bool]:
    """Returns what a listing shows for an entry, and whether it is a link.

    That is a file, a directory, or for a link what it leads to; None for the rest.
    """
    is_link = False
    try:
        about = os.stat(name, dir_fd=parent.fd, follow_symlinks=False)
        is_link = stat.S_ISLNK(about.st_mode)
        if is_link:
            with spot(share, (*parent.names, name), follow=True) as place:
                about = place.stat()
    except (OSError, ServiceError):  # deleted since the directory was read, or a link that leads nowhere or out
        return None, is_link
    return (about if stat.S_ISREG(about.st_mode) or stat.S_ISDIR(about.st_mode) else None), is_link


class _Walk:
    """A position in a share: an open directory and the plain names that lead to it."""

    def __init__(self, share: Path) -> None:
        self._share = share
        self._links = 0
        self.names: list[str] = []
        self.fd = -1

    def __enter__(self) -> _Walk:
        self.fd = self._root()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self.fd)

    def descend(self, names: Sequence[str]) -> None:
        """Walks down to a directory."""
        pending = list(reversed(names))
        while pending:
            name = pending.pop()
            if name == "..":
                self._up()
            elif not self._step(name):
                pending += reversed(self._target(name))

    def approach(self, names: Sequence[str], follow: bool) -> str:
        """Walks down to the directory that holds an entry and returns the entry's name there, ``"."`` for the root."""
        pending = list(names)
        while pending:
            self.descend(pending[:-1])
            name = pending[-1]
            if name == "..":
                self._up()
                break
            if not follow or not self._is_link(name):
                return name
            pending = self._target(name)
        return "."

    def _step(self, name: str) -> bool:
        """Enters a directory; False if the name is a link instead."""
        try:
            fd = os.open(name, _DIRECTORY, dir_fd=self.fd)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP) and self._is_link(name):
                return False
            raise
        os.close(self.fd)
        self.fd = fd
        self.names.append(name)
        return True

    def _is_link(self, name: str) -> bool:
        try:
            return stat.S_ISLNK(os.stat(name, dir_fd=self.fd, follow_symlinks=False).st_mode)
        except FileNotFoundError:
            return False

    def _target(self, name: str) -> list[str]:
        """Returns the names to continue with in place of a link, from the directory that the walk is then in."""
        self._links += 1
        if self._links > _MOST_LINKS:
            raise refusal("ResourceNotFound", "Its links go in a circle.")
        try:
            target = os.readlink(name, dir_fd=self.fd)
        except OSError:
            raise refusal("ResourceNotFound", "A link went away while it was followed.") from None
        if target.startswith("/"):
            target = self._inside(target)
            self._restart([])
        return [part for part in target.split("/") if part not in ("", ".")]

    def _inside(self, target: str) -> str:
        """Returns an absolute link's target relative to the share; it may lead through the job's own mount root.

        One outside of the share begins with ``..`` then, and is refused at the first.
        """
        return os.path.relpath(os.path.realpath(target), os.path.realpath(self._share))

    def _up(self) -> None:
        if not self.names:
            raise refusal("ResourceNotFound", "A link leads out of the share.")
        self._restart(self.names[:-1])

    def _restart(self, names: list[str]) -> None:
        root = self._root()
        os.close(self.fd)
        self.names, self.fd = [], root
        for name in names:
            if not self._step(name):
                raise refusal("ResourceNotFound", "A directory became a link.")

    def _root(self) -> int:
        try:
            return os.open(self._share, _DIRECTORY)
        except (FileNotFoundError, NotADirectoryError):
            # A snapshot's directory is named like its time.
            raise refusal("ShareSnapshotNotFound" if self._share.name[-1:] == "Z" else "ShareNotFound") from None
