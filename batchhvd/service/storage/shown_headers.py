"""Headers by which answers describe a file's content, and what a browser may do with it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from email.utils import formatdate
from functools import lru_cache

from batchhvd.service.storage.disk.sidecar import Facts
from batchhvd.service.storage.disk.tag import etag
from batchhvd.service.storage.protocol.refusal import refusal

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


def metadata(facts: Facts) -> dict[str, str]:
    """Returns metadata as headers."""
    return {f"x-ms-meta-{name}": value for name, value in facts.get("metadata", {}).items()}


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
