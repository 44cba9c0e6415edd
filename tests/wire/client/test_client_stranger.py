"""Who answers? Whoever listens where a dead service listened gets no token, no signature and no link."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import batchhvd
from batchhvd.cli import main as cli
from batchhvd.errors import AccessDeniedError, ServiceError, UnavailableError
from batchhvd.resources.session import Session
from batchhvd.wire import local_service
from batchhvd.wire.connection import Connection
from batchhvd.wire.facts.identity import SUBSCRIPTION
from batchhvd.wire.facts.peer_proof import proof
from batchhvd.wire.page_link import page_link
from tests.support.waiting import until


class Stranger:
    """Listens where the service was, keeps what it hears, and answers as told."""

    def __init__(self, port: int, answer: Callable[[bytes], bytes]) -> None:
        self.heard, self.answer = b"", answer
        found = until(lambda: _bound(port))  # the kernel may still be closing the dead service's sockets
        assert found is not None
        self._listener = found
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # its thread waits in accept, and would keep the port
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            while data := client.recv(65536):
                self.heard += data
                client.sendall(self.answer(data))


def _bound(port: int) -> socket.socket | None:
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError:
        return None


def said(body: str, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nx-ms-request-id: 1\r\nContent-Length: {len(body)}"
    return f"{head}\r\n\r\n{body}".encode()


ANSWERS: dict[str, Callable[[bytes], bytes]] = {
    "anything": lambda _: said('{"value": []}'),
    "a proof of its own": lambda _: said(f'{{"proof": "{proof("", "0" * 64, "127.0.0.1", 1)}"}}'),
    "not found": lambda _: said('{"proof": 1}', "404 Not Found"),
    "no JSON": lambda _: said("[" * 5000),
    "no text": lambda _: said('{"proof": null}'),
    "a proof with an empty token": lambda asked: said(f'{{"proof": "{_forged(asked)}"}}'),
}


def _forged(asked: bytes) -> str:
    nonce = asked.partition(b"nonce=")[2].partition(b" ")[0].decode()
    host, _, port = asked.partition(b"Host: ")[2].partition(b"\r")[0].decode().partition(":")
    return proof("", nonce, host, int(port or 0))


@pytest.fixture
def dead(tmp_path: Path) -> Iterator[Any]:
    """A root whose service was killed, its port, its token, and a session that had spoken to it."""
    root = tmp_path / "röot"
    session = batchhvd.local(root)
    share = session.create_group("g").create_storage_account("account").create_share("share")
    found = local_service.find(root)
    assert found is not None
    os.kill(found.pid, signal.SIGKILL)
    while local_service.find(root):
        time.sleep(0.01)
    assert (root / "endpoint").exists()
    token = (root / "token").read_text().strip()
    yield root, int(found.endpoint.rpartition(":")[2]), token, session, share
    local_service.stop(root)


def test_a_stranger_on_a_dead_service_s_port_gets_nothing(dead: Any, capsys: pytest.CaptureFixture[str]) -> None:
    root, port, token, session, share = dead
    asks: list[Callable[[], object]] = [
        lambda: list(session.groups()),  # it had proved itself, but on another connection
        lambda: share.upload(__file__),
        lambda: share.file_exists("f"),
        lambda: page_link(session._connection),
        lambda: session._connection.links.send_request(_get(session.endpoint)),
    ]
    stranger = Stranger(port, ANSWERS["anything"])
    try:
        for name, stranger.answer in ANSWERS.items():
            for ask in asks:
                with pytest.raises(AccessDeniedError, match=r"did not prove that it is the service of .*no token was"):
                    ask()
            assert cli.run(["--root", str(root), "status", "--open"]) == 4
            assert token not in str(capsys.readouterr())
            _only_challenges(stranger.heard, token, name)
    finally:
        stranger.close()


def _get(endpoint: str) -> Any:
    from azure.core.rest import HttpRequest

    return HttpRequest("GET", f"{endpoint}/account/share/f?sig=secret-signature")


def _only_challenges(heard: bytes, token: str, name: str) -> None:
    assert heard, name
    for word in (token.encode(), b"Authorization", b"authorization", b"SharedKey", b"sig=", b"Bearer"):
        assert word not in heard, (name, word)
    for line in heard.split(b"\r\n"):
        assert not line or line.startswith((b"GET /status.proof?nonce=", b"Host: 127.0.0.1:")), (name, line)


@pytest.mark.parametrize("status", ["429 Too Many Requests", "408 Request Timeout"])
def test_a_service_that_is_full_is_not_taken_for_a_stranger(dead: Any, status: str) -> None:
    _root, port, token, session, _share = dead
    stranger = Stranger(port, lambda _: said("{}", status))
    try:
        with pytest.raises(UnavailableError):
            list(session.groups())
    finally:
        stranger.close()
    _only_challenges(stranger.heard, token, status)


def test_local_starts_a_service_elsewhere_when_a_stranger_has_the_port(dead: Any) -> None:
    root, port, token, session, _share = dead
    stranger = Stranger(port, ANSWERS["anything"])
    try:
        again = batchhvd.local(root)
        assert int(again.endpoint.rpartition(":")[2]) != port
        assert [group.name for group in again.groups()] == [group.name for group in session.groups()] == ["g"]
    finally:
        stranger.close()
    _only_challenges(stranger.heard, token, "local")


@pytest.mark.parametrize("token", ["", "\n", "short", "é" * 50])
def test_a_token_that_is_none_proves_nothing(tmp_path: Path, token: str) -> None:
    """With an empty token in the root, anybody could prove to be its service."""
    stranger = Stranger(0, ANSWERS["a proof with an empty token"])
    port = stranger._listener.getsockname()[1]
    (tmp_path / "token").write_text(token)
    session = Session(Connection(f"http://127.0.0.1:{port}", SUBSCRIPTION, root=str(tmp_path)))
    try:
        with pytest.raises(AccessDeniedError, match="token .*token holds no secret"):
            list(session.groups())
    finally:
        stranger.close()
    assert stranger.heard == b""


def test_who_passes_everything_on_to_the_service_is_refused(service: Any, tmp_path: Path) -> None:
    """A man in the middle, on another port, cannot use the service's own proof: it is for the service's address."""

    def pass_on(asked: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", int(service.url.rpartition(":")[2])), 10) as line:
            line.sendall(asked.replace(b"\r\nHost", b"\r\nConnection: close\r\nHost"))
            return b"".join(iter(lambda: line.recv(65536), b""))

    relay = Stranger(0, pass_on)
    port = relay._listener.getsockname()[1]
    (tmp_path / "endpoint").write_text(f"http://127.0.0.1:{port}\n")
    (tmp_path / "token").write_text(service.token)
    session = Session(Connection(f"http://127.0.0.1:{port}", SUBSCRIPTION, root=str(tmp_path)))
    try:
        with pytest.raises(AccessDeniedError, match="did not prove"):
            list(session.groups())
    finally:
        relay.close()
    _only_challenges(relay.heard, service.token, "relay")


def test_one_question_for_each_connection_and_no_more(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from batchhvd.wire import proven

    asked: list[str] = []
    ask = proven._ask

    def count(sock: socket.socket, root: str, secret: str) -> None:
        asked.append(root)
        ask(sock, root, secret)

    monkeypatch.setattr(proven, "_ask", count)
    session = batchhvd.local(service.root)
    for _ in range(5):
        assert list(session.groups()) is not None
    assert len(asked) == 1


def test_a_new_token_counts_at_once_and_the_old_one_never_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "röot"
    session = batchhvd.local(root)
    try:
        old, link = (root / "token").read_text().strip(), page_link(session._connection)
        issued = _issued(session.endpoint, old)
        assert cli.run(["--root", str(root), "serve", "--new-token"]) == 0
        assert "the service that runs heeds it" in capsys.readouterr().err
        new = (root / "token").read_text().strip()
        assert new != old and (root / "token").stat().st_mode & 0o777 == 0o600
        assert list(session.groups()) == []  # a root's session reads it again
        assert list(batchhvd.connect(session.endpoint, new).groups()) == []
        for refused in (old, issued):
            with pytest.raises(AccessDeniedError):
                list(batchhvd.connect(session.endpoint, refused).groups())
        assert page_link(session._connection).partition("#")[0] != link.partition("#")[0]
        (root / "token").write_text("")  # a damaged file opens nothing, and closes nothing
        with pytest.raises(ServiceError):
            list(batchhvd.connect(session.endpoint, "x").groups())
        assert list(batchhvd.connect(session.endpoint, new).groups()) == []
        (root / "token").write_text(new)
    finally:
        local_service.stop(root)


def _issued(endpoint: str, token: str) -> str:
    import httpx

    form = {"grant_type": "client_credentials", "client_secret": token}
    got = httpx.post(f"{endpoint}/t/oauth2/token", data=form, trust_env=False)
    return str(got.json()["access_token"])
