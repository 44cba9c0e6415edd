"""What counts as a credential: only who has shown one may keep a connection, and have an answer held back."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from batchhvd.service import app
from batchhvd.service.files.app import Files
from batchhvd.service.http.incoming import TRUST, trust
from batchhvd.service.store.records import Store

SECRET, ACCOUNT, KEY = "s" * 43, "account", "a2V5"


Asked = tuple[bool, int, bytes, dict[str, str]]


class Asking:
    """Asks an application, and sees whether it trusts who asks."""

    def __init__(self, root: Path) -> None:
        self.store = Store(root / "state.sqlite")
        self.files = Files(root / "shares", {ACCOUNT: [KEY]}.get, admitted=trust)
        self._app = app.build(self.store, root, lambda: SECRET, lambda: None, self.files)

    def ask(self, method: str, url: str, body: bytes = b"", **headers: str) -> Asked:
        """Returns whether it was trusted, the status, the body and the headers of the answer."""
        return asyncio.run(self._ask(method, url, body, {"host": "127.0.0.1", **headers}))

    async def _ask(self, method: str, url: str, body: bytes, headers: dict[str, str]) -> Asked:
        marks: list[bool] = []
        sent: list[Any] = []
        path, _, query = url.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "scheme": "http",
            "raw_path": path.encode(),
            "path": path,
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "server": ("127.0.0.1", 1),
            "client": ("127.0.0.1", 2),
            "extensions": {TRUST: lambda: marks.append(True)},
        }
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            return messages.pop()

        async def send(message: Any) -> None:
            sent.append(message)

        await self._app(scope, receive, send)
        found = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
        return bool(marks), sent[0]["status"], b"".join(message.get("body", b"") for message in sent), found


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    made = Asking(tmp_path)
    yield made
    made.files.close()
    made.store.close()


def test_a_token(asking: Asking) -> None:
    url = "/subscriptions?api-version=1"
    assert asking.ask("GET", url, authorization=f"Bearer {SECRET}")[:2] == (True, 200)
    assert asking.ask("GET", "/no.where", authorization=f"Bearer {SECRET}")[:2] == (True, 404)
    for wrong in ("Bearer x", "Bearer ", "", f"Basic {SECRET}"):
        assert asking.ask("GET", url, authorization=wrong)[:2] == (False, 401)


def test_the_secret_by_which_a_token_is_got(asking: Asking) -> None:
    form = b"grant_type=client_credentials&client_secret="
    trusted, status, body, _ = asking.ask("POST", "/t/oauth2/token", form + SECRET.encode())
    assert (trusted, status) == (True, 200)
    issued = json.loads(body)["access_token"]
    assert asking.ask("GET", "/subscriptions?api-version=1", authorization=f"Bearer {issued}")[:2] == (True, 200)
    assert asking.ask("POST", "/t/oauth2/token", form + b"x")[:2] == (False, 401)


def test_a_code_and_a_session(asking: Asking) -> None:
    link = asking.ask("POST", "/status.link", authorization=f"Bearer {SECRET}")[2]
    url = urlsplit(json.loads(link)["url"])
    assert asking.ask("POST", "/session", b'{"code": "x"}', host=url.netloc)[:2] == (False, 403)
    body = json.dumps({"code": url.fragment}).encode()
    trusted, status, _, headers = asking.ask("POST", "/session", body, host=url.netloc)
    assert (trusted, status) == (True, 204)
    cookie = headers["set-cookie"].partition(";")[0]
    assert asking.ask("GET", "/status.json", host=url.netloc, cookie=cookie)[:2] == (True, 200)
    assert asking.ask("GET", "/status.json", host=url.netloc)[:2] == (False, 401)


def test_a_link_and_what_needs_none(asking: Asking) -> None:
    link = asking.files.sas(ACCOUNT, "share", "f", "r", time.time() + 60)
    assert asking.ask("GET", f"/{ACCOUNT}/share/f?{link}")[:2] == (True, 404)
    assert asking.ask("GET", f"/{ACCOUNT}/share/f?{link}0")[:2] == (False, 403)
    assert asking.ask("GET", f"/{ACCOUNT}/share/f")[0] is False
    for url in ("/metadata/endpoints", "/common/discovery/instance", f"/status.proof?nonce={'0' * 64}", "/"):
        assert asking.ask("GET", url)[0] is False
