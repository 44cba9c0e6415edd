"""The blob service on a port of its own: there a path names an account's container, on the main one its share."""

from __future__ import annotations

import time
from collections.abc import Callable

from starlette.types import Receive, Scope, Send

from batchhvd.errors import AccessDeniedError, BadRequestError
from batchhvd.service import public
from batchhvd.service.http import host, outgoing
from batchhvd.service.http.exchange import Answer, FileService
from batchhvd.service.http.incoming import Incoming
from batchhvd.service.http.tokens import Tokens
from batchhvd.wire.facts.peer_proof import PROOF_PATH


class BlobSite:
    """The ASGI application of the blob service's own port.

    Args:
        blobs: the blob service.
        touch: called for each request, so that an idle service can be ended.
        secret: returns the present secret of the root.
    """

    def __init__(self, blobs: FileService, touch: Callable[[], None], secret: Callable[[], str]) -> None:
        self._blobs, self._touch, self._secret = blobs, touch, secret

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            return
        self._touch()
        request = Incoming(scope, receive)
        ours = request.hosts == 1 and host.is_ours(request.host)
        if ours and request.path != PROOF_PATH:
            await self._blobs(scope, receive, outgoing.named(send, {}))
            return
        answer = self._prove(request) if ours else _not_ours(request)
        named = outgoing.named(send, outgoing.CONFINED)
        await outgoing.send_answer(answer, "", named, head=request.method == "HEAD")

    def _prove(self, request: Incoming) -> Answer:
        """Proves to a client that this is the root's service, as on the main port."""
        try:
            return public.prove(request, Tokens(self._secret(), time.time))
        except BadRequestError as error:
            return outgoing.refused(error)


def _not_ours(request: Incoming) -> Answer:
    text = f"This service does not answer for the host '{request.host}'."
    return outgoing.refused(AccessDeniedError(text, code="HostNotAllowed"))
