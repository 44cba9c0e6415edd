"""SharedKey and shared access signatures, against what the real client signs."""

from __future__ import annotations

import base64
from datetime import datetime, timezone
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import pytest
from azure.core.pipeline import PipelineContext, PipelineRequest
from azure.core.rest import HttpRequest
from azure.storage.fileshare import (
    AccountSasPermissions,
    FileSasPermissions,
    ResourceTypes,
    ShareSasPermissions,
    generate_account_sas,
    generate_file_sas,
    generate_share_sas,
)
from azure.storage.fileshare._shared.authentication import SharedKeyCredentialPolicy
from hypothesis import given, settings
from hypothesis import strategies as st

from batchhvd.errors import ServiceError
from batchhvd.service.storage.protocol import sas as files_sas
from batchhvd.service.storage.protocol import shared_key as files_sharedkey
from batchhvd.service.storage.protocol.request import Request, Target, read

KEY = base64.b64encode(b"a key of some length, for tests").decode()
ACCOUNT = "mystorageaccount"
NOW = 1_550_000_000.0
DATE = "Tue, 12 Feb 2019 19:33:20 GMT"


def arrive(request: HttpRequest) -> Request:
    """Returns a client's request as the service would see it."""
    url = urlsplit(request.url)
    headers = [(name.lower().encode(), str(value).encode("latin-1")) for name, value in request.headers.items()]
    scope = {
        "method": request.method,
        "raw_path": url.path.encode(),
        "query_string": url.query.encode(),
        "headers": [*headers, (b"host", url.netloc.encode())],
    }
    return read(scope)


def signed(method: str, url: str, headers: dict[str, str], key: str = KEY) -> Request:
    """Returns a request that the real client's policy has signed."""
    request = HttpRequest(method, url, headers={"x-ms-date": DATE, "x-ms-version": "2026-10-06", **headers})
    request.query = dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))
    policy: Any = SharedKeyCredentialPolicy
    policy(ACCOUNT, key).on_request(PipelineRequest(_Old(request), PipelineContext(None)))
    return arrive(request)


class _Old:
    """The face of a request that the policy reads: the query undecoded, as the pipeline keeps it."""

    def __init__(self, request: HttpRequest) -> None:
        self.method, self.url, self.headers = request.method, request.url, request.headers
        pairs = (pair.partition("=") for pair in urlsplit(request.url).query.split("&") if pair)
        self.query = {name: value for name, _, value in pairs}


@pytest.mark.parametrize(
    "url",
    [
        f"http://127.0.0.1:8000/{ACCOUNT}/myshare/a%20b/%E6%97%A5.txt",
        f"http://127.0.0.1:8000/{ACCOUNT}/myshare/cifar%2Fsub?restype=directory",
        f"http://127.0.0.1:8000/{ACCOUNT}/?comp=list&include=&prefix=a%2Bb%20c",
        f"http://{ACCOUNT}.file.core.windows.net/myshare/50%25%20done+1.txt?comp=range&timeout=30",
        f"http://{ACCOUNT}.file.127.0.0.1.nip.io/myshare?restype=share",
    ],
)
@pytest.mark.parametrize("method", ["GET", "PUT", "HEAD", "DELETE"])
def test_a_request_signed_by_the_real_client_is_accepted(method: Any, url: Any) -> None:
    headers = {"Content-Length": "0", "x-ms-range": "bytes=0-5", "If-Match": '"0x1"', "Content-MD5": "q=="}
    files_sharedkey.check(signed(method, url, headers), ["", KEY][1:], NOW)


def test_each_part_of_the_request_is_signed() -> None:
    url = f"http://127.0.0.1:8000/{ACCOUNT}/myshare/f?comp=range"
    good = {"Content-Length": "7", "x-ms-range": "bytes=0-6", "x-ms-write": "update", "x-ms-meta-a": "1"}
    request = signed("PUT", url, good)
    files_sharedkey.check(request, [KEY], NOW)
    changes: list[dict[str, object]] = [
        {"headers": {**request.headers, name: "x"}} for name in request.headers if name not in ("host", "x-ms-date")
    ]
    changes += [
        {"method": "GET"},
        {"raw_path": f"/{ACCOUNT}/myshare/g"},
        {"query": {"comp": "metadata"}},
        {"query": {}},
    ]
    for change in changes:
        with pytest.raises(ServiceError, match="signed|signature") as caught:
            files_sharedkey.check(_evolve(request, change), [KEY], NOW)
        assert (caught.value.status, caught.value.code) == (403, "AuthenticationFailed")


def test_another_key_another_account_and_another_scheme_are_refused() -> None:
    url = f"http://127.0.0.1:8000/{ACCOUNT}/myshare/f"
    other = base64.b64encode(b"another").decode()
    request = signed("GET", url, {}, key=other)
    for keys in ([KEY], []):
        with pytest.raises(ServiceError):
            files_sharedkey.check(request, keys, NOW)
    files_sharedkey.check(request, [KEY, other], NOW)  # either of the two keys will do
    for value in ("", "SharedKey", "Bearer abc", f"SharedKeyLite {ACCOUNT}:x", f"SharedKey other:{'x' * 44}"):
        with pytest.raises(ServiceError):
            files_sharedkey.check(
                _evolve(request, {"headers": {**request.headers, "authorization": value}}), [other], NOW
            )


@pytest.mark.parametrize("off", [-901, 901, 86400])
def test_a_clock_that_differs_by_more_than_fifteen_minutes_is_refused(off: Any) -> None:
    request = signed("GET", f"http://127.0.0.1:8000/{ACCOUNT}/myshare/f", {})
    files_sharedkey.check(request, [KEY], NOW + 890 * (1 if off > 0 else -1))
    with pytest.raises(ServiceError, match="15 minutes"):
        files_sharedkey.check(request, [KEY], NOW + off)


@pytest.mark.parametrize("date", ["", "yesterday", "Tue, 99 Feb 2019 19:33:20 GMT"])
def test_a_request_without_a_readable_date_is_refused(date: Any) -> None:
    request = signed("GET", f"http://127.0.0.1:8000/{ACCOUNT}/myshare/f", {"x-ms-date": date})
    with pytest.raises(ServiceError, match="x-ms-date"):
        files_sharedkey.check(request, [KEY], NOW)


_META = st.from_regex(r"\A[a-z0-9_][a-z0-9_-]{0,6}\Z")


@given(st.sets(_META, min_size=1, max_size=8))
@settings(max_examples=100, deadline=None)
def test_metadata_names_with_hyphens_are_sorted_as_the_client_sorts_them(names: Any) -> None:
    headers = {f"x-ms-meta-{name}": "value" for name in names}
    files_sharedkey.check(signed("PUT", f"http://127.0.0.1:8000/{ACCOUNT}/s-1/f?comp=metadata", headers), [KEY], NOW)


def test_headers_sorted_by_ascii_are_accepted_too() -> None:
    request = signed("PUT", f"http://127.0.0.1:8000/{ACCOUNT}/myshare/f", {"x-ms-meta-a-b": "1", "x-ms-meta-ab": "2"})
    ours, theirs = files_sharedkey.texts(request)
    assert ours.index("x-ms-meta-ab") < ours.index("x-ms-meta-a-b")
    assert theirs.index("x-ms-meta-a-b") < theirs.index("x-ms-meta-ab")


def test_a_key_never_shows_in_an_error() -> None:
    with pytest.raises(ValueError, match="key") as caught:
        files_sharedkey.sign("not base64!", "text")
    assert "not base64!" not in str(caught.value)


EXPIRY = datetime(2019, 3, 1, tzinfo=timezone.utc)
PATHS = ["f.txt", "a/b/keras model.h5", "naïve-日本語/50% done+1 😀.txt"]


def link(token: str) -> dict[str, str]:
    """Returns a link's parameters as the service reads them from a URL."""
    scope = {"method": "GET", "raw_path": b"/", "query_string": token.encode(), "headers": []}
    return dict(read(scope).query)


def check(token: str, target: Target, now: float = NOW, scheme: str = "http", client: str = "127.0.0.1") -> Any:
    """Checks a link against the account's key."""
    return files_sas.check(link(token), target, [KEY], now, scheme=scheme, client=client)


@pytest.mark.parametrize("path", PATHS)
def test_the_string_of_a_file_link_is_the_clients(path: Any) -> None:
    seen: list[str] = []
    token = generate_file_sas(
        ACCOUNT, "myshare", path.split("/"), KEY, permission=FileSasPermissions(read=True, write=True), expiry=EXPIRY,
        start=datetime(2019, 1, 1, tzinfo=timezone.utc), ip="127.0.0.1-127.0.0.9", protocol="https,http",
        cache_control="no-cache", content_type="text/plain", content_disposition="inline", sts_hook=seen.append,
    )  # fmt: skip
    target = Target(ACCOUNT, "myshare", tuple(path.split("/")))
    assert files_sas.service_text(link(token), target) == seen[0]
    grant = check(token, target)
    assert (grant.letters, grant.levels, grant.manages) == ("rw", "o", False)
    with pytest.raises(ServiceError):
        check(token, Target(ACCOUNT, "myshare", ("other",)))


def test_the_string_of_a_share_link_is_the_clients() -> None:
    seen: list[str] = []
    permission = ShareSasPermissions(read=True, list=True)
    token = generate_share_sas(ACCOUNT, "myshare", KEY, permission=permission, expiry=EXPIRY, sts_hook=seen.append)
    assert files_sas.service_text(link(token), Target(ACCOUNT, "myshare", ("any", "thing"))) == seen[0]
    assert check(token, Target(ACCOUNT, "myshare", ("any", "thing"))).letters == "rl"
    for other in (Target(ACCOUNT, "yourshare"), Target("another1", "myshare"), Target(ACCOUNT)):
        with pytest.raises(ServiceError):
            check(token, other)


def test_the_string_of_an_account_link_is_the_clients() -> None:
    seen: list[str] = []
    token = generate_account_sas(
        ACCOUNT, KEY, ResourceTypes(service=True, object=True), AccountSasPermissions(read=True, list=True), EXPIRY,
        ip="127.0.0.1", protocol="https,http", sts_hook=seen.append,
    )  # fmt: skip
    assert files_sas.account_text(link(token), ACCOUNT) == seen[0]
    assert check(token, Target(ACCOUNT)).levels == "sdo"


def test_an_account_link_of_before_2020_12_signs_one_line_less() -> None:
    query = {"sv": "2018-03-28", "ss": "f", "srt": "o", "sp": "r", "se": "2019-03-01T00:00:00Z"}
    assert files_sas.account_text(query, ACCOUNT).count("\n") == 9
    query["sig"] = files_sharedkey.sign(KEY, files_sas.account_text(query, ACCOUNT))
    token = "&".join(f"{name}={quote(value)}" for name, value in query.items())
    assert check(token, Target(ACCOUNT, "myshare", ("f",))).letters == "r"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"now": EXPIRY.timestamp()}, "AuthenticationFailed"),
        ({"now": datetime(2018, 12, 31, tzinfo=timezone.utc).timestamp()}, "AuthenticationFailed"),
        ({"scheme": "http"}, "AuthorizationProtocolMismatch"),
        ({"client": "127.0.0.10"}, "AuthorizationSourceIPMismatch"),
        ({"client": "::1"}, "AuthorizationSourceIPMismatch"),
        ({"client": ""}, "AuthorizationSourceIPMismatch"),
    ],
)
def test_a_link_used_otherwise_than_it_says_is_refused(change: Any, code: Any) -> None:
    token = generate_file_sas(
        ACCOUNT, "myshare", ["f"], KEY, permission="r", expiry=EXPIRY, start="2019-01-01", protocol="https",
        ip="127.0.0.1-127.0.0.9",
    )  # fmt: skip
    target = Target(ACCOUNT, "myshare", ("f",))
    check(token, target, scheme="https", client="127.0.0.9")
    with pytest.raises(ServiceError) as caught:
        check(token, target, **{"scheme": "https", **change})
    assert (caught.value.status, caught.value.code) == (403, code)


@pytest.mark.parametrize("name", ["sp", "se", "sv", "sr", "sig", "st", "spr", "sip", "rsct", "si"])
def test_no_part_of_a_link_can_be_changed_or_added(name: Any) -> None:
    token = generate_file_sas(ACCOUNT, "myshare", ["f"], KEY, permission="r", expiry=EXPIRY)
    query = {**link(token), name: {"sp": "rw", "se": "2119-01-01", "sr": "s"}.get(name, "2019-01-01")}
    changed = "&".join(f"{key}={quote(value, safe='')}" for key, value in query.items())
    with pytest.raises(ServiceError) as caught:
        check(changed, Target(ACCOUNT, "myshare", ("f",)))
    assert caught.value.status == 403


@pytest.mark.parametrize("path", [*PATHS, ""])
def test_a_minted_link_is_accepted_until_it_ends(path: Any) -> None:
    target = Target(ACCOUNT, "myshare", tuple(name for name in path.split("/") if name))
    token = files_sas.mint(KEY, target, "rl", NOW + 60)
    assert check(token, target).letters == "rl"
    with pytest.raises(ServiceError, match="expired"):
        check(token, target, now=NOW + 60)
    assert KEY not in token


def _evolve(request: Request, change: dict[str, object]) -> Request:
    values = {name: getattr(request, name) for name in ("method", "target", "raw_path", "query", "headers")}
    return Request(**{**values, **change})
