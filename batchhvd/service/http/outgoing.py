"""Answers on their way out: errors as clients read them, bodies as JSON, and which service gave the answer."""

from __future__ import annotations

import json
from collections.abc import Mapping

from starlette.types import Message, Send

from batchhvd._version import __version__
from batchhvd.errors import ServiceError
from batchhvd.service.http.exchange import Answer


def refused(error: ServiceError) -> Answer:
    """Returns an error as an answer."""
    body: dict[str, object] = {"code": error.code, "message": str(error)}
    if error.target:
        body["target"] = error.target
    if error.details:
        body["details"] = list(error.details)
    return Answer(error.status or 400, {"error": body})


def failed(request_id: str) -> Answer:
    """Returns the answer to a request on which the service failed."""
    text = f"The service failed on this request; its log tells more under {request_id}."
    return Answer(500, {"error": {"code": "InternalServerError", "message": text}})


async def send_answer(answer: Answer, request_id: str, send: Send, *, head: bool) -> None:
    """Sends an answer over ASGI; ``head`` leaves the body out."""
    body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
    content = b"" if answer.body is None or head else body
    fields = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers.items()]
    if answer.status not in (204, 304):
        fields.append((b"content-length", str(len(content)).encode()))
    if content and "Content-Type" not in answer.headers:
        fields.append((b"content-type", b"application/json; charset=utf-8"))
    fields.append((b"x-ms-request-id", request_id.encode()))  # the last one: when it has arrived, all have
    await send({"type": "http.response.start", "status": answer.status, "headers": fields})
    await send({"type": "http.response.body", "body": content})


_NAMED = (b"x-batchhvd-service", __version__.encode())

CONFINED = {"Content-Security-Policy": "sandbox", "X-Content-Type-Options": "nosniff"}
"""What confines an answer in a browser: no script runs, its origin is nobody's, and its type is what it says.

Names and logs are other people's words, so every answer but those of the status page's host carries it.
"""


def named(send: Send, added: Mapping[str, str]) -> Send:
    """Returns a ``send`` that adds headers to each answer, among them which service gave it."""
    pairs = [_NAMED, *((name.lower().encode(), value.encode()) for name, value in added.items())]

    async def send_named(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*pairs, *message["headers"]]}
        await send(message)

    return send_named
