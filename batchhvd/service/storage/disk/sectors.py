"""Which parts of a file hold data, to the sector of 512 bytes: a file system tells it only to the block.

A sector of zeros counts as a hole, whether it was cleared or never written.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator, Sequence

from batchhvd.service.storage.disk import content
from batchhvd.service.storage.disk.stretches import Stretch, united

SECTOR = 512
_PIECE = 4 << 20  # bytes looked at at a time, whole sectors
_ZEROS = bytes(SECTOR)
_NOT_ZERO = re.compile(rb"[^\0]")


def filled(fd: int, first: int, last: int) -> Iterator[Stretch]:
    """Yields the stretches of an open file that hold data, between two bytes inside the file."""
    return _joined(_clipped(_filled(fd, first, last), first, last))


def differing(
    fd: int, before: int | None, last: int, touched: Sequence[Stretch] = ()
) -> Iterator[tuple[str, int, int]]:
    """Yields what differs between an open file and an earlier one, up to the file's last byte.

    Each is a kind, first and last byte: ``Range`` for data, ``ClearRange`` for zeros in the place of data.

    Args:
        fd: the file.
        before: the earlier one, or None if there was none.
        last: the last byte to look at.
        touched: stretches that count as different also where they are not, in order.
    """
    held: tuple[str, int, int] | None = None
    for kind, first, end in _differing(fd, before, last, _whole(touched, last)):
        if held and held[0] == kind and held[2] + 1 == first:
            held = (kind, held[1], end)
            continue
        if held:
            yield held
        held = (kind, first, end)
    if held:
        yield held


def _filled(fd: int, first: int, last: int) -> Iterator[Stretch]:
    for start, end in content.data(fd, first - first % SECTOR, last):
        for at in range(start - start % SECTOR, end + 1, _PIECE):
            piece = os.pread(fd, min(_PIECE, end + 1 - at), at)
            for begin, stop in _filled_sectors(piece + bytes(-len(piece) % SECTOR)):
                yield at + begin, at + stop - 1


def _filled_sectors(piece: bytes) -> Iterator[Stretch]:
    """Yields begin and end of what is not zeros in a piece of whole sectors."""
    position = 0
    while found := _NOT_ZERO.search(piece, position):
        begin = found.start() - found.start() % SECTOR
        position = _zero_sector(piece, begin + SECTOR)
        yield begin, position


def _zero_sector(piece: bytes, position: int) -> int:
    """Returns where the next sector of zeros begins, from a sector's beginning on, or the piece's end."""
    while (found := piece.find(_ZEROS, position)) >= 0:
        position = found + -found % SECTOR
        if piece.startswith(_ZEROS, position):
            return position
    return len(piece)


def _clipped(stretches: Iterable[Stretch], first: int, last: int) -> Iterator[Stretch]:
    for start, end in stretches:
        if max(start, first) <= min(end, last):
            yield max(start, first), min(end, last)


def _joined(stretches: Iterable[Stretch]) -> Iterator[Stretch]:
    held: Stretch | None = None
    for start, end in stretches:
        if held and held[1] + 1 >= start:
            held = (held[0], end)
            continue
        if held:
            yield held
        held = (start, end)
    if held:
        yield held


def _whole(touched: Sequence[Stretch], last: int) -> list[Stretch]:
    """Returns stretches of whole sectors, but for the file's last one."""
    wider = [(first - first % SECTOR, min(end - end % SECTOR + SECTOR - 1, last)) for first, end in touched]
    return united(stretch for stretch in wider if stretch[0] <= last)


def _differing(fd: int, before: int | None, last: int, touched: Sequence[Stretch]) -> Iterator[tuple[str, int, int]]:
    position = 0
    while True:
        data = _next_data(fd, before, position)
        data -= data % SECTOR
        for first, end in touched:  # in what is a hole in both
            if max(first, position) <= min(end, data - 1):
                yield "ClearRange", max(first, position), min(end, data - 1)
        if data > last:
            return
        position = data
        marked = _marked(touched, position)
        now, then = (_padded(each, position) for each in (fd, before))
        if marked or now != then:
            for at in range(0, min(_PIECE, last + 1 - position), SECTOR):
                sector = now[at : at + SECTOR]
                if at in marked or sector != then[at : at + SECTOR]:
                    kind = "ClearRange" if sector == _ZEROS else "Range"
                    yield kind, position + at, min(position + at + SECTOR - 1, last)
        position += _PIECE


def _marked(touched: Sequence[Stretch], position: int) -> set[int]:
    """Returns which sectors of the piece at a position are touched, as offsets in it."""
    stop = position + _PIECE
    return {at - position for first, end in touched for at in range(max(first, position), min(end + 1, stop), SECTOR)}


def _padded(fd: int | None, position: int) -> bytes:
    return (os.pread(fd, _PIECE, position) if fd is not None else b"").ljust(_PIECE, b"\0")


def _next_data(fd: int, before: int | None, position: int) -> int:
    return min(_data_from(each, position) for each in (fd, before) if each is not None)


def _data_from(fd: int, position: int) -> int:
    try:
        return os.lseek(fd, position, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:  # nothing but a hole from here on
            return 1 << 62
        raise
