"""kill -9 of the service in the middle of uploads, snapshots, leases and copies.

``BATCHHVD_KILLS=200`` kills so often; the default is enough for every run.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.core.exceptions import AzureError
from azure.storage.fileshare import ShareClient

from batchhvd.service.storage.disk.sidecar import Sidecar
from tests.wire.files.conftest import ACCOUNT, CLIENT, KEYS

KILLS = int(os.environ.get("BATCHHVD_KILLS", "2"))
SIZE = (9 << 20) + 5
PROGRAM = """
import socket, sys
import uvicorn
from batchhvd.service.files.app import Files
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
files = Files(sys.argv[1], lambda account: [sys.argv[2]])
uvicorn.Server(uvicorn.Config(files, http="httptools", lifespan="off", log_level="error")).run([listener])
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


def start(root: Path) -> tuple[subprocess.Popen[str], ShareClient]:
    """Starts a service of its own process and returns a client for it."""
    command = [sys.executable, "-c", PROGRAM, str(root), KEYS[ACCOUNT][0]]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    STARTED.append(process)
    assert process.stdout is not None
    url = f"http://127.0.0.1:{int(process.stdout.readline())}/{ACCOUNT}"
    client = ShareClient(url, "myshare", credential=KEYS[ACCOUNT][0], **CLIENT)
    deadline = time.monotonic() + 20
    while True:
        try:
            client.create_share()
            return process, client
        except AzureError as error:
            if "ShareAlreadyExists" in str(error):
                return process, client
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def test_a_killed_service_leaves_no_file_of_half_a_size_and_loses_no_range_it_confirmed(tmp_path: Path) -> None:
    root = tmp_path / "Dateien ü"
    process, share = start(root)
    data, confirmed, enough = random.Random(7).randbytes(SIZE), [], threading.Event()

    def upload(worker: int) -> None:
        try:
            for number in range(1000):
                file = share.get_file_client(f"{worker} {number}")
                file.create_file(SIZE)
                for offset in range(0, SIZE, 1 << 20):
                    piece = data[offset : offset + (1 << 20)]
                    file.upload_range(piece, offset, len(piece))
                    confirmed.append((f"{worker} {number}", offset, len(piece)))
                    if len(confirmed) > 60:
                        enough.set()
        except AzureError:
            enough.set()

    workers = [threading.Thread(target=upload, args=(worker,)) for worker in range(4)]
    for worker in workers:
        worker.start()
    assert enough.wait(30)
    process.send_signal(signal.SIGKILL)
    process.wait()
    for worker in workers:
        worker.join(30)
    assert len(confirmed) > 60
    assert {path.stat().st_size for path in (root / ACCOUNT / "myshare").iterdir()} == {SIZE}
    for name, offset, length in confirmed:
        with (root / ACCOUNT / "myshare" / name).open("rb") as file:
            assert os.pread(file.fileno(), length, offset) == data[offset : offset + length]
    process, share = start(root)  # and the next one goes on where it ended
    share.get_file_client("0 0").upload_file(data)
    assert share.get_file_client("0 0").download_file().readall() == data
    process.terminate()
    process.wait()
    assert list((root / ".files" / "staging").iterdir()) == []


class Round:
    """What clients do until the service is killed, and what it has confirmed of it."""

    def __init__(self, share: ShareClient, seed: int) -> None:
        self.share = share
        self.seed = seed
        self.snapshots: dict[str, int] = {}
        self.copied: list[str] = []
        self.leased: dict[str, str] = {}

    def run(self) -> None:
        """Does it until the service is gone."""
        threads = [threading.Thread(target=each) for each in (self._snapshots, self._copies, self._leases)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)

    def _snapshots(self) -> None:
        try:
            for number in range(1000):
                self.share.get_file_client("number").upload_file(str(number).encode(), metadata={"n": str(number)})
                self.snapshots[self.share.create_snapshot()["snapshot"]] = number
                if number > 2:
                    oldest = min(self.snapshots)
                    number_of_it = self.snapshots.pop(oldest)  # from now on it may be gone or not
                    self._at(oldest).delete_share()
                    assert number_of_it < number
        except AzureError:
            pass

    def _copies(self) -> None:
        source = self.share.get_file_client("source")
        try:
            for number in range(1000):
                self.share.get_file_client(f"copy {self.seed} {number}").start_copy_from_url(source.url)
                self.copied.append(f"copy {self.seed} {number}")
        except AzureError:
            pass

    def _leases(self) -> None:
        try:
            for number in range(1000):
                file = self.share.get_file_client(f"leased {self.seed} {number}")
                file.create_file(1)
                self.leased[f"leased {self.seed} {number}"] = str(file.acquire_lease().id)
        except AzureError:
            pass

    def _at(self, snapshot: str) -> ShareClient:
        return ShareClient(
            self.share.url.rpartition("/")[0], "myshare", snapshot=snapshot, credential=KEYS[ACCOUNT][0], **CLIENT
        )

    def check(self, share: ShareClient, source: bytes) -> None:
        """Fails if anything that was confirmed is not there, or anything that is there is not whole."""
        self.share = share
        for stamp, number in self.snapshots.items():
            told = self._at(stamp).get_file_client("number").download_file()
            assert (told.readall(), told.properties.metadata) == (str(number).encode(), {"n": str(number)})
        for name in self.copied:
            assert share.get_file_client(name).download_file().readall() == source
        for name, lease in self.leased.items():
            assert share.get_file_client(name).get_file_properties().lease.state == "leased"
            share.get_file_client(name).upload_range(b"x", 0, 1, lease=lease)


def test_what_was_confirmed_of_snapshots_leases_and_copies_is_there_after_a_kill(tmp_path: Path) -> None:
    root, chance = tmp_path / "root", random.Random(11)
    process, share = start(root)
    source = chance.randbytes(300_000)
    share.get_file_client("source").upload_file(source)
    seen: Counter[str] = Counter()
    for seed in range(KILLS):
        done = Round(share, seed)
        worker = threading.Thread(target=done.run)
        worker.start()
        time.sleep(chance.uniform(0.3, 1.2))
        process.send_signal(signal.SIGKILL)
        process.wait()
        worker.join(60)
        process, share = start(root)
        done.check(share, source)
        seen += Counter(snapshots=len(done.snapshots), copies=len(done.copied), leases=len(done.leased))
        assert {path.stat().st_size for path in (root / ACCOUNT / "myshare").glob("copy*")} <= {len(source)}
        kept = {path.name for path in (root / ".files" / "snapshots" / ACCOUNT / "myshare").iterdir()}
        assert noted(root) == kept
        assert not list((root / ".files" / "staging").iterdir())
    assert all(seen[each] for each in ("snapshots", "copies", "leases")), seen
    process.terminate()
    process.wait()


def noted(root: Path) -> set[str]:
    """Returns the snapshots of which anything is noted."""
    notes = Sidecar(root / ".files" / "sidecar.sqlite")
    try:
        return {key.partition("@")[2] for key in notes.shares(f"{ACCOUNT}/myshare@")}
    except sqlite3.Error:
        raise AssertionError("the notes are damaged") from None
    finally:
        notes.close()
