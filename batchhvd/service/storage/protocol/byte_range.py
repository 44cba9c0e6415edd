"""Ranges of bytes: how requests write them, and which part of a file they denote."""

from __future__ import annotations

import re

from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.request import Request

RANGE_BYTES = 4 << 20  # that one request writes at most, or checks with an MD5
_RANGE = re.compile(r"bytes=(?:([0-9]{1,19})-([0-9]{0,19})|-([0-9]{1,19}))")

Range = tuple[int | None, int | None]


def asked(request: Request) -> Range | None:
    """Returns the range that a request asks for: first and last byte; no last: to the end; no first: the last n bytes.

    None if it asks for none. Both headers count, the storage client's before HTTP's.
    """
    text = request.header("x-ms-range") or request.header("range")
    if not text:
        return None
    found = _RANGE.fullmatch(text.strip())
    first, last = (int(found[1]) if found[1] else None, int(found[2] or found[3] or -1)) if found else (None, -1)
    if not found or (first is not None and found[2] and last < first):
        raise refusal("InvalidHeaderValue", "A range must be written bytes=first-last.")
    return first, (last if found[2] or found[3] else None)


def bounds(part: Range, size: int) -> tuple[int, int] | None:
    """Returns first and last byte of a range within a file of this size; None if all of it is outside."""
    first, last = part
    if first is None:
        first, last = max(0, size - (last or 0)), size - 1 if last else -1
    last = size - 1 if last is None else min(last, size - 1)
    return (first, last) if first <= last and first < size else None


def exact(request: Request) -> tuple[int, int]:
    """Returns first and last byte of the range that a request must name in full."""
    part = asked(request)
    if part is None or part[0] is None or part[1] is None:
        raise refusal("InvalidHeaderValue", "x-ms-range must name first and last byte: bytes=first-last.")
    return part[0], part[1]
