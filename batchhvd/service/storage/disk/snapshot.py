"""Snapshots of a share: its files as they were, beside the share.

Jobs and clients write into a share's files in place. So a snapshot never shares a file with its share: a hard link
would change with it. Each file is cloned if the file system can do that (Btrfs, XFS, bcachefs: nothing is copied until
one side is written). Elsewhere a file is copied once, and later snapshots share that copy, which nobody writes, by hard
links for as long as the share's file stays the same.

A file is the same if inode, size and both times are, and if it had been at rest when the copy was made: then any later
write, also one through a memory map, gives it another time of change.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import stat
import time
from contextlib import suppress
from pathlib import Path

from attrs import define, field, frozen

from batchhvd.service.storage.disk import content, tag
from batchhvd.service.storage.disk.sidecar import Facts, Rows, same_inode, stored

_CLONE = 0x40049409  # FICLONE: both files share their blocks until one of them is written
_TRIES = 3  # copies of a file that is written while it is copied
_MARGIN = 100_000_000  # nanoseconds; the system's clock for files ticks a few hundred times a second
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


@frozen
class Before:
    """The snapshot before, whose copies are shared.

    Attributes:
        folder: its directory, or None if there is none.
        rows: what is noted of it.
    """

    folder: Path | None = None
    rows: Rows = field(factory=dict)

    def copy_of(self, path: str, about: os.stat_result) -> Path | None:
        """Returns the copy of a file that is the same still, or None."""
        noted = self.rows.get(stored(path))
        frozen = noted[1].get("frozen") if noted else None
        if self.folder is None or not frozen or not frozen["settled"] or frozen["origin"] != tag.origin(about):
            return None
        return self.folder / path


@define
class Taken:
    """A snapshot that is being taken, and how.

    Attributes:
        share: the share's directory.
        into: the directory of the snapshot.
        known: what is noted of the share.
        before: the snapshot before.
        rest: nanoseconds since 1970; what was written before is on the disk.
        rows: what to note of each entry: path, inode, facts.
        cloned: how many files share their blocks with the share's.
        linked: how many are the same as in the snapshot before.
        copied: how many were copied.
        unsteady: files that were written whenever they were copied.
        unreadable: files and directories that the service may not read; they are left out, or empty.
    """

    share: Path
    into: Path
    known: Rows
    before: Before
    rest: int = 0
    rows: list[tuple[str, int, Facts]] = field(factory=list)
    cloned: int = 0
    linked: int = 0
    copied: int = 0
    unsteady: list[str] = field(factory=list)
    unreadable: list[str] = field(factory=list)

    def fill(self) -> None:
        """Fills the snapshot with the share's files as they are now."""
        self.rest = _flush(self.share)
        tops = []
        for top, folders, names, fd in os.fwalk(self.share, onerror=self._missed):
            parent = os.path.relpath(top, self.share)
            tops.append(parent)
            for name in (*folders, *names):
                with suppress(FileNotFoundError):  # a job has deleted it meanwhile
                    self._entry(name if parent == "." else f"{parent}/{name}", name, fd)
        for parent in reversed(tops):  # what is made in a directory changes its times
            with suppress(FileNotFoundError):
                _keep_times(os.stat(self.share / parent), self.into / parent)

    def _missed(self, error: OSError) -> None:
        """Notes a directory that could not be opened, unless a job has deleted it meanwhile."""
        if not isinstance(error, FileNotFoundError):
            self.unreadable.append(f"{error.filename}/")

    def _entry(self, path: str, name: str, fd: int) -> None:
        about = os.stat(name, dir_fd=fd, follow_symlinks=False)
        place = self.into / path
        if stat.S_ISDIR(about.st_mode):
            place.mkdir()
        elif stat.S_ISLNK(about.st_mode):
            place.symlink_to(self._target(os.readlink(name, dir_fd=fd), path))
        elif stat.S_ISREG(about.st_mode):
            try:
                about = self._file(path, name, fd, about)
            except PermissionError:
                self.unreadable.append(path)
                return
        else:
            return
        self._note(path, place, about)

    def _file(self, path: str, name: str, fd: int, about: os.stat_result) -> os.stat_result:
        copy = self.before.copy_of(path, about)
        if copy is not None:
            with suppress(OSError):  # it has too many links: a copy of its own, then
                os.link(copy, self.into / path)
                self.linked += 1
                return about
        source = os.open(name, _READ, dir_fd=fd)
        try:
            return self._copied(path, source)
        finally:
            os.close(source)

    def _copied(self, path: str, source: int) -> os.stat_result:
        for _ in range(_TRIES):
            about = os.fstat(source)
            target = os.open(self.into / path, _WRITE, stat.S_IMODE(about.st_mode))
            try:
                cloned = _clone(source, target)
                if not cloned:
                    content.copy(source, target)
            finally:
                os.close(target)
            if cloned or tag.origin(os.fstat(source)) == tag.origin(about):
                break
            (self.into / path).unlink()
        else:
            return self._last(path, source)
        self.cloned, self.copied = self.cloned + cloned, self.copied + (not cloned)
        _keep_times(about, self.into / path)
        return about

    def _last(self, path: str, source: int) -> os.stat_result:
        """Copies a file that is written all the time, as it is found."""
        self.unsteady.append(path)
        target = os.open(self.into / path, _WRITE)
        try:
            content.copy(source, target)
        finally:
            os.close(target)
        self.copied += 1
        return os.fstat(source)

    def _note(self, path: str, place: Path, about: os.stat_result) -> None:
        noted = self.known.get(stored(path))
        facts: Facts = dict(noted[1]) if noted and same_inode(noted[0], about.st_ino) else {}  # type: ignore[assignment]
        kept: Facts = {**facts, "frozen": tag.frozen(about, facts, self.rest), "lease": None}
        self.rows.append((path, os.lstat(place).st_ino, kept))

    def _target(self, target: str, path: str) -> str:
        """Returns where a link leads in the snapshot: where it led in the share, never back into the share itself."""
        if not target.startswith("/"):
            return target
        inside = os.path.relpath(os.path.realpath(target), os.path.realpath(self.share))
        return target if inside.startswith("..") else os.path.relpath(inside, os.path.dirname(path) or ".")


def _flush(share: Path) -> int:
    """Has the system write all that was changed to the disk, and returns a time before that.

    After it, whoever writes a page of a file through a memory map is noticed again, by the file's time of change.
    """
    moment = time.time_ns() - _MARGIN
    fd = os.open(share, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        syncfs = getattr(ctypes.CDLL(None), "syncfs", None)
        if syncfs is None or syncfs(fd) != 0:
            os.sync()
    finally:
        os.close(fd)
    return moment


def _clone(source: int, target: int) -> bool:
    try:
        fcntl.ioctl(target, _CLONE, source)
    except OSError:  # this file system cannot
        return False
    return True


def _keep_times(about: os.stat_result, place: Path) -> None:
    os.utime(place, ns=(about.st_atime_ns, about.st_mtime_ns))
