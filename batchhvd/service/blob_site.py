"""The blob service on a port of its own: there a path names an account's container, on the main one its share."""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import Receive, Scope, Send

from batchhvd.errors import AccessDeniedError
from batchhvd.service.http import host, outgoing
from batchhvd.service.http.exchange import FileService
from batchhvd.service.http.incoming import Incoming


class BlobSite:
    """The ASGI application of the blob service's own port.

    Args:
        blobs: the blob service.
        touch: called for each request, so that an idle service can be ended.
    """

    def __init__(self, blobs: FileService, touch: Callable[[], None]) -> None:
        self._blobs, self._touch = blobs, touch

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            return
        self._touch()
        request = Incoming(scope, receive)
        if request.hosts == 1 and host.is_ours(request.host):
            await self._blobs(scope, receive, outgoing.named(send, {}))
            return
        text = f"This service does not answer for the host '{request.host}'."
        answer = outgoing.refused(AccessDeniedError(text, code="HostNotAllowed"))
        named = outgoing.named(send, outgoing.CONFINED)
        await outgoing.render(answer, "", head=request.method == "HEAD")(scope, receive, named)
