"""The blobs of a container in the order of their names, from any name on, without reading those before it.

A blob's name is a path, and the order is that of its bytes: ``a-b``, ``a/b``, ``a0``. So a directory counts with the
slash at its end. One directory is open at a time, however deep the tree is.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_left
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from attrs import define, frozen

from batchhvd.service.storage.disk import tree
from batchhvd.service.storage.disk.names import names_in

_LONGEST = 1024  # characters of a blob's name; what lies deeper cannot be asked for


@frozen
class Found:
    """A blob.

    Attributes:
        name: its name.
        path: its path in the container, links resolved, under which facts are noted.
        about: what the system knows of it.
    """

    name: bytes
    path: str
    about: os.stat_result


@define
class Walk:
    """A walk through a container; whoever takes its blobs may move ``low`` on, to leave some out.

    Attributes:
        container: the directory.
        prefix: how the names begin.
        low: the first name to come.
    """

    container: Path
    prefix: bytes
    low: bytes

    def blobs(self) -> Iterator[Found]:
        """Yields the blobs."""
        folder = self.prefix.rpartition(b"/")[0]
        self.low = max(self.low, self.prefix)
        names = tuple(os.fsdecode(folder).split("/")) if folder else ()
        if not any(name in ("", ".", "..") for name in names):
            yield from self._in(names, folder + b"/" if folder else b"")

    def _in(self, names: tuple[str, ...], base: bytes) -> Iterator[Found]:
        for is_directory, entries in groupby(self._entries(names, base), lambda entry: entry.endswith(b"/")):
            if is_directory:
                for entry in entries:
                    if self._is_wanted(base + entry) and len(os.fsdecode(base + entry)) < _LONGEST:
                        yield from self._in((*names, os.fsdecode(entry[:-1])), base + entry)
            else:
                yield from self._files(names, base, entries)

    def _files(self, names: tuple[str, ...], base: bytes, entries: Iterator[bytes]) -> Iterator[Found]:
        try:
            with tree.directory(self.container, names) as spot:
                for entry in entries:
                    if self.low <= base + entry:
                        about, is_link = tree.look(self.container, spot, os.fsdecode(entry))
                        if about and stat.S_ISREG(about.st_mode):
                            path = "/".join((*spot.names, os.fsdecode(entry)))
                            yield Found(base + entry, "" if is_link else path, about)
        except OSError:  # it was removed meanwhile
            return

    def _entries(self, names: tuple[str, ...], base: bytes) -> Iterator[bytes]:
        """Yields the names of a directory from ``low`` on that can lead to a wanted one."""
        try:
            with tree.directory(self.container, names) as spot:
                entries = names_in(spot.fd, marked=True)
        except OSError:
            return
        rest = self.low[len(base) :] if self.low.startswith(base) else b""
        start = bisect_left(entries, rest)
        if start and entries[start - 1].endswith(b"/") and rest.startswith(entries[start - 1]):
            start -= 1
        for place in range(start, len(entries)):
            full = base + entries[place]
            if not full.startswith(self.prefix) and not self.prefix.startswith(full) and full > self.prefix:
                return
            if full.startswith(self.prefix) or self.prefix.startswith(full):
                yield entries[place]

    def _is_wanted(self, folder: bytes) -> bool:
        """Says whether any name in a directory can be at or after ``low``."""
        return folder >= self.low or self.low.startswith(folder)
