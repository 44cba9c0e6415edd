"""What the service answers without a token: how to get one, and the status page, which asks for one."""

from __future__ import annotations

import re

from batchhvd.service.http import tokens
from batchhvd.service.http.exchange import Answer
from batchhvd.service.http.incoming import Incoming
from batchhvd.service.http.tokens import Tokens
from batchhvd.service.status import page

_TOKEN = re.compile(r"/(?:[^/]+/)?(oauth2/token|oauth2/v2\.0/token)/?", re.IGNORECASE)
_CONFIGURATION = re.compile(r"/([^/]+)/v2\.0/\.well-known/openid-configuration", re.IGNORECASE)


def is_login(path: str) -> bool:
    """Says whether a path is one of the token endpoints' or of their description."""
    return bool(_TOKEN.fullmatch(path) or _CONFIGURATION.fullmatch(path))


async def answer(request: Incoming, bearer: Tokens) -> Answer | None:
    """Answers what needs no token; returns None for everything else."""
    if request.method == "POST":
        grant = _TOKEN.fullmatch(request.path)
        return tokens.grant(bearer, await request.body(), _version(grant.group(1))) if grant else None
    if request.method in ("GET", "HEAD") and request.path == "/":
        return page.answer()
    return _read(request) if request.method == "GET" else None


def _read(request: Incoming) -> Answer | None:
    configuration = _CONFIGURATION.fullmatch(request.path)
    if configuration:
        return tokens.configuration(request.base, configuration.group(1))
    if request.plain_path == "/common/discovery/instance":
        return tokens.discovery(request.base)
    if request.plain_path == "/metadata/endpoints":
        return Answer(200, _endpoints(request.base))
    return None


def _version(path: str) -> int:
    return 2 if "v2.0" in path.lower() else 1


def _endpoints(base: str) -> dict[str, object]:
    return {
        "galleryEndpoint": base,
        "graphEndpoint": base,
        "portalEndpoint": base,
        "authentication": {"loginEndpoint": f"{base}/adfs", "audiences": ["https://management.core.windows.net/"]},
    }
