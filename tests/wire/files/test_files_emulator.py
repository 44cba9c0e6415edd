"""``batchhvd emulate files``: the file service alone, as a stranger's tests start it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.storage.fileshare import ShareClient

from batchhvd.service.emulate import ACCOUNT, KEY
from tests.wire.files.conftest import CLIENT

pytestmark = pytest.mark.interpreter


class Running:
    """An emulator that runs, and what it prints."""

    def __init__(self, *options: str, **environment: str) -> None:
        command = [sys.executable, "-m", "batchhvd", "emulate", "files", "--port", "0", *options]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
        )
        assert self.process.stdout is not None
        self.text = self.process.stdout.readline().strip()
        self.url = re.sub(".*FileEndpoint=([^;]*);", r"\1", self.text)
        self.port = int(self.url.split(":")[2].partition("/")[0])

    def share(self, name: str, text: str = "") -> ShareClient:
        return ShareClient.from_connection_string(text or self.text, name, **CLIENT)

    def end(self) -> str:
        self.process.send_signal(signal.SIGINT)
        _, told = self.process.communicate(timeout=30)
        assert self.process.returncode == 0, told
        return told


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def starting(*options: str, **environment: str) -> Running:
        started.append(Running(*options, **environment))
        return started[-1]

    yield starting
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.communicate()


def test_it_starts_with_azurites_account_and_leaves_nothing(start: Any, tmp_path: Path) -> None:
    emulator = start(TMPDIR=str(tmp_path))
    assert f"AccountName={ACCOUNT};AccountKey={KEY};" in emulator.text
    share = emulator.share("share")
    share.create_share()
    share.get_file_client("f").upload_file(b"data")
    assert share.get_file_client("f").download_file().readall() == b"data"
    status = Path(f"/proc/{emulator.process.pid}/status").read_text()
    assert int(re.findall(r"VmHWM:\s*(\d+) kB", status)[0]) < 60_000
    link = f"{share.url}/f?sig=secret"
    assert httpx.get(link, trust_env=False).status_code == 403
    told = emulator.end()
    assert f'"PUT /{ACCOUNT}/share?restype=share" 201' in told
    assert "sig=…" in told and "secret" not in told
    assert list(tmp_path.iterdir()) == []


def test_a_folder_keeps_the_shares_and_silence_is_silent(start: Any, tmp_path: Path) -> None:
    first = start("--folder", str(tmp_path / "kept"), "--silent")
    first.share("share").create_share()
    first.share("share").get_file_client("f").upload_file(b"data")
    assert first.end() == ""
    again = start("--folder", str(tmp_path / "kept"), "--silent")
    assert again.share("share").get_file_client("f").download_file().readall() == b"data"


def test_an_account_is_a_premium_one_if_its_sku_says_so(start: Any) -> None:
    share = start("--sku", "Premium_LRS").share("share")
    share.create_share(protocols="NFS", root_squash="RootSquash")
    assert share.get_share_properties().root_squash == "RootSquash"


def test_accounts_come_from_azurites_variable(start: Any) -> None:
    emulator = start(AZURITE_ACCOUNTS="one:a2V5MQ==:a2V5Mg==;two:a2V5Mw==")
    assert "AccountName=one;AccountKey=a2V5MQ==;" in emulator.text
    second = emulator.process.stdout.readline()
    assert "AccountName=two;AccountKey=a2V5Mw==;" in second
    emulator.share("share").create_share()
    emulator.share("share", emulator.text.replace("a2V5MQ==", "a2V5Mg==")).get_share_properties()
    with pytest.raises(ClientAuthenticationError):
        emulator.share("share", second.replace("a2V5Mw==", "a2V5MQ==").strip()).create_share()


def test_names_of_accounts_lead_to_it_and_names_of_web_pages_do_not(start: Any) -> None:
    emulator = start()
    own = emulator.share("share")
    own.create_share()

    def status(host: str) -> int:
        url = f"http://127.0.0.1:{emulator.port}/share?restype=share"
        return httpx.get(url, headers={"Host": host}, trust_env=False).status_code

    assert status(f"{ACCOUNT}.file.localhost:{emulator.port}") == 403  # asked, without a credential
    assert status(f"localhost:{emulator.port}") == 403
    assert status(f"page.example:{emulator.port}") == 421
    text = emulator.text.replace(f"127.0.0.1:{emulator.port}/{ACCOUNT}", f"{ACCOUNT}.file.localhost:{emulator.port}")
    look_up = socket.getaddrinfo
    patch = pytest.MonkeyPatch()  # not every system resolves the names below localhost
    patch.setattr(socket, "getaddrinfo", lambda host, *rest, **more: look_up("127.0.0.1", *rest, **more))
    try:
        assert emulator.share("share", text).get_share_properties().name == "share"
    finally:
        patch.undo()


@pytest.mark.parametrize(
    ("options", "environment", "said"),
    [
        ([], {"AZURITE_ACCOUNTS": "Bad Name:a2V5"}, "AZURITE_ACCOUNTS must be NAME:KEY"),
        ([], {"AZURITE_ACCOUNTS": "one:not base64"}, "AZURITE_ACCOUNTS must be NAME:KEY"),
        (["--host", "no.such.host.invalid"], {}, "cannot listen on no.such.host.invalid"),
        (["--port", "TAKEN"], {}, "choose another --port"),
        (["--port", "0", "--sku", "other=Premium_LRS"], {}, "--sku must be ACCOUNT=SKU"),
        (["--port", "0", "--folder", f"{__file__}/sub"], {}, "choose another --folder"),
    ],
)
def test_what_it_cannot_start_with_is_said_in_a_line(options: Any, environment: Any, said: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        given = [str(taken.getsockname()[1]) if each == "TAKEN" else each for each in options]
        command = [sys.executable, "-m", "batchhvd", "emulate", "files", *(given or ["--port", "0"])]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr and "Traceback" not in done.stderr
