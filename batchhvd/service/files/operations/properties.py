"""The headers that describe a file or directory, made from what the system and the sidecar know."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from email.utils import formatdate

from batchhvd.service.files.disk.sidecar import Facts
from batchhvd.service.files.protocol.refusal import refusal
from batchhvd.service.files.protocol.request import Request

# Request header -> the header in which reads show it again.
_CONTENT = {
    "x-ms-content-type": "content-type",
    "x-ms-content-encoding": "content-encoding",
    "x-ms-content-language": "content-language",
    "x-ms-content-disposition": "content-disposition",
    "x-ms-content-md5": "content-md5",
    "x-ms-cache-control": "cache-control",
}
# What a browser may show in its window: none of these can hold a script that runs.
_PASSIVE = re.compile(
    r"(text/(plain|csv)|application/(json|octet-stream)|image/(?!svg)[\w.-]+|audio/[\w.-]+|video/[\w.-]+)\s*(;.*)?",
    re.IGNORECASE,
)
_WORDS = ("", "now", "preserve", "source")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_SECOND = 10**9


def etag(about: os.stat_result) -> str:
    """Returns a tag that changes whenever the content may have changed.

    The time of last change is in it for writes that leave the time of last write as it was.
    """
    return f'"0x{about.st_mtime_ns:X}{about.st_ctime_ns:X}{about.st_size:X}{about.st_ino:X}"'


def written(about: os.stat_result) -> dict[str, str]:
    """Returns the headers that every successful write answers: clients sort their ranges by Last-Modified."""
    return {"etag": etag(about), "last-modified": formatdate(about.st_mtime, usegmt=True)}


def timestamps(about: os.stat_result, facts: Facts) -> dict[str, str]:
    """Returns creation, last write and change as ISO 8601 with seven digits.

    A portable program cannot find out when a file was created: unless a client has said it, the earlier of its
    last write and its last change stands in.
    """
    created = facts.get("created") or min(about.st_mtime_ns, about.st_ctime_ns)
    return {
        "CreationTime": _iso(created),
        "LastWriteTime": _iso(about.st_mtime_ns),
        "ChangeTime": _iso(about.st_ctime_ns),
    }


def described(about: os.stat_result, facts: Facts) -> dict[str, str]:
    """Returns the headers that writes and reads of a file or directory share."""
    times = timestamps(about, facts)
    return {
        **written(about),
        "x-ms-file-id": str(about.st_ino),
        "x-ms-file-attributes": attributes(about),
        "x-ms-file-creation-time": times["CreationTime"],
        "x-ms-file-last-write-time": times["LastWriteTime"],
        "x-ms-file-change-time": times["ChangeTime"],
    }


def shown(about: os.stat_result, facts: Facts) -> dict[str, str]:
    """Returns the headers of a read: what ``described`` says, the content's headers, metadata, the last copy."""
    headers = {"content-type": "application/octet-stream", **facts.get("content", {}), **described(about, facts)}
    headers["x-ms-type"] = "Directory" if stat.S_ISDIR(about.st_mode) else "File"
    return {**headers, **metadata(facts), **facts.get("copy", {})}


def attributes(about: os.stat_result) -> str:
    """Returns the word by which clients distinguish files from directories."""
    return "Directory" if stat.S_ISDIR(about.st_mode) else "Archive"


def metadata(facts: Facts) -> dict[str, str]:
    """Returns metadata as headers."""
    return {f"x-ms-meta-{name}": value for name, value in facts.get("metadata", {}).items()}


def content(request: Request) -> dict[str, str]:
    """Returns the content headers that a request sets."""
    return {shown: request.headers[name] for name, shown in _CONTENT.items() if request.header(name)}


def time_in(request: Request, name: str) -> int | None:
    """Returns a header's time in nanoseconds since 1970; None if it is absent or says ``now`` or ``preserve``."""
    text = request.header(name)
    if text.lower() in _WORDS:
        return None
    found = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|\+00:00)", text)
    try:
        moment = datetime.fromisoformat(f"{found[1]}+00:00") if found else None
    except ValueError:
        moment = None
    if not found or not moment or moment < _EPOCH:
        raise refusal("InvalidHeaderValue", f"{name} must be a time since 1970 in ISO 8601, UTC.")
    return int((moment - _EPOCH).total_seconds()) * _SECOND + int((found[2] or "").ljust(9, "0"))


def _iso(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, _SECOND)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest // 100:07d}Z"


def overrides(query: Mapping[str, str]) -> dict[str, str]:
    """Returns the headers that a link sets in the answers to its reads."""
    names = {
        "rscc": "cache-control",
        "rscd": "content-disposition",
        "rsce": "content-encoding",
        "rscl": "content-language",
        "rsct": "content-type",
    }
    found = {header: query[name] for name, header in names.items() if query.get(name)} if "sig" in query else {}
    if any(not value.isprintable() for value in found.values()):
        raise refusal("InvalidQueryParameterValue", "A header's value must be one line of printable characters.")
    return found


def opened(headers: dict[str, str], query: Mapping[str, str]) -> dict[str, str]:
    """Returns the headers of a file's content that is read through a link, as a browser does.

    What could hold a script is a download, whatever the file's own properties say; only the link itself, which the
    holder of the key has signed, may say otherwise. The sandbox that every answer carries stays either way.
    """
    headers = headers | overrides(query)
    if "sig" in query and not query.get("rscd") and not _PASSIVE.fullmatch(headers["content-type"]):
        name = headers.get("content-disposition", "").partition(";")
        headers["content-disposition"] = "".join(("attachment", *name[1:]))
    return headers
