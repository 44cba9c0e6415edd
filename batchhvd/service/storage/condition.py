"""Conditions on a file's tag and times, as requests carry them (RFC 9110, section 13)."""

from __future__ import annotations

import os
from email.utils import parsedate_to_datetime

from batchhvd.service.storage.disk.sidecar import Facts
from batchhvd.service.storage.disk.tag import etag
from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.request import Request


def check_conditions(
    request: Request, about: os.stat_result | None, facts: Facts | None = None, prefix: str = ""
) -> bool:
    """Refuses a request whose condition does not hold; False if a read would send what the client has already.

    Args:
        request: the request.
        about: what the system knows of the file, None if there is none.
        facts: what is noted of it.
        prefix: of the headers' names: those with ``x-ms-source-`` are about the source of a copy.
    """
    tag = etag(about, facts) if about else ""
    seconds = int(about.st_mtime) if about else 0
    wanted, unwanted = request.header(f"{prefix}if-match"), request.header(f"{prefix}if-none-match")
    if wanted and not _matches(wanted, tag):
        raise refusal("ConditionNotMet")
    since = request.header(f"{prefix}if-unmodified-since")
    if since and not wanted and seconds > _date(since, "if-unmodified-since"):
        raise refusal("ConditionNotMet")
    if unwanted:
        return not _matches(unwanted, tag)
    since = request.header(f"{prefix}if-modified-since")
    return not since or seconds > _date(since, "if-modified-since")


def check_write(request: Request, about: os.stat_result | None) -> None:
    """Refuses a write whose condition does not hold; ``about`` is None for a file that does not exist."""
    if not check_conditions(request, about):
        raise refusal("ConditionNotMet")


def _matches(tags: str, tag: str) -> bool:
    return bool(tag) and (tags.strip() == "*" or tag in (part.strip() for part in tags.split(",")))


def _date(text: str, name: str) -> float:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, OverflowError):
        raise refusal("InvalidHeaderValue", f"{name} must be a time in the format of RFC 1123.") from None
