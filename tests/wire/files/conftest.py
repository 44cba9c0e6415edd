"""A file service on a loopback port, and real storage clients for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from azure.storage.fileshare import ShareClient, ShareServiceClient

from batchhvd.service import server
from batchhvd.service.files.app import Files

ACCOUNT, OTHER, PREMIUM, PROVISIONED = "mystorageaccount", "otheraccount", "premiumaccount", "provisioned"
SKUS = {PREMIUM: "Premium_LRS", PROVISIONED: "StandardV2_LRS"}
KEYS = {
    ACCOUNT: ["Zmlyc3Qga2V5IG9mIHRoZSBmaXJzdCBhY2NvdW50IQ==", "c2Vjb25kIGtleSBvZiB0aGUgZmlyc3QgYWNjb3VudA=="],
    PREMIUM: ["dGhlIHByZW1pdW0gYWNjb3VudCdzIGtleQ=="],
    PROVISIONED: ["dGhlIHByb3Zpc2lvbmVkIGFjY291bnQncyBrZXk="],
    OTHER: ["dGhlIG90aGVyIGFjY291bnQncyBrZXk=", "dGhlIG90aGVyIGFjY291bnQncyBzZWNvbmQga2V5"],
}
# A refused request is a test's result, not something to try again for a minute; loopback needs no proxy.
CLIENT: dict[str, Any] = {"retry_total": 0, "use_env_settings": False}


def code(error: pytest.ExceptionInfo[Any]) -> tuple[int | None, str]:
    """Returns the status and the error code that the client read."""
    read = error.value.error_code
    return error.value.status_code, str(getattr(read, "value", read))


class Service:
    """A running file service: where it is, what it keeps, its clock, and clients for it."""

    def __init__(self, root: Path) -> None:
        self.ahead = 0.0
        self.root = root
        self.files = Files(root, KEYS.get, now=lambda: time.time() + self.ahead, sku=lambda name: SKUS.get(name, ""))
        self.url = ""

    def account(self, name: str = ACCOUNT, credential: Any = None, **settings: Any) -> ShareServiceClient:
        """Returns a client for an account, with its first key where no credential is given."""
        return ShareServiceClient(f"{self.url}/{name}", credential or KEYS[name][0], **CLIENT, **settings)

    def share(self, name: str, credential: Any = None, account: str = ACCOUNT, **settings: Any) -> ShareClient:
        """Returns a client for a share."""
        return ShareClient(
            f"{self.url}/{account}", name, credential=credential or KEYS[account][0], **CLIENT, **settings
        )


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service for all tests of this folder; each test makes its own share."""
    running = Service(tmp_path_factory.mktemp("files") / "Dateien für alle")
    # As the service listens: without TCP_NODELAY each answer would wait 40 ms for its second piece.
    listener, http = server.listen(0), server.server(running.files)
    running.url = server.url(listener)
    thread = threading.Thread(target=http.run, kwargs={"sockets": [listener]})
    thread.start()
    _until(lambda: http.started)
    yield running
    http.should_exit = True
    thread.join(20)
    listener.close()
    running.files.close()
    assert not list((running.root / ".files" / "staging").iterdir()), "a file was left half made"


@pytest.fixture(scope="session")
def web() -> Iterator[httpx.Client]:
    """A plain HTTP client, for what the storage client does not send."""
    with httpx.Client(trust_env=False, timeout=20) as client:
        yield client


@pytest.fixture
def share(service: Service, request: pytest.FixtureRequest) -> Iterator[ShareClient]:
    """A fresh share."""
    client = service.share(f"share-{abs(hash(request.node.nodeid)) % 10**12}")
    client.create_share()
    yield client
    client.delete_share(delete_snapshots="include-leased")


@pytest.fixture
def folder(service: Service, share: ShareClient) -> Path:
    """The directory that the fresh share is."""
    path = service.files.directory(ACCOUNT, share.share_name)
    assert path is not None
    return path


def _until(done: Callable[[], bool], timeout: float = 20.0) -> None:
    deadline = time.monotonic() + timeout
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError("the service did not start")
        time.sleep(0.01)
