"""A request to the file service as operations read it: account, share, names, query, headers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
from collections.abc import Iterable, Mapping
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from attrs import field, frozen
from starlette.types import Scope

from batchhvd.service.files.protocol.refusal import refusal
from batchhvd.wire.facts.hosts import ACCOUNT_NAME

_FILE_HOST = re.compile(rf"({ACCOUNT_NAME})\.file\.")
_ACCOUNT = re.compile(ACCOUNT_NAME)
_SHARE = re.compile(r"(?!.*--)[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_META = "x-ms-meta-"
_METADATA_BYTES = 8192


class TakesLong(Exception):
    """A hurried request has met work that other requests must not wait for; nothing has been done yet."""


@frozen
class Target:
    """What a URL points at.

    Attributes:
        account: the storage account.
        share: the share's name, or "" for the account itself.
        names: the decoded names from the share's root down; empty for the root.
    """

    account: str
    share: str = ""
    names: tuple[str, ...] = ()

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
        body: the whole body, in the pieces in which it came: joining 4 MiB costs as much as writing them.
        source: what a copy or rename takes, once the request was found to be allowed to; None for everything else.
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
    body: tuple[bytes, ...] = field(default=(), repr=False)
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
        """Returns the metadata that the request carries, by lower-cased name."""
        found = {name[len(_META) :]: value for name, value in self.headers.items() if name.startswith(_META)}
        if "" in found:
            raise refusal("InvalidHeaderValue", f"A header {_META}… has no name.")
        if sum(len(name) + len(value) for name, value in found.items()) > _METADATA_BYTES:
            raise refusal("MetadataTooLarge")
        return found

    def check_md5(self) -> None:
        """Refuses a body that does not have the MD5 of its Content-MD5 header, if it has one."""
        promised = self.header("content-md5")
        if not promised:
            return
        hashed = hashlib.md5(usedforsecurity=False)
        for piece in self.body:
            hashed.update(piece)
        digest = base64.b64encode(hashed.digest()).decode()
        if not hmac.compare_digest(digest.encode(), promised.encode()):
            raise refusal("Md5Mismatch")


def read(scope: Scope) -> Request:
    """Returns an ASGI scope as a request without its body.

    The path is taken raw: account and share are cut off before anything is decoded, because clients send the separators
    inside a path as ``%2F`` or as ``/``, and sign what they send.
    """
    headers = _headers(scope["headers"])
    raw_path = scope.get("raw_path", b"").decode("latin-1") or "/"
    return Request(
        method=scope["method"],
        target=_target(headers.get("host", ""), raw_path),
        raw_path=raw_path,
        query=_query(scope.get("query_string", b"").decode("latin-1")),
        headers=headers,
        scheme=_scheme(scope, headers),
        client=(scope.get("client") or ("", 0))[0],
    )


def is_name(account: str, share: str) -> bool:
    """Says whether a storage account and a share can have these names."""
    return bool(_ACCOUNT.fullmatch(account) and _SHARE.fullmatch(share))


def read_url(url: str) -> tuple[Target, dict[str, str]]:
    """Returns what a URL to this service points at, and its query: the source of a copy or of a rename."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise refusal("InvalidHeaderValue", "The source is not a URL.") from error
    return _target(parts.netloc, parts.path), _query(parts.query)


def _target(host: str, raw_path: str) -> Target:
    found = _FILE_HOST.match(host.lower())
    segments = [found[1], *raw_path[1:].split("/", 1)] if found else raw_path[1:].split("/", 2)
    account, share, rest = (*segments, "", "")[:3]
    share = unquote(share)
    if share and not _SHARE.fullmatch(share):
        raise refusal(
            "InvalidResourceName", "A share's name must have 3 to 63 lower-case letters, digits and single hyphens."
        )
    names = _names(rest)
    if names and not share:
        raise refusal("InvalidResourceName", "The path names a file but no share.")
    return Target(account if _ACCOUNT.fullmatch(account) else "", share, names)


def _names(rest: str) -> tuple[str, ...]:
    """Decodes the part of a path below the share; names that no directory entry can have are refused.

    Bytes that are not UTF-8 become surrogates, as in ``os.listdir``: a job may make such names.
    """
    names = tuple(name for name in os.fsdecode(unquote_to_bytes(rest)).split("/") if name)
    for name in names:
        if name in (".", "..") or "\0" in name:
            raise refusal("InvalidResourceName", "'.', '..' and NUL cannot be part of a path.")
        if len(os.fsencode(name)) > 255:
            raise refusal("InvalidResourceName", "A name may have at most 255 bytes.")
    return names


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


def _query(text: str) -> dict[str, str]:
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
