"""Limits of the SSH server, and what it keeps of a password."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import asyncssh
import pytest

from batchhvd.service.http import limits
from batchhvd.service.login import account, host_key
from batchhvd.service.login import desk as desks
from batchhvd.service.login.door import Brake, Lobby, NodeDoor
from batchhvd.service.login.target import NodeTarget
from batchhvd.service.store.records import Store


class Connection:
    """Notes what is done to a connection."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def abort(self) -> None:
        self.said.append("abort")

    def close(self) -> None:
        self.said.append("close")


def door(lobby: Lobby) -> tuple[NodeDoor, Connection]:
    target = SimpleNamespace(cluster="c", node="n", has_key=lambda *_: False, has_password=lambda *_: False)
    made, connection = NodeDoor(cast(NodeTarget, target), lobby, 1), Connection()
    made.connection_made(cast(Any, connection))
    return made, connection


def test_a_full_lobby_takes_nobody() -> None:
    lobby = Lobby()
    for _ in range(limits.LOGIN_CONNECTIONS):
        made, connection = door(lobby)
        made.auth_completed()
        assert connection.said == []
    assert door(lobby)[1].said == ["abort"]


def test_only_so_many_sessions_over_one_connection() -> None:
    async def opened() -> list[bool]:
        made, _ = door(Lobby())
        return [bool(made.session_requested()) for _ in range(limits.LOGIN_SESSIONS + 1)]

    assert asyncio.run(opened()) == [True] * limits.LOGIN_SESSIONS + [False]


def test_a_connection_may_try_so_often(monkeypatch: pytest.MonkeyPatch) -> None:
    made, connection = door(Lobby())
    key = cast(Any, SimpleNamespace(public_data=b"k"))
    assert not any(made.validate_public_key("ada", key) for _ in range(limits.LOGIN_TRIES))
    assert connection.said == []
    assert not made.validate_public_key("ada", key) and connection.said == ["close"]

    monkeypatch.setattr(limits, "LOGIN_WAIT_SECONDS", 0.0)
    made, connection = door(Lobby())

    async def tries() -> None:
        for _ in range(limits.LOGIN_PASSWORDS):
            assert not await made.validate_password("ada", "x") and connection.said == []
        assert not await made.validate_password("ada", "x") and connection.said == ["close"]

    asyncio.run(tries())


def test_wrong_passwords_wait_longer_and_longer() -> None:
    now = 0.0
    brake = Brake(lambda: now)
    waits = []
    for _ in range(9):
        waits.append(brake.seconds("c"))
        brake.note("c")
    assert waits == pytest.approx(
        [0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, limits.LOGIN_WAIT_SECONDS, limits.LOGIN_WAIT_SECONDS]
    )
    assert brake.seconds("another") == 0
    now = 61.0
    assert brake.seconds("c") == 0


def test_a_password_waits_for_the_brake(monkeypatch: pytest.MonkeyPatch) -> None:
    lobby = Lobby()
    made, _ = door(lobby)
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async def tries() -> None:
        for _ in range(3):
            await made.validate_password("ada", "x")

    monkeypatch.setattr(asyncio, "sleep", sleep)
    asyncio.run(tries())
    assert waits == pytest.approx([0, 0.1, 0.2])


def test_only_the_node_itself_is_forwarded_to() -> None:
    made, _ = door(Lobby())
    made._target = cast(Any, SimpleNamespace(is_here=True))
    assert all(made.connection_requested(host, 6006, "", 0) for host in ("localhost", "127.0.0.1", "127.1.2.3", "::1"))
    for host in ("192.0.2.1", "0.0.0.0", "example.org", ""):
        with pytest.raises(asyncssh.ChannelOpenError):
            made.connection_requested(host, 80, "", 0)
    made._target = cast(Any, SimpleNamespace(is_here=False))
    with pytest.raises(asyncssh.ChannelOpenError):
        made.connection_requested("localhost", 6006, "", 0)


def test_the_limits_of_a_connection_are_given_to_the_server() -> None:
    text = (Path(desks.__file__).parent / "__main__.py").read_text(encoding="utf-8")
    assert "login_timeout=limits.LOGIN_SECONDS" in text


def test_only_so_many_nodes_get_a_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOGIN_NODES", 3)
    desk = desks.LoginDesk(tmp_path, Store(tmp_path / "state.sqlite"))
    try:
        assert list(desk.ports("/c", [f"n{number}" for number in range(5)])) == ["n0", "n1", "n2"]
    finally:
        desk.close()


def test_without_the_package_no_node_has_a_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desks, "is_possible", lambda: False)
    assert desks.LoginDesk(tmp_path, Store(tmp_path / "state.sqlite")).ports("/c", ["n"]) == {}


def test_of_a_password_only_a_salted_hash_is_kept() -> None:
    settings = {"adminUserName": "ada", "adminUserPassword": "sésame", "adminUserSshPublicKey": "ssh-rsa QUJD me"}
    kept, again = account.kept(settings), account.kept(settings)
    assert "sésame" not in str(kept) and kept["password"] != again["password"]
    assert account.has_password(kept, "sésame") and not account.has_password(kept, "sesame")
    assert not account.has_password({}, "") and not account.has_password(kept, "")
    assert account.same(kept, settings) and not account.same(kept, {**settings, "adminUserPassword": ""})
    assert account.key_data("ssh-rsa QUJD me") == b"ABC" and account.key_data("nonsense") == b""


def test_host_keys_are_the_cluster_s_own(tmp_path: Path) -> None:
    keys = [host_key.public_key(tmp_path, id, number) for id, number in (("/c", 1), ("/C", 1), ("/c", 2), ("/d", 1))]
    assert keys[0] == keys[1] and len(set(keys)) == 3
    assert host_key.fingerprint(keys[0]).startswith("SHA256:")
