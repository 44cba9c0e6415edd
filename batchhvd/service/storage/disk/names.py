"""The names in a directory, in the order of their bytes; a large directory is read again only after it has changed."""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

_MOST = 8  # directories whose names are kept
_SMALL = 1000  # names that are soon read
_PART = 10_000  # names that are sorted at once
_FRESH = 2.0  # seconds in which a file system may give two changes of a directory the same times
_kept: OrderedDict[tuple[int, ...], Sequence[bytes]] = OrderedDict()
_lock = threading.Lock()


def in_order(names: Sequence[bytes]) -> Sequence[bytes]:
    """Returns names in the order in which listings show them."""
    # No other thread runs while Python sorts; to sort what consists of a few sorted parts takes a fraction of the time.
    parts = (sorted(names[start : start + _PART]) for start in range(0, len(names), _PART))
    return sorted(chain.from_iterable(parts))


def names_in(folder: int | Path, *, marked: bool = False) -> Sequence[bytes]:
    """Returns the names in a directory, in order.

    Args:
        folder: an open directory or a path.
        marked: whether directories get a slash at their ends, which counts in the order; links do not.

    Raises:
        OSError: it cannot be read.
    """
    facts = os.stat(folder)
    version = (facts.st_dev, facts.st_ino, facts.st_mtime_ns, facts.st_ctime_ns, marked)
    with _lock:
        found = _kept.get(version)
        if found is not None:
            _kept.move_to_end(version)
            return found
    rested = facts.st_ctime < time.time() - _FRESH
    found = in_order(_marked(folder) if marked else _listed(folder))
    if rested and len(found) > _SMALL:
        with _lock:
            _kept[version] = found
            while len(_kept) > _MOST:
                _kept.popitem(last=False)
    return found


def _listed(folder: int | Path) -> Sequence[bytes]:
    # By its path below /proc an open directory gives bytes; by its number it would give text, to be encoded again.
    return os.listdir(b"/proc/self/fd/%d" % folder if isinstance(folder, int) else os.fsencode(folder))


def _marked(folder: int | Path) -> Sequence[bytes]:
    with os.scandir(folder) as entries:
        return [os.fsencode(each.name) + b"/" * each.is_dir(follow_symlinks=False) for each in entries]


def following(names: Sequence[bytes], last: bytes, prefix: bytes) -> Iterator[str]:
    """Yields the names with a prefix that come after a last one (b"" for the beginning); takes them as ``after``."""
    start = max(bisect_right(names, last) if last else 0, bisect_left(names, prefix))
    for place in range(start, len(names)):
        if not names[place].startswith(prefix):
            return
        yield os.fsdecode(names[place])


def after(names: Sequence[bytes], last: bytes, prefix: bytes, most: int) -> list[str]:
    """Returns some of the names with a prefix that come after a last one.

    Args:
        names: all names, in order.
        last: the name before the first one, b"" for the beginning.
        prefix: how they begin.
        most: how many at most.
    """
    start = max(bisect_right(names, last) if last else 0, bisect_left(names, prefix))
    found = names[start : start + most]
    return [os.fsdecode(name) for name in found if name.startswith(prefix)]
