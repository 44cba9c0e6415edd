"""What is told about a file or directory: its headers, made from what the system and the sidecar know; conditions."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timezone
from email.utils import formatdate, parsedate_to_datetime

from batchhvd.service.files.disk.sidecar import Facts
from batchhvd.service.files.protocol.refusal import refuse
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
_WORDS = ("", "now", "preserve", "source")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_SECOND = 10**9


def etag(about: os.stat_result) -> str:
    """Returns a tag that changes whenever the content may have changed.

    The time of last change is in it for writes that leave the time of last write as it was.
    """
    return f'"0x{about.st_mtime_ns:X}{about.st_ctime_ns:X}{about.st_size:X}{about.st_ino:X}"'


def stamp(fd: int, changed: int | None = None) -> None:
    """Sets a file's time of last write in nanoseconds since 1970, to now by default, and so its ETag.

    Before Linux 6.13 the system's own clock for this ticks a few hundred times a second; two writes within one tick
    would leave one ETag for two contents.
    """
    about = os.fstat(fd)
    with suppress(PermissionError):  # a file that we may write but do not own: the system's tick must do
        os.utime(fd, ns=(about.st_atime_ns, time.time_ns() if changed is None else changed))


def written(about: os.stat_result) -> dict[str, str]:
    """Returns the headers that every successful write answers: clients sort their ranges by Last-Modified."""
    return {"etag": etag(about), "last-modified": formatdate(about.st_mtime, usegmt=True)}


def timestamps(about: os.stat_result, facts: Facts) -> dict[str, str]:
    """Returns creation, last write and change as ISO 8601 with seven digits.

    The system does not tell a portable program when a file was made: unless the client has said it, the earlier of its
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
    """Returns the word by which clients tell files from directories."""
    return "Directory" if stat.S_ISDIR(about.st_mode) else "Archive"


def metadata(facts: Facts) -> dict[str, str]:
    """Returns metadata as headers."""
    return {f"x-ms-meta-{name}": value for name, value in facts.get("metadata", {}).items()}


def content(request: Request) -> dict[str, str]:
    """Returns the content headers that a request sets."""
    return {shown: request.headers[name] for name, shown in _CONTENT.items() if request.header(name)}


def time_in(request: Request, name: str) -> int | None:
    """Returns a header's time in nanoseconds since 1970; None where it is absent or says ``now`` or ``preserve``."""
    text = request.header(name)
    if text.lower() in _WORDS:
        return None
    found = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|\+00:00)", text)
    try:
        moment = datetime.fromisoformat(f"{found[1]}+00:00") if found else None
    except ValueError:
        moment = None
    if not found or not moment or moment < _EPOCH:
        raise refuse("InvalidHeaderValue", f"{name} takes a time since 1970 as ISO 8601 in UTC.")
    return int((moment - _EPOCH).total_seconds()) * _SECOND + int((found[2] or "").ljust(9, "0"))


def check_conditions(request: Request, about: os.stat_result | None) -> bool:
    """Refuses a request whose condition does not hold; False where a read would send what the client has already."""
    tag = etag(about) if about else ""
    seconds = int(about.st_mtime) if about else 0
    wanted, unwanted = request.header("if-match"), request.header("if-none-match")
    if wanted and not _matches(wanted, tag):
        raise refuse("ConditionNotMet")
    since = request.header("if-unmodified-since")
    if since and not wanted and seconds > _date(since, "if-unmodified-since"):
        raise refuse("ConditionNotMet")
    if unwanted:
        return not _matches(unwanted, tag)
    since = request.header("if-modified-since")
    return not since or seconds > _date(since, "if-modified-since")


def check_write(request: Request, about: os.stat_result | None) -> None:
    """Refuses a write whose condition does not hold; ``about`` is None for a file that is not there."""
    if not check_conditions(request, about):
        raise refuse("ConditionNotMet")


def _matches(tags: str, tag: str) -> bool:
    return bool(tag) and (tags.strip() == "*" or tag in (part.strip() for part in tags.split(",")))


def _date(text: str, name: str) -> float:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, OverflowError):
        raise refuse("InvalidHeaderValue", f"{name} takes a time as RFC 1123 writes it.") from None


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
        raise refuse("InvalidQueryParameterValue", "A header's value is one line of printable characters.")
    return found
