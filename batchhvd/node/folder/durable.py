"""Writes files that are whole after a power cut, and reads JSON files that something may have damaged all the same."""

from __future__ import annotations

import errno
import json
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

_MOST = 64 << 20  # bytes of a record: 10,000 ranks with twenty long lines each
_LATEST = 250_000_000_000.0  # seconds since 1970 that a date can still show (the year 9892)


def replace(path: Path, data: bytes, *, mode: int = 0o644, lasting: bool = False, synced: bool = True) -> None:
    """Replaces a file's content; a reader, even one after a power cut, sees the old content or the new, never a part.

    Args:
        path: the file.
        data: its new content.
        mode: the permissions of the new file.
        lasting: whether the new content, and not only one of the two, must be there after a power cut.
        synced: False for what nobody reads after a power cut.
    """
    scratch = _scratch(path, data, mode, synced)
    try:
        os.replace(scratch, path)
    except OSError:
        os.unlink(scratch)
        raise
    if lasting:
        keep_names(path.parent)


def create(path: Path, data: bytes) -> bool:
    """Creates a file with its whole content, and returns whether this call did; one that exists stays as it is."""
    scratch = _scratch(path, data, 0o644)
    try:
        os.link(scratch, path)  # fails if it exists, and nobody ever sees a part of it
    except FileExistsError:
        return False
    finally:
        os.unlink(scratch)
    return True


def keep_names(folder: Path) -> None:
    """Waits until a folder's names, and its own name in the folder above, are on the disk."""
    for place in (folder, folder.parent):
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _scratch(path: Path, data: bytes, mode: int, synced: bool = True) -> Path:
    """Writes data into a new file beside another, and returns when it is on the disk."""
    # A name that nobody can guess: a job may write to the folder, and must not lay a pipe or a link there.
    scratch = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        if synced:
            os.fsync(descriptor)
    except OSError:
        os.unlink(scratch)
        raise
    finally:
        os.close(descriptor)
    return scratch


class DamagedRecordError(ValueError):
    """A file that the service relies on does not contain what it should.

    Attributes:
        path: the file.
    """

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"the record {path.name} in {path.parent} is damaged: {why}")
        self.path = path


def read_record(path: Path, shape: Mapping[str, Callable[[object], bool]]) -> dict[str, object] | None:
    """Returns the JSON object in a file, or None if there is no such file.

    Args:
        path: the file.
        shape: the required fields, each with what tells whether a value is right.

    Raises:
        DamagedRecordError: it is not a plain file, not JSON, or a field is missing or wrong.
        OSError: the machine could not read it.
    """
    try:
        document = json.loads(_bytes(path).decode("utf-8"), parse_constant=_refuse)
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise error if isinstance(error, DamagedRecordError) else DamagedRecordError(path, _short(error)) from None
    if not isinstance(document, dict):
        raise DamagedRecordError(path, "it is not a JSON object")
    for name, fits in shape.items():
        if name not in document or not fits(document[name]):
            raise DamagedRecordError(path, f"the field {name!r} is missing or wrong")
    return document


def _bytes(path: Path) -> bytes:
    try:  # a job may have laid a pipe or a link there, which must not be waited for or followed
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise DamagedRecordError(path, "it is not a plain file") from None
        raise
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > _MOST:
            raise DamagedRecordError(path, f"it is not a plain file of at most {_MOST} bytes")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(_MOST)
    finally:
        os.close(descriptor)


def _refuse(word: str) -> float:
    raise ValueError(f"{word} is not a number")


def _short(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)[:200]


def is_text(value: object) -> bool:
    """Whether a value is a text that can be written as UTF-8."""
    try:
        return isinstance(value, str) and len(value.encode()) >= 0
    except UnicodeEncodeError:
        return False


def is_count(value: object) -> bool:
    """Whether a value is an integer from 0 that 32 bits hold."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


def is_code(value: object) -> bool:
    """Whether a value is an exit code, or None."""
    return value is None or isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 31


def is_ticks(value: object) -> bool:
    """Whether a value is the start of a process in clock ticks, or None."""
    return value is None or isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def is_time(value: object) -> bool:
    """Whether a value is a time in seconds since 1970."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < _LATEST


def maybe(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    """Returns what also lets None pass."""
    return lambda value: value is None or fits(value)


def list_of(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    """Returns what tells whether a value is a list of such values."""
    return lambda value: isinstance(value, list) and all(map(fits, value))


def table_of(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    """Returns what tells whether a value is an object of such values."""
    return lambda value: isinstance(value, dict) and all(is_text(name) and fits(value[name]) for name in value)


def is_object(**fields: Callable[[object], bool]) -> Callable[[object], bool]:
    """Returns what tells whether a value is an object with these fields."""
    return lambda value: (
        isinstance(value, dict) and all(name in value and fits(value[name]) for name, fits in fields.items())
    )
