"""The headers that describe a file or directory, made from what the system and the sidecar know."""

from __future__ import annotations

import os
import stat

from batchhvd.service.files.operations.lease import lease_headers
from batchhvd.service.files.protocol.permission import DEFAULT_KEY
from batchhvd.service.storage.disk.sidecar import Facts
from batchhvd.service.storage.disk.tag import changed, created, file_id
from batchhvd.service.storage.protocol.request import Request
from batchhvd.service.storage.shown_headers import iso, metadata, written

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


def content(request: Request) -> dict[str, str]:
    """Returns the content headers that a request sets."""
    return {shown: request.headers[name] for name, shown in _CONTENT.items() if request.header(name)}
