"""Every limit of the service, seen from outside: what is too large, too many or too slow gets a clean answer."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import resource
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from batchhvd.service import server, tls
from batchhvd.service.http import door, limits
from batchhvd.service.http.incoming import trust
from batchhvd.service.process import Sparing
from batchhvd.service.storage.protocol.byte_range import RANGE_BYTES
from batchhvd.wire import local_service
from tests.support.waiting import until


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Trusts who sends ``Authorization``; reads the whole body of ``/read``; waits on ``/wait``."""
    if any(name == b"authorization" for name, _ in scope["headers"]):
        trust(scope)
    size, more = 0, scope["path"] == "/read"
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    if scope["path"] == "/wait":
        await asyncio.sleep(0.6)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"10")]})
    await send({"type": "http.response.body", "body": b"%10d" % size})


class Serving:
    """A server with the service's limits on a thread of this process."""

    def __init__(self) -> None:
        listener = server.listen(0)
        self.port = listener.getsockname()[1]
        self._http = server.server(application)
        self._thread = threading.Thread(target=self._http.run, kwargs={"sockets": [listener]})
        self._thread.start()
        until(lambda: self._http.started)
        self.hall = self._http._hall

    def line(self, text: bytes = b"") -> socket.socket:
        """Opens a connection and sends something."""
        made = socket.create_connection(("127.0.0.1", self.port), 20)
        made.sendall(text)
        return made

    def end(self) -> None:
        self._http.should_exit = True
        self._thread.join(20)


@pytest.fixture
def serving(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Serving]]:
    """Starts servers, each with limits of its own, that look at their connections often."""
    with ExitStack() as stack:

        def begin(**values: float) -> Serving:
            monkeypatch.setattr(door, "_LOOK", 0.05)
            for name, value in values.items():
                monkeypatch.setattr(limits, name, value)
            made = Serving()
            stack.callback(made.end)
            return made

        yield begin


def heard(line: socket.socket) -> bytes:
    """Returns all that comes until the other side closes."""
    found = b""
    while piece := line.recv(65536):
        found += piece
    return found


def answered(line: socket.socket) -> bool:
    """Reads one answer to its end, and says whether it is a good one."""
    found = b""
    while not found.partition(b"\r\n\r\n")[2][9:]:
        piece = line.recv(4096)
        assert piece, found
        found += piece
    return found.startswith(b"HTTP/1.1 200 ")


def refused(line: socket.socket, status: int, words: str) -> None:
    """Checks that the server says why it closes the connection."""
    found = heard(line)
    head, _, body = found.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), found
    assert words in json.loads(body)["error"]["message"] and b"\r\nconnection: close" in head
    assert b"content-security-policy: sandbox" in head
    line.close()


GET = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"
KNOWN = GET + b"Authorization: x\r\n\r\n"


# -- heads and bodies ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nX: " + b"x" * limits.HEAD_BYTES,
        GET + b"X: " + b"x" * limits.HEAD_BYTES + b"\r\n\r\n",
        b"GET /" + b"x" * limits.HEAD_BYTES,
        GET + (b"X: " + b"y" * 500 + b"\r\n") * 150,
        b"X" * (limits.HEAD_BYTES + 100),
        GET + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: " + b"x" * 16 * limits.HEAD_BYTES,
        GET + b"Transfer-Encoding: chunked\r\n\r\n5;" + b"x" * 16 * limits.HEAD_BYTES,
    ],
    ids=["endless field", "whole", "target", "fields", "method", "trailer", "chunk extension"],
)
def test_a_head_that_is_too_large(serving: Any, head: bytes) -> None:
    line = serving().line()
    for at in range(0, len(head), 16384):
        line.sendall(head[at : at + 16384])
    found = heard(line)
    if head.startswith(b"XXX"):
        assert found.startswith(b"HTTP/1.1 400 ")
    elif b"chunked" in head:  # its head had been answered already
        assert found.count(b"HTTP/1.1 ") == 2 and b"HTTP/1.1 431 " in found
    else:
        assert found.startswith(b"HTTP/1.1 431 ") and b"The head of a request may have 65536 bytes." in found


def test_a_head_with_too_many_fields(serving: Any) -> None:
    running = serving()
    most = b"X: y\r\n" * (limits.HEAD_FIELDS - 1)
    refused(running.line(GET + most + b"X: y\r\n\r\n"), 431, "may have 200 header fields")
    fits = running.line(GET + most + b"Connection: close\r\n\r\n")
    assert heard(fits).startswith(b"HTTP/1.1 431 ")
    fits = running.line(GET + most[6:] + b"Connection: close\r\n\r\n")
    assert heard(fits).startswith(b"HTTP/1.1 200 ")


def test_a_hundred_large_heads_take_no_memory(launch: Any) -> None:
    running = launch()
    before = _memory(running.process.pid)
    with ExitStack() as stack:
        lines = [stack.enter_context(_line(running)) for _ in range(30)]
        for line in lines:
            line.settimeout(5)
            try:
                line.sendall(b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 200_000)
            except OSError:
                continue  # it was refused, and closed meanwhile
        assert _memory(running.process.pid) - before < 60 << 20
    assert running.call("GET", "/subscriptions").status_code == 200


def _line(running: Any) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(running.url.rpartition(":")[2])), 10)


def _memory(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def test_bodies_that_are_too_large(service: Any, account: tuple[str, str]) -> None:
    from azure.core.exceptions import HttpResponseError
    from azure.storage.fileshare import ShareClient, generate_file_sas

    group = "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/large"
    got = service.call("PUT", group, b" " * (limits.BODY_BYTES + 1))
    assert (got.status_code, got.json()["error"]["code"]) == (413, "RequestContentTooLarge")
    assert service.call("PUT", group, b" " * limits.BODY_BYTES).status_code == 400  # it is read, and is no JSON
    form = httpx.post(f"{service.url}/x/oauth2/token", content=b"a" * (limits.FORM_BYTES + 1), trust_env=False)
    assert form.status_code == 413
    host = httpx.URL(service.call("POST", f"{service.url}/status.link").json()["url"]).netloc.decode()
    page = httpx.post(
        f"{service.url}/session", content=b"a" * (limits.PAGE_BODY_BYTES + 1), headers={"Host": host}, trust_env=False
    )
    assert page.status_code == 413 and limits.FILE_BODY_BYTES == RANGE_BYTES
    share = ShareClient(f"{service.url}/{account[0]}", "share", credential=account[1], retry_total=0)
    share.create_share()
    file = share.get_file_client("f")
    file.create_file(limits.FILE_BODY_BYTES * 2)
    with pytest.raises(HttpResponseError) as caught:
        file.upload_range(b"x" * (limits.FILE_BODY_BYTES + 1), 0, limits.FILE_BODY_BYTES + 1)
    assert caught.value.status_code == 413
    ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 600))
    query = generate_file_sas(account[0], "share", ["g"], account[1], permission="cw", expiry=ends)
    head = {"x-ms-type": "file", "x-ms-content-length": "99999999"}
    pieces = (b"x" * 65536 for _ in range(limits.FILE_BODY_BYTES // 65536 + 1))  # chunked: no length is told before
    url = f"{service.url}/{account[0]}/share/g?{query}"
    assert httpx.put(url, headers=head, content=pieces, trust_env=False).status_code == 413


def test_forms_and_queries_with_too_many_fields(service: Any) -> None:
    token = f"{service.url}/x/oauth2/token"
    started = time.process_time()
    form = httpx.post(token, content=b"a=b&" * (limits.FORM_FIELDS + 1), trust_env=False)
    assert form.status_code == 400 and form.json()["error"] == "invalid_request"
    fits = {f"f{number}": "x" for number in range(limits.FORM_FIELDS - 2)}
    right = {"grant_type": "client_credentials", "client_secret": service.token}
    assert httpx.post(token, data={**fits, **right}, trust_env=False).status_code == 200
    query = "&".join(f"q{number}=1" for number in range(limits.QUERY_FIELDS))
    got = service.call("GET", f"/subscriptions?{query}")  # and one more, the api-version
    assert (got.status_code, got.json()["error"]["code"]) == (400, "InvalidRequestUri")
    assert time.process_time() - started < 5


def test_the_rest_of_a_body_that_was_answered_is_heard_up_to_a_limit(serving: Any) -> None:
    running = serving(REST_BYTES=1 << 20)
    head = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999\r\n\r\n"
    line = running.line(head)
    assert answered(line)
    with pytest.raises(ConnectionError):
        for _ in range(2000):
            line.sendall(b"x" * 65536)


# -- time ------------------------------------------------------------------------------------------------------------


def test_a_slow_head(serving: Any) -> None:
    running = serving(HEAD_SECONDS=0.3, IDLE_SECONDS=60)
    refused(running.line(GET + b"X: never-ending"), 408, "head of a request must be complete")
    trickle = running.line(GET)
    with pytest.raises(ConnectionError):
        for _ in range(200):
            trickle.sendall(b"X: y\r\n")
            time.sleep(0.03)


def test_a_known_client_s_second_head_must_not_be_slow_either(serving: Any) -> None:
    running = serving(HEAD_SECONDS=0.3)
    line = running.line(KNOWN)
    assert answered(line)
    line.sendall(b"GET / HT")
    refused(line, 408, "head of a request")


def test_a_slow_body(serving: Any) -> None:
    running = serving(BODY_SECONDS=0.3, IDLE_SECONDS=60)
    head = b"POST /read HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: x\r\nContent-Length: 20\r\n\r\n"
    refused(running.line(head + b"ten bytes."), 408, "No more of the body came")
    pieces = running.line(head)
    for _ in range(20):  # slow, but never silent for long
        pieces.sendall(b"x")
        time.sleep(0.05)
    assert answered(pieces)


def test_a_connection_that_asks_for_nothing(serving: Any) -> None:
    running = serving(IDLE_SECONDS=0.3)
    refused(running.line(), 408, "No request came")
    served = running.line(GET + b"\r\n")
    answered = heard(served)  # answered, and closed after the silence
    assert answered.startswith(b"HTTP/1.1 200 ") and answered.count(b"HTTP/1.1") == 1


def test_a_known_client_may_be_silent_for_longer(serving: Any) -> None:
    running = serving(IDLE_SECONDS=0.2, TRUSTED_IDLE_SECONDS=2)
    known = running.line(KNOWN)
    assert answered(known)
    time.sleep(0.8)
    known.sendall(KNOWN)
    assert answered(known)
    asked = time.monotonic()
    assert heard(known) == b"" and time.monotonic() - asked > 1


def test_work_is_never_cut_off(serving: Any) -> None:
    running = serving(IDLE_SECONDS=0.1, BODY_SECONDS=0.1, HEAD_SECONDS=0.1)
    line = running.line(b"GET /wait HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    assert heard(line).startswith(b"HTTP/1.1 200 ")


def test_a_refused_client_can_still_read_why_but_not_for_ever(serving: Any) -> None:
    running = serving(LINGER_SECONDS=0.5, LINGERING=3)
    lines = [running.line(GET + b"X: " + b"x" * 2 * limits.HEAD_BYTES) for _ in range(6)]
    until(lambda: len(running.hall._lingering) == 3)
    for line in lines:
        assert heard(line).startswith(b"HTTP/1.1 431 ")
    until(lambda: not running.hall._lingering)
    for line in lines:
        line.close()


# -- how many --------------------------------------------------------------------------------------------------------


def test_the_oldest_that_sends_nothing_gives_way(serving: Any) -> None:
    running = serving(CONNECTIONS=20, STRANGERS=0.5, IDLE_SECONDS=60)
    known = running.line(KNOWN)
    assert answered(known)
    idle = []
    for _ in range(10):
        idle.append(running.line())
        until(lambda: len(running.hall._strangers) == len(idle))
    newcomer = running.line(GET + b"Connection: close\r\n\r\n")
    assert heard(newcomer).startswith(b"HTTP/1.1 200 ")
    refused(idle[0], 408, "this one was the oldest")
    known.sendall(KNOWN)  # whoever has shown a credential stays
    assert answered(known)
    for line in idle[1:]:
        line.close()


def test_who_drips_a_body_gives_way_too(serving: Any) -> None:
    running = serving(CONNECTIONS=20, STRANGERS=0.1)
    drip = b"POST /read HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 20\r\n\r\nx"
    lines = [running.line(drip) for _ in range(2)]
    until(lambda: len(running.hall._strangers) == 2 and all(one.cycle for one in running.hall._strangers))
    assert heard(running.line(GET + b"Connection: close\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    refused(lines[0], 408, "this one was the oldest")
    lines[1].close()


def test_too_many_at_work(serving: Any) -> None:
    running = serving(CONNECTIONS=20, STRANGERS=0.1)
    lines = [running.line(b"GET /wait HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n") for _ in range(2)]
    until(lambda: sum(not one.is_idle for one in running.hall._strangers) == 2)
    third = running.line()
    found = heard(third)
    assert found.startswith(b"HTTP/1.1 429 ") and b"retry-after: 1" in found
    assert all(heard(line).startswith(b"HTTP/1.1 200 ") for line in lines)  # those at work end as they would
    assert heard(running.line(GET + b"Connection: close\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


def test_connections_in_all(serving: Any) -> None:
    running = serving(CONNECTIONS=8)
    known = []
    for _ in range(8):
        known.append(running.line(KNOWN))
        assert answered(known[-1])
    assert heard(running.line()).startswith(b"HTTP/1.1 429 ")
    known.pop().close()
    until(lambda: len(running.hall._open) == 7)
    assert heard(running.line(GET + b"Connection: close\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    for line in known:
        line.close()


def test_with_few_files_there_is_room_for_those_who_are_known(tmp_path: Path) -> None:
    """120 idle connections at ``ulimit -n 64`` starved everybody once."""
    command = f"ulimit -n 64; exec {sys.executable} -m batchhvd.service --root {tmp_path}"
    process = subprocess.Popen(["bash", "-c", command], stderr=subprocess.DEVNULL)
    lines: list[socket.socket] = []
    try:
        url = until(lambda: local_service.read_endpoint(tmp_path))
        port, token = int(url.rpartition(":")[2]), (tmp_path / "token").read_text().strip()
        lines += [socket.create_connection(("127.0.0.1", port), 10) for _ in range(120)]
        with httpx.Client(trust_env=False, timeout=20, headers={"Authorization": f"Bearer {token}"}) as client:
            for _ in range(5):
                assert client.get(f"{url}/subscriptions?api-version=1").status_code == 200
        assert len(os.listdir(f"/proc/{process.pid}/fd")) < 64
        assert "Traceback" not in (tmp_path / "service.log").read_text()
    finally:
        for line in lines:
            line.close()
        process.terminate()
        assert process.wait(20) == 0


def test_sixty_four_clients_at_once_are_never_refused(service: Any) -> None:
    def work(_: int) -> set[int]:
        headers = {"Authorization": f"Bearer {service.token}"}
        with httpx.Client(trust_env=False, timeout=60, headers=headers) as client:
            return {client.get(f"{service.url}/subscriptions?api-version=1").status_code for _ in range(5)}

    with ThreadPoolExecutor(64) as pool:
        assert set().union(*pool.map(work, range(64))) == {200}


def test_how_many_there_may_be() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        found = []
        for allowed in (64, 256, 1024, 4096):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(allowed, before[1]), before[1]))
            found.append(limits.connections())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert found[:3] == [32, 192, 768] and found[3] <= limits.CONNECTIONS


def test_handshakes_that_are_never_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HEAD_SECONDS", 3.0)
    identity, listener = tls.identity(tmp_path), server.listen(0)
    http = server.server(application, ssl_certfile=str(identity.certificate), ssl_keyfile=str(identity.key))
    thread = threading.Thread(target=http.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        until(lambda: http.started)
        before = limits.open_files()
        port = listener.getsockname()[1]
        silent = [socket.create_connection(("127.0.0.1", port), 10) for _ in range(4)]
        until(lambda: limits.open_files() >= before + 8)
        monkeypatch.setattr(limits, "connections", lambda: before + 8)
        assert socket.create_connection(("127.0.0.1", port), 10).recv(1) == b""  # no room for one more
        silent[0].setblocking(False)
        with pytest.raises(BlockingIOError):  # these are still waited for
            silent[0].recv(1)
        silent[0].settimeout(20)
        for line in silent:
            assert line.recv(1) == b""  # closed when the time for a handshake is over
            line.close()
        trusted = ssl.create_default_context(cafile=str(identity.authority))
        assert httpx.get(f"https://127.0.0.1:{port}/", verify=trusted, trust_env=False).status_code == 200
    finally:
        http.should_exit = True
        thread.join(20)


def test_the_proxy_s_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONNECTIONS", 8)
    monkeypatch.setattr(limits, "HEAD_SECONDS", 0.5)

    async def run() -> list[bytes]:
        proxy = tls.Proxy(1)
        listening = await asyncio.start_server(proxy, "127.0.0.1", 0, limit=limits.HEAD_BYTES)
        port = listening.sockets[0].getsockname()[1]

        async def say(text: bytes) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(text)
            found = await reader.read(100)
            writer.close()
            return found

        large = await say(b"CONNECT x:443 HTTP/1.1\r\nX: " + b"x" * 2 * limits.HEAD_BYTES)
        several = await asyncio.gather(say(b""), say(b""), say(b""))
        listening.close()
        await proxy.close()
        return [large, *several]

    started = time.monotonic()
    large, *several = asyncio.run(run())
    assert time.monotonic() - started < 20
    assert large.startswith(b"HTTP/1.1 431 ")
    assert sorted(answer[:12] for answer in several) == [b"HTTP/1.1 408", b"HTTP/1.1 408", b"HTTP/1.1 429"]


# -- the log ---------------------------------------------------------------------------------------------------------


def test_refused_requests_fill_no_log() -> None:
    now = [0.0]
    spare = Sparing(lambda: now[0])

    def line(name: str = "batchhvd.service", level: int = logging.INFO, **facts: object) -> logging.LogRecord:
        return logging.makeLogRecord({"name": name, "levelno": level, "msg": "m", **facts})

    assert sum(spare.filter(line(refused=True)) for _ in range(500)) == limits.LOG_LINES
    assert not spare.filter(line("uvicorn.error", logging.WARNING))
    assert all(spare.filter(line(level=level)) for level in (logging.INFO, logging.ERROR) for _ in range(100))
    now[0] = 1.0
    after = line(refused=True)
    assert spare.filter(after) and f"[{501 - limits.LOG_LINES} lines about refused requests" in after.getMessage()
    last = line(refused=True)
    assert spare.filter(last) and last.getMessage() == "m"


def test_a_storm_of_refused_requests_leaves_a_small_log(service: Any) -> None:
    before = len(service.log())
    started = time.monotonic()
    with httpx.Client(trust_env=False) as client:
        for _ in range(300):
            held = {"x-batchhvd-wait": "60", "x-batchhvd-unless": "x"}
            assert client.get(f"{service.url}/subscriptions", headers=held).status_code == 401
    for _ in range(50):
        with _line(service) as line:
            line.sendall(b"nonsense\r\n\r\n")
            assert heard(line).startswith(b"HTTP/1.1 400 ")
    seconds = time.monotonic() - started + 2
    lines = [text for text in service.log()[before:].splitlines() if re.search(r" 401 | 400 |Invalid HTTP", text)]
    assert 0 < len(lines) <= seconds * limits.LOG_LINES


# -- the page's own, and what is held --------------------------------------------------------------------------------


def test_codes_and_sessions_end(monkeypatch: pytest.MonkeyPatch) -> None:
    from batchhvd.service.http.page_keys import PageKeys

    now = [1_000_000.0]
    keys = PageKeys(lambda: "s" * 43, lambda: now[0])
    late = keys.code()
    now[0] += limits.PAGE_CODE_SECONDS
    assert not keys.redeem(late)
    codes = [keys.code() for _ in range(limits.PAGE_CODES + 1)]
    assert not keys.redeem(codes[0]) and keys.redeem(codes[1]) and not keys.redeem(codes[1])
    cookie = keys.cookie().partition(";")[0]
    assert keys.left(f"a=b; {cookie}; c=d") == limits.PAGE_SESSION_SECONDS
    now[0] += limits.PAGE_SESSION_SECONDS
    assert keys.left(cookie) == 0


def test_a_session_that_is_used_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from batchhvd.service.http.exchange import Answer, Here
    from batchhvd.service.page_site import PageSite
    from batchhvd.service.store.records import Store

    store = Store(tmp_path / "state.sqlite")
    site = PageSite(Here(store, tmp_path, None, time.time), lambda: "s" * 43)  # type: ignore[arg-type]
    assert "Set-Cookie" not in site._renewed(Answer(), limits.PAGE_SESSION_SECONDS * 0.6).headers
    assert "HttpOnly" in site._renewed(Answer(), limits.PAGE_SESSION_SECONDS * 0.4).headers["Set-Cookie"]
    store.close()
