"""The service's application without a server: requests are function calls."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from batchhvd.service import app
from batchhvd.service.files.app import Files
from batchhvd.service.store.records import Store

TOKEN = "x" * 43


def built(store: Store, root: Path, files: Files, **options: Any) -> app.App:
    """Returns an application that the token above opens, and whose scheduler nobody wakes."""
    return app.build(store, root, lambda: TOKEN, lambda: None, files, **options)


def ask(application: Any, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Sends a request to an application and returns status and body."""
    place, _, query = path.partition("?")
    headers = [(b"host", b"127.0.0.1:8080"), (b"authorization", f"Bearer {TOKEN}".encode())]
    scope = {"type": "http", "method": method, "path": place, "raw_path": place.encode(), "scheme": "http"}
    scope |= {"query_string": query.encode(), "headers": headers, "client": ("127.0.0.1", 1), "http_version": "1.1"}
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"" if body is None else json.dumps(body).encode()}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(application(scope, receive, send))
    text = sent[1]["body"]
    return sent[0]["status"], json.loads(text) if text else None
