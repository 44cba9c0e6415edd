"""What the service answers without a token: how to get one."""

from __future__ import annotations

import re

from batchhvd.errors import BadRequestError, NotFoundError
from batchhvd.service.http import limits, tokens
from batchhvd.service.http.exchange import Answer
from batchhvd.service.http.incoming import Incoming
from batchhvd.service.http.tokens import Tokens
from batchhvd.wire.facts.peer_proof import PROOF_PATH, proof

_TOKEN = re.compile(r"/(?:[^/]+/)?(oauth2/token|oauth2/v2\.0/token)/?", re.IGNORECASE)
_CONFIGURATION = re.compile(r"/([^/]+)/v2\.0/\.well-known/openid-configuration", re.IGNORECASE)

_NONCE = re.compile("[0-9a-f]{64}")
_ELSEWHERE = "The status page has an address of its own; `batchhvd status --open` prints a link to it."


def is_login(path: str) -> bool:
    """Says whether a path is one of the token endpoints' or of their description."""
    return bool(_TOKEN.fullmatch(path) or _CONFIGURATION.fullmatch(path))


async def answer(request: Incoming, bearer: Tokens) -> Answer | None:
    """Answers what needs no token; returns None for everything else."""
    if request.method == "POST":
        grant = _TOKEN.fullmatch(request.path)
        if grant is None:
            return None
        granted = tokens.grant(bearer, await request.body(limits.FORM_BYTES), _version(grant.group(1)))
        if granted.status == 200:
            request.trust()
        return granted
    if request.method in ("GET", "HEAD") and request.path == "/":
        raise NotFoundError(_ELSEWHERE, code="StatusPageElsewhere")
    if request.method == "GET" and request.path == PROOF_PATH:
        return prove(request, bearer)
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


def prove(request: Incoming, bearer: Tokens) -> Answer:
    """Proves to a client that this is the root's service, before the client shows its token."""
    nonce, (host, port) = request.query().get("nonce", ""), request.server
    if not _NONCE.fullmatch(nonce):
        raise BadRequestError("nonce must have 64 hexadecimal digits.", code="InvalidField", target="nonce")
    return Answer(200, {"proof": proof(bearer.secret, nonce, host, port)}, {"Cache-Control": "no-store"})


def _version(path: str) -> int:
    return 2 if "v2.0" in path.lower() else 1


def _endpoints(base: str) -> dict[str, object]:
    return {
        "galleryEndpoint": base,
        "graphEndpoint": base,
        "portalEndpoint": base,
        "authentication": {"loginEndpoint": f"{base}/adfs", "audiences": ["https://management.core.windows.net/"]},
    }
