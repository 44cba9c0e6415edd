"""Nobody enters a node without its key or password; neither is shown; nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from tests.support.entered import NEEDED, PASSWORD, USER, Entered
from tests.support.waiting import processes_with, until

pytestmark = NEEDED


@pytest.fixture(scope="module")
def entered(start: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Entered]:
    folder = tmp_path_factory.mktemp("refused")
    running = start(folder / "root")
    try:
        yield Entered(running, folder / "client", nodes=1)
    finally:  # also when a client cannot be made
        running.stop()


async def login(port: int, user: str = USER, **options: Any) -> str:
    """Logs in without OpenSSH's client and returns what a command there writes."""
    settings = {"known_hosts": None, "client_keys": None, "agent_path": None, "config": None, **options}
    async with asyncssh.connect("127.0.0.1", port, username=user, **settings) as connection:
        return str((await connection.run("echo in", check=True)).stdout)


def test_the_password_and_the_key_open_a_node(entered: Entered) -> None:
    assert asyncio.run(login(entered.port(), password=PASSWORD)) == "in\n"
    assert entered.run("@NODE", "echo in").stdout == "in\n"


@pytest.mark.parametrize(
    "wrong",
    [
        {"password": "correct horses"},
        {"password": ""},
        {"password": PASSWORD, "user": "root"},
        {"password": PASSWORD, "user": ""},
        {},
    ],
    ids=["another password", "an empty password", "another user", "no user", "nothing"],
)
def test_nothing_else_opens_it(entered: Entered, wrong: dict[str, Any]) -> None:
    with pytest.raises((asyncssh.PermissionDenied, asyncssh.ConnectionLost)):
        asyncio.run(login(entered.port(), **wrong))


def test_other_keys_do_not_open_it(entered: Entered) -> None:
    other = entered.new_key("other")
    entered.cluster("theirs", adminUserSshPublicKey=other.with_suffix(".pub").read_text())
    assert entered.run("@NODE", "echo in", key="other").returncode == 255
    assert entered.run("@NODE", "echo in", user="root").returncode == 255
    theirs = str(entered.port(cluster="theirs"))
    command = [word.replace(str(entered.port()), theirs) for word in entered.command("@NODE", "echo in")]
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 255


def test_a_cluster_without_password_has_none_that_opens_it(entered: Entered) -> None:
    entered.cluster("keyed", adminUserPassword=None)
    for password in ("", PASSWORD):
        with pytest.raises(asyncssh.PermissionDenied):
            asyncio.run(login(entered.port(cluster="keyed"), password=password))


def test_wrong_passwords_are_slow_and_few(entered: Entered) -> None:
    entered.cluster("slow")
    port = entered.port(cluster="slow")

    async def right() -> float:
        begun = asyncio.get_running_loop().time()
        assert await login(port, password=PASSWORD) == "in\n"
        return asyncio.get_running_loop().time() - begun

    async def tries() -> tuple[float, float]:
        await right()  # starts the server
        before = await right()
        wrong = [login(port, password=f"guess {number}") for number in range(5)]
        assert all(isinstance(found, asyncssh.Error) for found in await asyncio.gather(*wrong, return_exceptions=True))
        return before, await right()  # even the right one waits now: 0.1 s, doubled four times

    before, after = asyncio.run(tries())
    assert after > before + 1


def test_only_so_many_strangers_are_heard(entered: Entered) -> None:
    port = entered.port()
    strangers = [socket.create_connection(("127.0.0.1", port), 30) for _ in range(10)]
    try:
        assert all(stranger.recv(8) == b"SSH-2.0-" for stranger in strangers)
        with socket.create_connection(("127.0.0.1", port), 30) as further:
            data = b""
            while part := further.recv(4096):
                data += part
            assert len(data) < 200
    finally:
        for stranger in strangers:
            stranger.close()
    until(lambda: entered.run("@NODE", "echo in").returncode == 0)


def test_no_secret_is_shown_or_kept(entered: Entered) -> None:
    entered.run("@NODE", "true")
    document = entered.running.call("GET", f"{entered.workspace}/clusters/c").text
    assert PASSWORD not in document and "ssh-ed25519" not in document
    assert not processes_with(PASSWORD)
    for path in entered.running.root.rglob("*"):
        if path.is_file():
            assert PASSWORD.encode() not in path.read_bytes(), path


def test_the_host_key_outlives_the_service_and_the_port_too(launch: Any, tmp_path: Path) -> None:
    first = launch(root=tmp_path / "root")
    entered = Entered(first, tmp_path / "client", nodes=1)
    port = entered.port()
    assert entered.run("@NODE", "echo in").stdout == "in\n"
    server = processes_with("batchhvd.service.login\0" + str(first.root))
    assert len(server) == 1
    with subprocess.Popen(
        entered.command("@NODE", f"echo in; sleep 31{os.getpid()}"), stdout=subprocess.PIPE
    ) as session:
        assert session.stdout and session.stdout.readline() == b"in\n"
        first.process.send_signal(signal.SIGKILL)
        first.process.wait(20)
        assert session.wait(60) != 0
    until(lambda: not processes_with("batchhvd.service.login\0" + str(first.root)))
    until(lambda: not processes_with(f"sleep\x0031{os.getpid()}"))
    (first.root / "endpoint").unlink()  # the killed one has left it
    entered.running = launch(root=tmp_path / "root")
    until(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0)  # nobody has asked for it yet
    found = entered.run("-o", "StrictHostKeyChecking=yes", "@NODE", "echo again")
    assert (found.stdout, entered.port()) == ("again\n", port), found.stderr
    assert os.stat(first.root / "logins" / "seed").st_mode & 0o077 == 0
