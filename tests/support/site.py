"""The status page's host as a browser sees it: a client with a session of its own."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import httpx


class Site:
    """Speaks to the status page of a running service under the page's own name."""

    def __init__(self, running: Any) -> None:
        url = urlsplit(running.call("POST", f"{running.url}/status.link").json()["url"])
        self.host, self.code = url.netloc, url.fragment
        self.client = httpx.Client(base_url=running.url, headers={"Host": self.host}, trust_env=False)

    def enter(self, code: str = "") -> httpx.Response:
        """Opens a session with a code, its own if none is given."""
        answer = self.client.post("/session", json={"code": code or self.code})
        if "set-cookie" in answer.headers:  # the client would keep it for the address, not for the name
            self.client.headers["Cookie"] = answer.headers["set-cookie"].partition(";")[0]
        return answer

    def get(self, path: str, **query: str) -> httpx.Response:
        """Reads something."""
        return self.client.get(path, params=query)
