"""A service on loopback, with a group and a storage account for each body that is driven against it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def until(done: Callable[[], Any], seconds: float = 180) -> Any:
    """Asks until the answer is true and returns it; the last answer when the time is over."""
    end = time.monotonic() + seconds
    while not (found := done()) and time.monotonic() < end:
        time.sleep(0.1)
    return found


def fetch(url: str) -> str:
    """Returns what a link leads to."""
    with _OPENER.open(url, timeout=60) as answer:
        return str(answer.read().decode())


class Site:
    """A running service: its root, endpoint and token."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = (root / "endpoint").read_text().strip()
        self.token = (root / "token").read_text().strip()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Sends a request to Resource Manager and returns the document of the answer."""
        url = f"{self.url}/subscriptions/{SUBSCRIPTION}{path}{'&' if '?' in path else '?'}api-version=2018-05-01"
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, headers, method=method)
        with _OPENER.open(request, timeout=60) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def account(self, group: str) -> tuple[str, str]:
        """Makes a group with a storage account, and returns the account's name and key."""
        name = f"psdk{os.urandom(6).hex()}"
        self.ask("PUT", f"/resourceGroups/{group}", {"location": "northeurope"})
        path = f"/resourceGroups/{group}/providers/Microsoft.Storage/storageAccounts/{name}"
        self.ask("PUT", path, {"sku": {"name": "Standard_LRS"}, "kind": "Storage", "location": "northeurope"})
        return name, self.ask("POST", f"{path}/listKeys")["keys"][0]["value"]

    def share(self, account: str, key: str, name: str) -> None:
        """Makes a share."""
        from azure.storage.fileshare import ShareClient

        ShareClient(f"{self.url}/{account}", name, credential=key).create_share()

    def file(self, account: str, share: str, path: str) -> str:
        """Returns a file of a share, as it lies on the disk that the file service serves."""
        return (self.root / "shares" / account / share / path).read_text()

    def container(self, account: str, key: str, name: str) -> None:
        """Makes a blob container with today's client."""
        blob: Any = import_module("azure.storage.blob")  # only make upstream has it
        url = f"https://{account}.blob.core.windows.net"
        proxy = (self.root / "proxy").read_text().strip()
        options = {"proxies": {"https": proxy}, "connection_verify": str(self.root / "ca.pem"), "retry_total": 0}
        blob.ContainerClient(url, name, credential=key, **options).create_container()


def start(root: Path) -> subprocess.Popen[bytes]:
    """Starts a service with its own proxy and authority, and waits until it answers.

    Images are not run: the bodies name one of a registry, and no test may depend on what can be had from there.
    """
    command = [sys.executable, "-m", "batchhvd.service", "--root", str(root), "--tls", "--containers", "off"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: (root / "endpoint").exists() and (root / "proxy").exists() or process.poll() is not None)
    if process.poll() is not None:
        raise SystemExit(f"the service did not start: {(root / 'service.log').read_text()[-2000:]}")
    return process
