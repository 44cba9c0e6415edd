"""What every answer tells a browser, and requests in disguise: two hosts, a date without zone."""

from __future__ import annotations

import socket
import time
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from azure.storage.fileshare import ContentSettings, ShareClient, generate_file_sas

SANDBOX, NOSNIFF = "sandbox", "nosniff"


@pytest.fixture
def share(service: Any, account: tuple[str, str]) -> ShareClient:
    name, key = account
    made = ShareClient(f"{service.url}/{name}", "share", credential=key, use_env_settings=False)
    made.create_share()
    return made


def link(share: ShareClient, name: str, **more: Any) -> str:
    ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 600))
    key = share.credential.account_key
    query = generate_file_sas(str(share.account_name), "share", [name], key, permission="r", expiry=ends, **more)
    return f"{share.url.partition('?')[0]}/{name}?{query}"


def put(share: ShareClient, name: str, type: str, disposition: str | None = None) -> None:
    settings = ContentSettings(content_type=type, content_disposition=disposition)
    share.get_file_client(name).upload_file(b"<b>", content_settings=settings)


def test_every_answer_is_confined_whoever_asks(service: Any, share: ShareClient) -> None:
    put(share, "f.html", "text/html")
    url = urlsplit(link(share, "f.html"))
    for method, wanted in (
        ("GET", f"{url.path}?{url.query}"),
        ("HEAD", f"{url.path}?{url.query}"),
        ("GET", f"{url.path}?sig=wrong"),
        ("GET", f"{url.path}"),
        ("GET", "/"),
        ("GET", "/subscriptions"),
        ("GET", "/metadata/endpoints"),
        ("POST", "/x/oauth2/token"),
        ("GET", "/status.json"),
    ):
        got = httpx.request(method, service.url + wanted, trust_env=False)
        assert got.headers["content-security-policy"] == SANDBOX, wanted
        assert got.headers["x-content-type-options"] == NOSNIFF, wanted
    assert service.call("GET", "/subscriptions").headers["content-security-policy"] == SANDBOX


@pytest.mark.parametrize(
    "type",
    ["text/html", "TEXT/HTML; charset=utf-8", "image/svg+xml", "text/xml", "application/xhtml+xml", "application/pdf",
     "text/javascript", "multipart/x-mixed-replace", "text/xsl", "nonsense", "text/plain,text/html",
     "text/html;image/png"],
)  # fmt: skip
def test_what_could_hold_a_script_is_a_download_through_a_link(share: ShareClient, type: str) -> None:
    put(share, "a", type)
    assert httpx.get(link(share, "a"), trust_env=False).headers["content-disposition"] == "attachment"
    put(share, "a", type, 'inline; filename="ü.html"'.encode().decode("latin-1"))
    got = httpx.get(link(share, "a"), trust_env=False)
    assert got.headers["content-disposition"].startswith('attachment; filename="')
    shown = httpx.get(link(share, "a", content_disposition="inline"), trust_env=False)
    assert shown.headers["content-disposition"] == "inline" and shown.headers["content-security-policy"] == SANDBOX


@pytest.mark.parametrize(
    "type", ["text/plain", "text/plain; charset=utf-8", "image/png", "video/mp4", "application/json"]
)
def test_what_cannot_is_shown(share: ShareClient, type: str) -> None:
    put(share, "a", type)
    assert "content-disposition" not in httpx.get(link(share, "a"), trust_env=False).headers
    changed = httpx.get(link(share, "a", content_type="text/html"), trust_env=False)  # a link's own type counts
    assert changed.headers["content-disposition"] == "attachment"


def test_with_the_key_a_file_s_properties_are_what_was_set(share: ShareClient) -> None:
    for disposition in (None, "inline"):
        put(share, "a", "text/html", disposition)
        properties = share.get_file_client("a").get_file_properties()
        assert properties.content_settings.content_disposition == disposition
        assert share.get_file_client("a").download_file().properties.content_settings.content_disposition == disposition


def raw(service: Any, text: str) -> bytes:
    host, port = service.url.rpartition("/")[2].split(":")
    with socket.create_connection((host, int(port)), 10) as line:
        line.sendall(text.encode())
        return b"".join(iter(lambda: line.recv(65536), b""))


@pytest.mark.parametrize("path", ["/subscriptions?api-version=1", "/acc/share/f", "/"])
@pytest.mark.parametrize("second", ["127.0.0.1", "evil.example", "acc.file.core.windows.net", ""])
def test_two_hosts_are_refused(service: Any, path: str, second: str) -> None:
    head = f"Authorization: Bearer {service.token}\r\nConnection: close\r\n"
    answer = raw(service, f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: {second}\r\n{head}\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ") and b"more than one Host header" in answer


@pytest.mark.parametrize("form", ["%a, %d %b %Y %H:%M:%S", "%a, %d %b %Y %H:%M:%S -0000", "%d %b %Y %H:%M:%S"])
def test_a_date_without_zone_is_refused_by_name(service: Any, account: tuple[str, str], form: str) -> None:
    date = time.strftime(form, time.gmtime())
    headers = {"x-ms-date": date, "Authorization": f"SharedKey {account[0]}:x", "x-ms-version": "2022-11-02"}
    got = httpx.get(f"{service.url}/{account[0]}?comp=list", headers=headers, trust_env=False)
    assert got.status_code == 403 and "has no time zone" in got.text
