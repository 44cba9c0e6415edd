"""Tokens: only the secret and what was signed with it, only until its end; pages begin where the last one ended."""

from __future__ import annotations

import pytest

from batchhvd.errors import BadRequestError
from batchhvd.service.http import paging, tokens
from batchhvd.service.http.exchange import Answer, Ask, read_json, text_of
from batchhvd.service.process import Activity
from batchhvd.service.tls import ours


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def test_a_token_opens_until_its_end() -> None:
    clock = Clock()
    bearer = tokens.Tokens("the secret", clock)
    token, ends = bearer.issue()
    assert bearer.accepts(token) and bearer.accepts("the secret") and ends == clock.now + tokens.LIFETIME
    clock.now = ends - 1.0
    assert bearer.accepts(token)
    clock.now = float(ends)
    assert not bearer.accepts(token) and bearer.accepts("the secret")


@pytest.mark.parametrize("wrong", ["", ".", "1.2", "²." + "0" * 64, "9" * 400 + ".0", "the secret ", "é", "-1.0"])
def test_other_texts_open_nothing(wrong: str) -> None:
    assert not tokens.Tokens("the secret", Clock()).accepts(wrong)


def test_a_token_of_another_secret_or_with_another_end_opens_nothing() -> None:
    token, ends = tokens.Tokens("another", Clock()).issue()
    bearer = tokens.Tokens("the secret", Clock())
    own, _ = bearer.issue()
    assert not bearer.accepts(token) and not bearer.accepts(f"{ends + 1}.{own.partition('.')[2]}")
    assert "the secret" not in repr(bearer)


def ask(**query: str) -> Ask:
    return Ask("GET", "/things", {}, {"api-version": "1", **query}, base="http://h")


def read(answer: Answer) -> tuple[list[str], str]:
    return answer.body["value"], answer.body.get("nextLink", "")


def test_pages_go_on_where_the_last_one_ended_whatever_went_meanwhile() -> None:
    first, link = read(paging.page(ask(maxresults="2"), ["a", "b", "ç"], str, str.upper))
    assert first == ["A", "B"] and link.startswith("http://h/things?") and "maxresults=2" in link
    token = link.partition("%24skiptoken=")[2] or link.partition("$skiptoken=")[2]
    following = ask(maxresults="2", **{paging.TOKEN: token.replace("%3D", "=")})
    assert read(paging.page(following, ["ç"], str, str)) == (["ç"], "")
    assert read(paging.page(ask(), [], str, str)) == ([], "")
    for wrong in ("é", "a", "===", "_w=="):
        with pytest.raises(BadRequestError):
            paging.page(ask(**{paging.TOKEN: wrong}), ["a"], str, str)


@pytest.mark.parametrize(
    "body", [b"{", b"\xff", b"[NaN]", b'"\\ud800"', b'{"a": ["x\\u0000"]}', b'{"\\u0000": 1}', b"[" * 9999]
)
def test_no_documents(body: bytes) -> None:
    with pytest.raises(BadRequestError) as caught:
        read_json(body)
    assert caught.value.status == 400


def test_documents_and_times() -> None:
    assert read_json(b" ") is None and read_json(b'{"\\\\u0000": "\xc3\xa9"}') == {"\\u0000": "é"}
    assert text_of(0.0015) == "1970-01-01T00:00:00.001Z"


def test_idleness_begins_when_the_last_job_has_ended() -> None:
    clock, busy = Clock(), [True]
    activity = Activity(lambda: busy[0], clock)
    clock.now += 100
    assert not activity.unneeded(60)  # a job runs: from now on again
    busy[0] = False
    clock.now += 50
    assert not activity.unneeded(60)
    clock.now += 20
    assert activity.unneeded(60)
    activity.touch()
    assert not activity.unneeded(60)


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ("CONNECT management.azure.com:443 HTTP/1.1", True),
        ("CONNECT MyAccount1.file.core.windows.net:443 HTTP/1.1", True),
        ("CONNECT management.azure.com:80 HTTP/1.1", False),
        ("CONNECT a.b.file.core.windows.net:443 HTTP/1.1", False),
        ("CONNECT management.azure.com.evil.example:443 HTTP/1.1", False),
        ("GET http://management.azure.com/ HTTP/1.1", False),
        ("CONNECT", False),
        ("\x00", False),
    ],
)
def test_what_the_proxy_stands_in_for(line: str, allowed: bool) -> None:
    assert ours(line.encode("latin-1") + b"\r\nHost: x\r\n\r\n") is allowed


@pytest.mark.parametrize("secret", ["", "the secret"])
def test_nothing_is_no_secret(secret: str) -> None:
    bearer = tokens.Tokens(secret, Clock())
    assert not bearer.accepts("")
    body = b"grant_type=client_credentials&client_secret="
    assert tokens.grant(bearer, body, 2).status == 401
    assert secret or not bearer.accepts(bearer.issue()[0])
