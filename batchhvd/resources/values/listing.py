"""What a listing of the service returns: read page by page, and yet with a length, places and a printed form."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Generic, TypeVar, overload
from weakref import ref

from batchhvd.resources.values.file_entry import FileEntry

T = TypeVar("T")
_PRINTED = 20  # a share may hold a million files
_ROWS = 100  # of a table in a notebook


class _Reading(Iterator[T]):
    """One reading of a listing, which can count what is still to come."""

    def __init__(self, source: Iterator[T]) -> None:
        self._source, self._ahead = source, deque[T]()
        self.started = False

    def __next__(self) -> T:
        self.started = True
        return self._ahead.popleft() if self._ahead else next(self._source)

    def count(self) -> int:
        """Returns how many are to come; they are kept until they are asked for."""
        self._ahead.extend(self._source)
        return len(self._ahead)


class Listing(Generic[T]):
    """Resources or files, read page by page in each iteration; a table in a notebook.

    Printing reads the first 20, a table the first 100, ``listing[0]`` up to the item, ``len()`` all of it.
    """

    def __init__(self, read: Callable[[], Iterator[T]], table: Callable[[Sequence[T]], str]) -> None:
        """Creates a listing without sending a request.

        Args:
            read: starts a reading.
            table: returns some of it as HTML.
        """
        self._read, self._table = read, table
        self._latest: Callable[[], _Reading[T] | None] = lambda: None

    def __iter__(self) -> Iterator[T]:
        reading = _Reading(self._read())
        self._latest = ref(reading)
        return reading

    def __len__(self) -> int:
        latest = self._latest()  # list() asks for the length when it has begun: then both are one reading
        return sum(1 for _ in self._read()) if latest is None or latest.started else latest.count()

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> list[T]: ...
    def __getitem__(self, place: int | slice) -> T | list[T]:
        """Returns one item, or some; those from the front are read only as far as needed."""
        if isinstance(place, slice):
            ahead = place.stop is not None and min(place.start or 0, place.stop) >= 0 and (place.step or 1) > 0
            return list(islice(self._read(), place.stop))[place] if ahead else list(self)[place]
        if place < 0:
            return list(self)[place]
        for found in islice(self._read(), place, place + 1):
            return found
        raise IndexError(f"there are fewer than {place + 1}")

    def __bool__(self) -> bool:
        return next(self._read(), None) is not None

    def __repr__(self) -> str:
        first, more = self._first(_PRINTED)
        return f"[{', '.join(map(repr, first))}{', …] and more: len() counts them' if more else ']'}"

    def _repr_html_(self) -> str:
        first, more = self._first(_ROWS)
        return self._table(first) + ("<div>… and more: len() counts them</div>" if more else "")

    def _first(self, most: int) -> tuple[list[T], bool]:
        found = list(islice(self._read(), most + 1))
        return found[:most], len(found) > most


def files(read: Callable[[], Iterator[FileEntry]]) -> Listing[FileEntry]:
    """Returns a listing of files and directories; nothing is sent.

    Args:
        read: starts a reading.
    """
    return Listing(read, _file_table)


def _file_table(found: Sequence[FileEntry]) -> str:
    from batchhvd.views.notebook import rows

    return rows([{"path": one.path, "size": _size(one), "modified": one.modified} for one in found])


def _size(one: FileEntry) -> str:
    return "directory" if one.is_directory else f"{one.size:,}"
