"""The headers that describe a file or directory, made from what the system and the sidecar know."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Mapping
from email.utils import formatdate
from functools import lru_cache

from batchhvd.service.files.operations.lease import lease_headers
from batchhvd.service.files.protocol.permission import DEFAULT_KEY
from batchhvd.service.storage.disk.sidecar import Facts
from batchhvd.service.storage.disk.tag import changed, created, etag, file_id
from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.request import Request

# Request header -> the header in which reads show it again.
_CONTENT = {
    "x-ms-content-type": "content-type",
    "x-ms-content-encoding": "content-encoding",
    "x-ms-content-language": "content-language",
    "x-ms-content-disposition": "content-disposition",
    "x-ms-content-md5": "content-md5",
    "x-ms-cache-control": "cache-control",
}
_FILE_LEASES = "2019-02-02"  # the version that brought them
# What a browser may show in its window: none of these can hold a script that runs.
_PASSIVE = re.compile(
    r"(text/(plain|csv)|application/(json|octet-stream)|image/(?!svg)[\w.-]+|audio/[\w.-]+|video/[\w.-]+)\s*(;.*)?",
    re.IGNORECASE,
)
_SECOND = 10**9


def http_date(nanoseconds: int) -> str:
    """Returns a time as HTTP headers carry it."""
    return _http_date(nanoseconds // _SECOND)


@lru_cache(maxsize=1024)  # the files of a listing were often written in the same second
def _http_date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)


def written(about: os.stat_result, facts: Facts | None = None) -> dict[str, str]:
    """Returns the headers that every successful write answers: clients sort their ranges by Last-Modified."""
    return {"etag": etag(about, facts), "last-modified": http_date(about.st_mtime_ns)}


def timestamps(about: os.stat_result, facts: Facts) -> dict[str, str]:
    """Returns creation, last access, last write and change as ISO 8601 with seven digits."""
    return {
        "CreationTime": iso(created(about, facts)),
        "LastAccessTime": iso(about.st_atime_ns),
        "LastWriteTime": iso(about.st_mtime_ns),
        "ChangeTime": iso(changed(about, facts)),
    }


def described(about: os.stat_result, facts: Facts, parent: int) -> dict[str, str]:
    """Returns the headers that writes and reads of a file or directory share; ``parent`` is its directory's id."""
    return {
        **written(about, facts),
        "x-ms-request-server-encrypted": "true",
        "x-ms-file-id": str(file_id(about, facts)),
        "x-ms-file-parent-id": str(parent),
        "x-ms-file-attributes": attributes(about, facts),
        "x-ms-file-permission-key": facts.get("permission") or DEFAULT_KEY,
        "x-ms-file-creation-time": iso(created(about, facts)),
        "x-ms-file-last-write-time": iso(about.st_mtime_ns),
        "x-ms-file-change-time": iso(changed(about, facts)),
    }


def read_headers(about: os.stat_result, facts: Facts, parent: int) -> dict[str, str]:
    """Returns the headers of a read of a file or directory: what ``described`` says, and metadata."""
    headers = described(about, facts, parent)
    headers["x-ms-server-encrypted"] = headers.pop("x-ms-request-server-encrypted")
    return {**headers, **metadata(facts)}


def shown(request: Request, about: os.stat_result, facts: Facts, parent: int, now: float) -> dict[str, str]:
    """Returns the headers of a read of a file: also the content's headers, the lease, the last copy."""
    return {
        "content-type": "application/octet-stream",
        **facts.get("content", {}),
        **read_headers(about, facts, parent),
        "x-ms-type": "File",
        **lease_headers(request, facts, now, since=_FILE_LEASES),
        **facts.get("copy", {}),
    }


def attributes(about: os.stat_result, facts: Facts) -> str:
    """Returns the attributes of a file or directory: those that a client set, else what it is."""
    said = facts.get("attributes", "")
    if stat.S_ISDIR(about.st_mode):
        return f"{said}|Directory" if said else "Directory"
    return said or "Archive"


def metadata(facts: Facts) -> dict[str, str]:
    """Returns metadata as headers."""
    return {f"x-ms-meta-{name}": value for name, value in facts.get("metadata", {}).items()}


def content(request: Request) -> dict[str, str]:
    """Returns the content headers that a request sets."""
    return {shown: request.headers[name] for name, shown in _CONTENT.items() if request.header(name)}


def iso(nanoseconds: int) -> str:
    """Returns a time as ISO 8601 with seven digits."""
    seconds, rest = divmod(nanoseconds, _SECOND)
    return f"{_iso_seconds(seconds)}.{rest // 100:07d}Z"


@lru_cache(maxsize=1024)
def _iso_seconds(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


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
