"""The output of ranks: cut into whole lines, and appended to logs that several nodes share."""

from __future__ import annotations

import fcntl
import os
import shutil

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

PARTIAL = 0.2  # seconds after which an unfinished line is written
_TAIL = 20  # lines kept of each rank


class LogFile:
    """A log file to which processes of several nodes append, one whole piece at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def write(self, data: bytes) -> None:
        """Appends data without any other node's output in between."""
        fcntl.lockf(self.descriptor, fcntl.LOCK_EX)
        try:
            while data:
                data = data[os.write(self.descriptor, data) :]
        finally:
            fcntl.lockf(self.descriptor, fcntl.LOCK_UN)


class TwinLog(LogFile):
    """A log file whose content goes to a second one as well, as it comes."""

    def __init__(self, path: Path, other: LogFile) -> None:
        super().__init__(path)
        self.other = other

    def write(self, data: bytes) -> None:
        """Appends data to both."""
        super().write(data)
        self.other.write(data)


class OutputPipe:
    """One end of a rank's pipe: cuts what arrives into whole lines, or into whole characters if a line takes long."""

    def __init__(self, descriptor: int, log: LogFile, last: bytearray) -> None:
        self.descriptor, self.log, self.last = descriptor, log, last
        self.pending = b""
        self.since = 0.0
        self.count = 0
        self.unfinished = False

    def read(self, now: float) -> bool:
        """Reads what has arrived and writes its whole lines; returns False at the end of the output."""
        data = os.read(self.descriptor, 65536)
        if not self.pending:
            self.since = now
        self.pending += data
        self.count += len(data)
        self.last += data
        del self.last[:-8192]
        self._emit(len(self.pending) if not data else self.pending.rfind(b"\n") + 1, now)
        return bool(data)

    def drain(self, now: float) -> None:
        """Reads everything that has arrived so far."""
        try:
            while self.read(now):
                pass
        except BlockingIOError:
            return

    def flush(self, now: float) -> None:
        """Writes the beginning of a line that has waited long enough."""
        if self.pending and (now - self.since >= PARTIAL or len(self.pending) > 65536):
            self._emit(whole(self.pending), now)

    def end_line(self) -> None:
        """Ends a line that was cut off, so that the output of the next attempt begins on a new line."""
        if self.unfinished:
            self.log.write(b"\n")
            self.unfinished = False

    def _emit(self, cut: int, now: float) -> None:
        data, self.pending = self.pending[:cut], self.pending[cut:]
        if data:
            self.since = now
            self.log.write(data)
            self.unfinished = not data.endswith(b"\n")


def whole(data: bytes) -> int:
    """Returns how many bytes at the start of data are whole UTF-8 characters (all of them if it is not UTF-8)."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:  # the last byte that begins a character
            need = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return len(data) - back if need > back else len(data)
    return len(data)


def last_lines(data: bytes | bytearray) -> list[str]:
    """Returns the last lines of an output as text; a carriage return ends a line too, as on a terminal."""
    return [line for line in bytes(data).decode("utf-8", "replace").splitlines() if line.strip()][-_TAIL:]


def moment(folder: Path) -> int:
    """Returns the time by the clock of a folder's file system, in nanoseconds."""
    mark = folder / ".batchhvd-now"
    mark.touch()
    now = mark.stat().st_ctime_ns
    mark.unlink()
    return now


def keep(folder: Path, target: Path, since: int) -> list[str]:
    """Moves what was written in a folder since a moment to another folder, which must not exist yet.

    Args:
        folder: a working directory; what a preparation has left there before that moment stays.
        target: created only if there is something to keep.
        since: nanoseconds by the file system's clock, from ``moment``.

    Returns:
        The names of what was moved.
    """
    names = sorted(entry.name for entry in os.scandir(folder) if _is_newer(folder / entry.name, since))
    for name in names:
        target.mkdir(parents=True, exist_ok=True)
        shutil.move(folder / name, target / name)
    return names


def _is_newer(path: Path, since: int) -> bool:
    """Whether a file, or a file within a directory, was written since a moment."""
    if path.is_symlink():  # one that leads out of the directory would lead to nothing
        return not os.path.isabs(os.readlink(path)) and path.lstat().st_ctime_ns >= since
    if path.is_dir():
        return any(_is_newer(inner, since) for inner in path.iterdir())
    return path.is_file() and path.stat().st_ctime_ns >= since
