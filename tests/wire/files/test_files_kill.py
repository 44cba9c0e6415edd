"""kill -9 of the service in the middle of uploads."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from azure.core.exceptions import AzureError
from azure.storage.fileshare import ShareClient

from tests.wire.files.conftest import ACCOUNT, CLIENT, KEYS

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


def start(root: Path) -> tuple[subprocess.Popen[str], ShareClient]:
    """Starts a service of its own process and returns a client for it."""
    command = [sys.executable, "-c", PROGRAM, str(root), KEYS[ACCOUNT][0]]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
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
