"""A request to the file service as operations read it: account, share, names, query, headers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
from collections.abc import Iterable, Mapping
from datetime import date
from urllib.parse import unquote, unquote_to_bytes

from attrs import evolve, field, frozen
from starlette.types import Scope

from batchhvd.service.storage.protocol import crc64
from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.wire.facts.hosts import ACCOUNT_NAME
from batchhvd.wire.facts.spelling import METADATA, SPELLING

OWN_HOST = re.compile(rf"({ACCOUNT_NAME})\.(file|blob)\.")
"""The beginning of an account's own host for a service."""

_ACCOUNT = re.compile(ACCOUNT_NAME)
_SHARE = re.compile(r"(?!.*--)[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_BLOB_NAME = 1024  # characters of a blob's whole name, as in Azure
_METADATA_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # Azure's rule: a C# identifier
_METADATA_BYTES = 8192
_SNAPSHOT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{7}Z")
_FIRST_VERSION = date(2014, 2, 14)  # of the file service


class TakesLong(Exception):
    """A hurried request has met work that other requests must not wait for; nothing has been done yet."""


@frozen
class Target:
    """What a URL points at.

    Attributes:
        account: the storage account.
        share: the share's name, or "" for the account itself.
        names: the decoded names from the share's root down; empty for the root.
        snapshot: the time of the share's snapshot, or "" for the share as it is.
        service: ``file`` or ``blob``; a container of blobs is called share here, a blob's name has several names.
    """

    account: str
    share: str = ""
    names: tuple[str, ...] = ()
    snapshot: str = ""
    service: str = "file"

    @property
    def path(self) -> str:
        """The names joined by slashes, without one at the front."""
        return "/".join(self.names)


@frozen
class Request:
    """One request, its body read.

    Attributes:
        method: the verb, in capitals.
        target: what it is about.
        raw_path: the path as it stood in the request line: signatures are made over it.
        query: decoded parameters by lower-cased name.
        headers: header values by lower-cased name.
        scheme: ``"http"`` or ``"https"``.
        client: the address it came from, or "".
        server: the address and port that it came to, or "".
        body: the whole body, in the pieces in which it came: joining 4 MiB costs as much as writing them.
        source: what a copy or rename takes, once the request was found to be allowed to; None for everything else.
        spelling: names of metadata headers that have capitals, by lower-cased name.
        may_replace: whether an existing file may be replaced.
        hurried: whether other requests wait for this one; what would take long raises ``TakesLong`` then.
    """

    method: str
    target: Target
    raw_path: str
    query: Mapping[str, str]
    headers: Mapping[str, str] = field(repr=False)
    scheme: str = "http"
    client: str = ""
    server: str = ""
    body: tuple[bytes, ...] = field(default=(), repr=False)
    spelling: Mapping[str, str] = field(factory=dict, repr=False)
    source: Target | None = None
    may_replace: bool = True
    hurried: bool = False

    @property
    def size(self) -> int:
        """The number of bytes in the body."""
        return sum(map(len, self.body))

    def header(self, name: str, default: str = "") -> str:
        """Returns a header's value, or the default if it is absent."""
        return self.headers.get(name, default)

    def knows(self, version: str) -> bool:
        """Says whether the client speaks a version or a later one; one that names none speaks today's."""
        return self.header("x-ms-version", version) >= version

    def required(self, name: str) -> str:
        """Returns a header's value; refuses the request if it is absent."""
        if name not in self.headers:
            raise refusal("MissingRequiredHeader", f"Send {name}.")
        return self.headers[name]

    def number(self, name: str, *, most: int, least: int = 0) -> int:
        """Returns a required header as a whole number between two limits."""
        return _number(self.required(name), f"The header {name}", least, most, "InvalidHeaderValue")

    def origin(self) -> Target:
        """Returns what a copy or rename takes; refuses the request if it names no file."""
        if self.source is None or not self.source.names:
            raise refusal("CannotVerifyCopySource")
        return self.source

    def count(self, name: str, default: int, most: int) -> int:
        """Returns a query parameter as a whole number from 1 to ``most``."""
        value = self.query.get(name, "")
        return _number(value, f"The parameter {name}", 1, most, "InvalidQueryParameterValue") if value else default

    def metadata(self) -> dict[str, str]:
        """Returns the metadata that the request carries, by name as the client spelled it."""
        said = {name: value for name, value in self.headers.items() if name.startswith(METADATA)}
        found = {self.spelling.get(name, name)[len(METADATA) :]: value for name, value in said.items()}
        if "" in found:
            raise refusal("EmptyMetadataKey")
        for name in found:
            if not _METADATA_NAME.fullmatch(name):
                raise refusal("InvalidMetadata", f"{name[:60]!r} is not such a name.")
        if sum(len(name) + len(value) for name, value in found.items()) > _METADATA_BYTES:
            raise refusal("MetadataTooLarge")
        return found

    def check_body(self) -> None:
        """Refuses a body that does not have the MD5 or CRC-64 that the headers promise, if they do."""
        if self.header("content-md5") and not _same(md5(self.body), self.header("content-md5")):
            raise refusal("Md5Mismatch")
        if self.header("x-ms-content-crc64"):
            if self.hurried:
                raise TakesLong
            if not _same(crc64.encoded(self.body), self.header("x-ms-content-crc64")):
                raise refusal("Crc64Mismatch")


def md5(pieces: Iterable[bytes]) -> str:
    """Returns the MD5 of pieces one after another as headers carry it."""
    hashed = hashlib.md5(usedforsecurity=False)
    for piece in pieces:
        hashed.update(piece)
    return base64.b64encode(hashed.digest()).decode()


def _same(computed: str, promised: str) -> bool:
    return hmac.compare_digest(computed.encode(), promised.encode())


def read(scope: Scope, service: str = "file") -> Request:
    """Returns an ASGI scope as a request without its body.

    The path is taken raw: account and share are cut off before anything is decoded, because clients send the separators
    inside a path as ``%2F`` or as ``/``, and sign what they send.
    """
    headers = _headers(scope["headers"])
    _check_version(headers.get("x-ms-version", ""))
    raw_path = scope.get("raw_path", b"").decode("latin-1") or "/"
    query = read_query(scope.get("query_string", b"").decode("latin-1"))
    target = target_of(headers.get("host", ""), raw_path, service)
    host, port = scope.get("server") or ("", None)
    spelling = scope.get("extensions", {}).get(SPELLING, {})
    return Request(
        method=scope["method"],
        target=located(target, query.get("sharesnapshot", ""), headers.get("x-ms-allow-trailing-dot", "")),
        raw_path=raw_path,
        query=query,
        headers=headers,
        scheme=_scheme(scope, headers),
        client=(scope.get("client") or ("", 0))[0],
        server=f"{host}:{port}" if port else "",
        spelling={name.decode("latin-1"): spelled.decode("latin-1") for name, spelled in spelling.items()},
    )


def is_name(account: str, share: str) -> bool:
    """Says whether a storage account and a share can have these names."""
    return bool(_ACCOUNT.fullmatch(account) and _SHARE.fullmatch(share))


def located(target: Target, snapshot: str, dots: str) -> Target:
    """Returns a target in a snapshot, its names without the dots at their ends if those are not to count."""
    if snapshot and not _SNAPSHOT.fullmatch(snapshot):
        raise refusal("InvalidQueryParameterValue", "A snapshot is named 2019-02-12T19:33:20.0000000Z.")
    if snapshot:
        target = evolve(target, snapshot=snapshot)
    if dots.lower() == "false" and any(name.endswith(".") for name in target.names):
        target = evolve(target, names=tuple(name.rstrip(".") or name for name in target.names))
    return target


def _check_version(text: str) -> None:
    """Refuses a version that is not a date since the first one; newer ones than this service knows are taken."""
    if not text:
        return
    try:
        known = date.fromisoformat(text) >= _FIRST_VERSION if re.fullmatch(r"\d{4}-\d\d-\d\d", text) else False
    except ValueError:
        known = False
    if not known:
        raise refusal("InvalidHeaderValue", f"x-ms-version must be a date from 2014-02-14 on, not {text[:60]!r}.")


def target_of(host: str, raw_path: str, service: str = "file") -> Target:
    """Returns what a host and a raw path denote, by the host's account or by the path's first segment."""
    found = OWN_HOST.match(host.lower())
    by_host = found is not None and found[2] == service
    segments = [found[1], *raw_path[1:].split("/", 1)] if found and by_host else raw_path[1:].split("/", 2)
    account, share, rest = (*segments, "", "")[:3]
    share = unquote(share)
    if share and not _SHARE.fullmatch(share):
        kind = "share" if service == "file" else "container"
        raise refusal(
            "InvalidResourceName", f"A {kind}'s name must have 3 to 63 lower-case letters, digits and single hyphens."
        )
    names = _names(rest) if service == "file" else _blob_names(rest)
    if names and not share:
        raise refusal("InvalidResourceName", "The path names a file but no share.")
    return Target(account if _ACCOUNT.fullmatch(account) else "", share, names, service=service)


def _names(rest: str) -> tuple[str, ...]:
    """Decodes the part of a path below the share; names that no directory entry can have are refused.

    Bytes that are not UTF-8 become surrogates, as in ``os.listdir``: a job may make such names.
    """
    names = tuple(name for name in os.fsdecode(unquote_to_bytes(rest)).split("/") if name)
    for name in names:
        _check_name(name)
    return names


def _blob_names(rest: str) -> tuple[str, ...]:
    """Decodes a blob's name; one that would not come back from the directories as it went in is refused."""
    whole = os.fsdecode(unquote_to_bytes(rest))
    if len(whole) > _BLOB_NAME:
        raise refusal("InvalidResourceName", f"A blob's name may have at most {_BLOB_NAME} characters.")
    names = tuple(whole.split("/")) if whole else ()
    if "" in names:
        why = "Blobs are files here, so a blob's name may not begin or end with '/' or have '//' in it"
        raise refusal("InvalidResourceName", f"{why}: {whole[:80]!r}.")
    for name in names:
        _check_name(name)
    return names


def _check_name(name: str) -> None:
    if name in (".", "..") or "\0" in name:
        raise refusal("InvalidResourceName", "'.', '..' and NUL cannot be part of a path.")
    if len(os.fsencode(name)) > 255:
        raise refusal("InvalidResourceName", "A name between two '/' may have at most 255 bytes.")


def _scheme(scope: Scope, headers: Mapping[str, str]) -> str:
    """Returns the scheme that the client used, as a TLS proxy in front of the service reports it."""
    forwarded = headers.get("x-forwarded-proto", "").lower()
    return forwarded if forwarded in ("http", "https") else str(scope.get("scheme", "http"))


def _headers(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in pairs:
        key = name.decode("latin-1").lower()
        text = value.decode("latin-1")
        headers[key] = f"{headers[key]},{text}" if key in headers else text
    return headers


def read_query(text: str) -> dict[str, str]:
    """Reads a query as storage clients sign it: a plus is a plus, and a parameter without '=' is empty."""
    query: dict[str, str] = {}
    for pair in filter(None, text.split("&")):
        name, _, value = pair.partition("=")
        query[unquote(name).lower()] = unquote(value)
    return query


def _number(text: str, what: str, least: int, most: int, code: str) -> int:
    if not re.fullmatch(r"[0-9]{1,19}", text) or not least <= int(text) <= most:
        raise refusal(code, f"{what} must be a whole number from {least} to {most}.")
    return int(text)
