"""kill -9 of the blob service in the middle of uploads, and clients that go away: the old blob, or the new one."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import AzureError
from azure.storage.blob import BlobServiceClient, ContainerClient, generate_container_sas

from tests.support.waiting import until
from tests.wire.blobs.conftest import ACCOUNT, CLIENT, KEYS, BlobPlace

SIZE = (6 << 20) + 5
PROGRAM = """
import socket, sys
import uvicorn
from batchhvd.service.blobs.app import Blobs
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
blobs = Blobs(sys.argv[1], lambda account: [sys.argv[2]])
uvicorn.Server(uvicorn.Config(blobs, http="httptools", lifespan="off", log_level="error")).run([listener])
"""
STARTED: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    """Leaves no service behind if a test fails."""
    yield
    while STARTED:
        process = STARTED.pop()
        if process.poll() is None:
            process.kill()
        process.communicate()


def start(root: Path, block: int) -> tuple[subprocess.Popen[str], ContainerClient]:
    """Starts a service of its own process and returns a client for a container in it."""
    command = [sys.executable, "-c", PROGRAM, str(root), KEYS[ACCOUNT][0]]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    STARTED.append(process)
    assert process.stdout is not None
    url = f"http://127.0.0.1:{int(process.stdout.readline())}/{ACCOUNT}"
    sizes: dict[str, Any] = {"max_single_put_size": block, "max_block_size": block}
    container = BlobServiceClient(url, KEYS[ACCOUNT][0], **CLIENT, **sizes).get_container_client("mine")
    until(lambda: answers(container))
    return process, container


def answers(container: ContainerClient) -> bool:
    try:
        return container.exists() or bool(container.create_container())
    except AzureError:
        return False


@pytest.mark.parametrize("block", [1 << 20, 64 << 20])
def test_a_killed_service_leaves_the_old_blob_or_the_new_one(tmp_path: Path, block: int) -> None:
    root, chance = tmp_path / "Behälter", random.Random(block)
    old, new = chance.randbytes(SIZE), chance.randbytes(SIZE)
    process, container = start(root, block)
    container.upload_blob("d/blob", old)
    sent = threading.Event()

    def upload() -> None:
        try:
            while True:
                container.upload_blob("d/blob", new, overwrite=True, progress_hook=lambda *_: sent.set())
        except AzureError:
            sent.set()

    thread = threading.Thread(target=upload)
    thread.start()
    assert sent.wait(20)
    process.kill()
    process.wait()
    thread.join(20)
    _, container = start(root, block)
    assert container.download_blob("d/blob").readall() in (old, new)
    assert [blob.name for blob in container.list_blobs()] == ["d/blob"]
    assert not list((root / ".files" / "staging").iterdir())


def test_a_client_that_goes_away_leaves_nothing(container: ContainerClient, place: BlobPlace) -> None:
    before = place.left()
    host, _, port = place.url.removeprefix("http://").partition(":")
    soon = datetime.now(timezone.utc) + timedelta(hours=1)
    link = generate_container_sas(
        ACCOUNT, str(container.container_name), account_key=KEYS[ACCOUNT][0], permission="cw", expiry=soon
    )
    with socket.create_connection((host, int(port)), 20) as line:
        head = f"PUT /{ACCOUNT}/{container.container_name}/half?{link} HTTP/1.1\r\nHost: {host}\r\n"
        line.sendall(f"{head}x-ms-blob-type: BlockBlob\r\nContent-Length: 9000000\r\n\r\n".encode())
        line.sendall(bytes(3 << 20))
        until(lambda: len(place.left()) > len(before))
    until(lambda: place.left() == before)
    assert not [blob.name for blob in container.list_blobs()]


def test_blocks_without_a_list_go_after_a_week(container: ContainerClient, place: BlobPlace) -> None:
    before = place.left()
    container.get_blob_client("x").stage_block("1", b"forgotten")
    container.get_blob_client("y").stage_block("1", b"fresh")
    [first, second] = [path for path in place.left() if path not in before]
    old = first if first.read_bytes() == b"forgotten" else second
    os.utime(old, (0, 0))
    place.blobs._blocks.expire()
    assert [path.read_bytes() for path in place.left() if path not in before] == [b"fresh"]


def test_a_job_reads_the_old_blob_or_the_new_one_while_it_is_put(container: ContainerClient, folder: Path) -> None:
    old, new = bytes(SIZE), b"\1" * SIZE
    container.upload_blob("x", old)
    seen = set()

    def put() -> None:
        for content in (new, old, new):
            container.upload_blob("x", content, overwrite=True)

    thread = threading.Thread(target=put)
    thread.start()
    while thread.is_alive():
        found = (folder / "x").read_bytes()
        seen.add("old" if found == old else "new" if found == new else "half")
    assert seen <= {"old", "new"}
