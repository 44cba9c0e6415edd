"""What a request says of times, attributes and permission of a file or directory, and how that is noted."""

from __future__ import annotations

import os
import re
import time
from datetime import datetime, timezone

from batchhvd.service.files.protocol import descriptor, permission
from batchhvd.service.storage.disk.disk import Disk
from batchhvd.service.storage.disk.sidecar import Facts
from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.request import Request

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_SECOND = 10**9
_NAMES = ("ReadOnly", "Hidden", "System", "Archive", "Temporary", "Offline", "NotContentIndexed", "NoScrubData")
_ATTRIBUTES = {name.lower(): name for name in _NAMES}
_AS_BEFORE = ("", "preserve", "source")


def time_in(request: Request, name: str, before: int, default: str = "preserve") -> int:
    """Returns a header's time in nanoseconds since 1970; refuses one that is not a time.

    Args:
        request: the request.
        name: the header; its value may also be ``now``, ``preserve`` or, for a copy, ``source``.
        before: the time that is preserved.
        default: what an absent header means.
    """
    text = request.header(name) or default
    if text.lower() == "now":
        return time.time_ns()
    if text.lower() in _AS_BEFORE:
        return before
    return _moment(text, name)


def written_at(request: Request, before: int, default: str = "now") -> int:
    """Returns the time of last write that a request gives a file or directory."""
    return time_in(request, "x-ms-file-last-write-time", before, default)


def said_change(request: Request, about: os.stat_result) -> list[int] | None:
    """Returns the time of change that a request sets, and the system's own for which it holds; None if it sets none."""
    text = request.header("x-ms-file-change-time")
    if text.lower() in (*_AS_BEFORE, "now"):
        return None
    return [_moment(text, "x-ms-file-change-time"), about.st_ctime_ns]


def note_smb(disk: Disk, request: Request, facts: Facts) -> None:
    """Notes creation time, attributes and permission that a request sets; refuses what none of them can be.

    The rest stays as the facts have it.
    """
    made = time_in(request, "x-ms-file-creation-time", -1)
    if made >= 0:
        facts["created"] = made
    said = _attributes(request)
    if said is not None:
        facts["attributes"] = said
    key = _permission(disk, request)
    if key:
        facts["permission"] = key
    if request.header("x-ms-file-change-time"):
        said_change(request, os.stat_result((0,) * 10))  # only whether it is a time


def is_read_only(facts: Facts) -> bool:
    """Says whether a file has the attribute that forbids writes."""
    return "ReadOnly" in facts.get("attributes", "").split("|")


def _attributes(request: Request) -> str | None:
    text = request.header("x-ms-file-attributes")
    if text.lower() in _AS_BEFORE:
        return None
    words = [word.strip().lower() for word in text.split("|")]
    if unknown := [word for word in words if word not in (*_ATTRIBUTES, "none", "directory")]:
        raise refusal(
            "InvalidHeaderValue", f"x-ms-file-attributes: {unknown[0][:60]!r} is none of None, {', '.join(_NAMES)}."
        )
    return "|".join(name for word, name in _ATTRIBUTES.items() if word in words)


def _permission(disk: Disk, request: Request) -> str:
    """Returns the key of the permission that a request gives, "" for the one that there is."""
    text, key = request.header("x-ms-file-permission"), request.header("x-ms-file-permission-key")
    if text and key:
        raise refusal("InvalidHeaderValue", "Send x-ms-file-permission or x-ms-file-permission-key, not both.")
    if text.lower() in (*_AS_BEFORE, "inherit"):
        return "" if key.lower() in _AS_BEFORE else known_key(disk, request, key)
    return keep(disk, request, text, request.header("x-ms-file-permission-format"))


def keep(disk: Disk, request: Request, text: str, form: str) -> str:
    """Keeps a permission, in SDDL or in the binary form, with its share and returns its key."""
    if form.lower() == "binary":
        text = descriptor.to_sddl(text)
    key = permission.key_of(permission.check(text))
    disk.sidecar.keep_permission(disk.key(request.target), key, text)
    return key


def known_key(disk: Disk, request: Request, key: str) -> str:
    """Returns a permission's key; refuses one that the share does not have."""
    if key != permission.DEFAULT_KEY and disk.sidecar.permission(disk.key(request.target), key) is None:
        raise refusal("FilePermissionNotFound", "Create it with Create Permission first.")
    return key


def _moment(text: str, name: str) -> int:
    found = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|\+00:00)", text)
    try:
        moment = datetime.fromisoformat(f"{found[1]}+00:00") if found else None
    except ValueError:
        moment = None
    if not found or not moment or moment < _EPOCH:
        raise refusal("InvalidHeaderValue", f"{name} must be a time since 1970 in ISO 8601, UTC.")
    return int((moment - _EPOCH).total_seconds()) * _SECOND + int((found[2] or "").ljust(9, "0"))
