"""The CRC-64 by which Azure Storage checks contents (CRC-64/NVME): reflected, polynomial AD93D23594C93659.

Microsoft's ``azure-storage-extensions`` computes it if it is installed (it comes with the client's extra
``ext-checksums``). Otherwise two bytes go at a time through four tables: half a second for a range of 4 MiB.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib import import_module

_POLYNOMIAL = 0x9A6C9329AC4BC9B5  # AD93D23594C93659, bits reversed
_ONES = (1 << 64) - 1
_WORD = struct.Struct("<Q")


def crc64(pieces: Iterable[bytes]) -> int:
    """Returns the CRC-64 of pieces one after another."""
    native = _native()
    if native is None:
        return _slowly(pieces)
    crc = 0
    for piece in pieces:
        crc = native(piece, crc)
    return crc


def _slowly(pieces: Iterable[bytes]) -> int:
    first, second, third, fourth = _tables()
    crc, rest = _ONES, b""
    for piece in pieces:
        data = rest + piece
        whole = len(data) & ~7
        for (word,) in _WORD.iter_unpack(memoryview(data)[:whole]):
            crc ^= word
            crc = first[crc & 65535] ^ second[crc >> 16 & 65535] ^ third[crc >> 32 & 65535] ^ fourth[crc >> 48]
        rest = data[whole:]
    for byte in rest:
        crc = crc >> 8 ^ _single()[(crc ^ byte) & 255]
    return crc ^ _ONES


def encoded(pieces: Iterable[bytes]) -> str:
    """Returns the CRC-64 of pieces as headers carry it."""
    return base64.b64encode(_WORD.pack(crc64(pieces))).decode()


@lru_cache(maxsize=1)
def _native() -> Callable[[bytes, int], int] | None:
    try:
        found: Callable[[bytes, int], int] = import_module("azure.storage.extensions.checksums").crc64.compute
    except ImportError:
        return None
    return found


@lru_cache(maxsize=1)
def _single() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


@lru_cache(maxsize=1)
def _tables() -> tuple[list[int], list[int], list[int], list[int]]:
    """Returns what two bytes become that are followed by six, four, two and no more bytes of a word."""
    single = _single()

    def further(table: list[int]) -> list[int]:
        return [_two(value, single) for value in table]

    fourth = [_two(value, single) for value in range(1 << 16)]
    third = further(fourth)
    second = further(third)
    return further(second), second, third, fourth


def _two(value: int, single: list[int]) -> int:
    """Returns a CRC after two more bytes of zero."""
    value = value >> 8 ^ single[value & 255]
    return value >> 8 ^ single[value & 255]
