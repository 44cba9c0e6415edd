"""The source of a copy or of a rename: a URL that must lead to this service itself."""

from __future__ import annotations

from urllib.parse import urlsplit

from batchhvd.service.storage.protocol.refusal import CopySourceError, refusal
from batchhvd.service.storage.protocol.request import OWN_HOST, Request, Target, located, read_query, target_of

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def read_url(url: str, request: Request, dots: str) -> tuple[Target, dict[str, str]]:
    """Returns what a URL to this service points at, and its query: the source of a copy or of a rename.

    Args:
        url: the source.
        request: the request that names it; its own host is the only one that is this service.
        dots: the header that says whether dots at the end of the source's names count.
    """
    try:
        parts = urlsplit(url)
        host = parts.netloc.lower()
    except ValueError as error:
        raise refusal("InvalidHeaderValue", "The source is not a URL.") from error
    if host and not _is_own(host, parts.scheme, request):
        raise _foreign(host, request.target.service)
    query = read_query(parts.query)
    target = target_of(host, parts.path, request.target.service)
    return located(target, query.get("sharesnapshot") or query.get("snapshot", ""), dots), query


def _is_own(host: str, scheme: str, request: Request) -> bool:
    """Says whether a host is the one that the request came to: by any account's name, or of the loopback's names."""
    found = OWN_HOST.match(host)
    if found and found[2] != request.target.service:
        return False
    here = {_plain(request.header("host").lower(), request.scheme), _plain(request.server, request.scheme)}
    own = {name for each in here if each for name in _aliases(each)}
    return bool(own & _aliases(_plain(host, scheme)))


def _plain(host: str, scheme: str) -> str:
    """Returns a host without the port that its scheme stands for."""
    return host.removesuffix({"http": ":80", "https": ":443"}.get(scheme, ":"))


def _aliases(host: str) -> set[str]:
    found = OWN_HOST.match(host)
    if found and not host[found.end() :].startswith("localhost"):
        return {"." + host[found.end(1) + 1 :]}
    host = host[found.end() :] if found else host
    name, colon, port = host.rpartition(":") if not host.endswith("]") and ":" in host else (host, "", "")
    return {f"{each}{colon}{port}" for each in _LOOPBACK} if name in _LOOPBACK else {host}


def _foreign(host: str, service: str) -> CopySourceError:
    found = OWN_HOST.match(host)
    if found and found[2] != service:
        why = (
            f"It is on a host for {found[2]}s: nothing is copied between shares and containers; download and upload it."
        )
    else:
        why = f"It is on another host, {host[:80]}: this service copies only what it holds."
    return CopySourceError(
        f"The source of the copy cannot be read. {why}",
        status=404,
        code="CannotVerifyCopySource",
        source_status=404,
        source_code="ResourceNotFound",
    )
