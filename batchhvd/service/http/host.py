"""The names of hosts under which a client may have asked for something and still mean this service.

They are the machine's own names, an account's name before ``.file.localhost``, which systems resolve to the loopback
interface and nobody else can own (RFC 6761), and Azure's public ones, which come through the service's proxy. Every
other name is a web page's attempt to reach the service through a name of its own (DNS rebinding).
"""

from __future__ import annotations

import re
from functools import lru_cache

from batchhvd.wire.facts.hosts import ACCOUNT_NAME, BLOB_DOMAIN, FILE_DOMAIN, LOGIN_HOSTS, MANAGEMENT_HOSTS

_OF_ACCOUNTS = [f"{ACCOUNT_NAME}{re.escape(f'.{domain}')}" for domain in (FILE_DOMAIN, BLOB_DOMAIN)]
_NAMED = [*map(re.escape, (*MANAGEMENT_HOSTS, *LOGIN_HOSTS)), *_OF_ACCOUNTS]
_LOCAL = rf"127\.0\.0\.1|localhost|\[::1\]|{ACCOUNT_NAME}\.(?:file|blob)\.localhost"
_OURS = re.compile(rf"({_LOCAL}|{'|'.join(_NAMED)})(:\d+)?", re.IGNORECASE)
_PUBLIC = re.compile("|".join(("localhost", *_NAMED)), re.IGNORECASE)
_FILES = re.compile(rf"{ACCOUNT_NAME}\.file\.", re.IGNORECASE)
_BLOBS = re.compile(rf"{ACCOUNT_NAME}\.blob\.", re.IGNORECASE)


@lru_cache(maxsize=256)
def is_ours(host: str) -> bool:
    """Says whether a Host header names this service."""
    return _OURS.fullmatch(host) is not None


def is_public(name: str) -> bool:
    """Says whether the service's proxy and certificate stand in for a name."""
    return _PUBLIC.fullmatch(name) is not None


@lru_cache(maxsize=256)
def is_for_files(host: str) -> bool:
    """Says whether a Host header names a storage account's host for files."""
    return _FILES.match(host) is not None


@lru_cache(maxsize=256)
def is_for_blobs(host: str) -> bool:
    """Says whether a Host header names a storage account's host for blobs."""
    return _BLOBS.match(host) is not None
