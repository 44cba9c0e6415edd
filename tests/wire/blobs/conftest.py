"""A blob service on a loopback port, and real storage clients for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from azure.storage.blob import BlobServiceClient, ContainerClient

from batchhvd.service import server
from batchhvd.service.blobs.app import Blobs
from tests.support.waiting import until

ACCOUNT, OTHER = "mystorageaccount", "otheraccount"
KEYS = {
    ACCOUNT: ["Zmlyc3Qga2V5IG9mIHRoZSBmaXJzdCBhY2NvdW50IQ==", "c2Vjb25kIGtleSBvZiB0aGUgZmlyc3QgYWNjb3VudA=="],
    OTHER: ["dGhlIG90aGVyIGFjY291bnQncyBrZXk="],
}
# A refused request is a test's result, not something to try again for a minute; loopback needs no proxy.
CLIENT: dict[str, Any] = {"retry_total": 0, "use_env_settings": False}


def code(error: pytest.ExceptionInfo[Any]) -> tuple[int | None, str]:
    """Returns the status and the error code that the client read."""
    read = error.value.error_code
    return error.value.status_code, str(getattr(read, "value", read))


class BlobPlace:
    """A running blob service: where it is, what it keeps, its clock, and clients for it."""

    def __init__(self, root: Path) -> None:
        self.ahead = 0.0
        self.root = root
        self.blobs = Blobs(root, KEYS.get, now=lambda: time.time() + self.ahead)
        self.url = ""

    def account(self, credential: Any = None, name: str = ACCOUNT, **settings: Any) -> BlobServiceClient:
        """Returns a client for an account, with its first key where no credential is given."""
        return BlobServiceClient(f"{self.url}/{name}", credential or KEYS[name][0], **CLIENT, **settings)

    def left(self) -> list[Path]:
        """Returns what lies half made beside the containers."""
        own = self.root / ".files"
        return [*(own / "staging").iterdir(), *(path for path in (own / "blocks").rglob("*") if path.is_file())]


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlobPlace]:
    """One service for all tests of this folder; each test makes its own container."""
    running = BlobPlace(tmp_path_factory.mktemp("blobs") / "Behälter für alle")
    listener, http = server.listen(0), server.server(running.blobs)
    running.url = server.url(listener)
    thread = threading.Thread(target=http.run, kwargs={"sockets": [listener]})
    thread.start()
    until(lambda: http.started)
    yield running
    http.should_exit = True
    thread.join(20)
    listener.close()
    running.blobs.close()
    assert not list((running.root / ".files" / "staging").iterdir()), "a blob was left half made"


@pytest.fixture(scope="session")
def web() -> Iterator[httpx.Client]:
    """A plain HTTP client, for what the storage client does not send."""
    with httpx.Client(trust_env=False, timeout=20) as client:
        yield client


@pytest.fixture
def container(place: BlobPlace, request: pytest.FixtureRequest) -> Iterator[ContainerClient]:
    """A fresh container."""
    name = f"container-{abs(hash(request.node.nodeid)) % 10**12}"
    client = place.account(max_single_put_size=1 << 20, max_block_size=1 << 20).create_container(name)
    yield client
    client.delete_container()


@pytest.fixture
def folder(place: BlobPlace, container: ContainerClient) -> Path:
    """The directory that the fresh container is."""
    path = place.blobs.directory(ACCOUNT, str(container.container_name))
    assert path is not None
    return path
