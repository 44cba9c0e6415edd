"""The file service's pure parts: paths, ranges, listings, XML, conditions, notes."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote
from xml.etree import ElementTree

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from batchhvd.errors import ServiceError
from batchhvd.service.files.app import Files
from batchhvd.service.files.operations import smb
from batchhvd.service.files.route import find
from batchhvd.service.storage.disk import content
from batchhvd.service.storage.disk import names as disk_names
from batchhvd.service.storage.disk.sidecar import Sidecar
from batchhvd.service.storage.disk.tag import etag
from batchhvd.service.storage.protocol import byte_range, listing, xml
from batchhvd.service.storage.protocol import request as request_
from batchhvd.service.storage.protocol.refusal import refusal, translate
from batchhvd.service.storage.protocol.request import Request, Target
from batchhvd.service.storage.transport import read_body
from tests.support.waiting import until

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=20)
NAME = TEXT.filter(lambda name: name not in (".", "..") and len(name.encode()) < 256)


def request(path: str = "/mystorageaccount/myshare/f", query: str = "", method: str = "GET", **headers: str) -> Request:
    """Returns a request as it would arrive."""
    pairs = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    return request_.read(
        {"method": method, "raw_path": path.encode(), "query_string": query.encode(), "headers": pairs}
    )


@given(st.lists(NAME, max_size=4), st.booleans())
@settings(deadline=None)
def test_names_come_out_as_they_went_in(names: Any, encode_separators: Any) -> None:
    separator = "%2F" if encode_separators else "/"
    path = separator.join(quote(name, safe="") for name in names)
    assert request(f"/mystorageaccount/myshare/{path}").target == Target("mystorageaccount", "myshare", tuple(names))


@given(st.binary(max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_bytes_as_a_path_stay_in_the_share_or_are_refused(raw: Any) -> None:
    path = raw.replace(b"?", b"").replace(b"#", b"")
    try:
        names = request_._names(path.decode("latin-1"))
    except ServiceError as error:
        assert (error.status, error.code) == (400, "InvalidResourceName")
        return
    for name in names:
        assert name not in ("", ".", "..") and "/" not in name and "\0" not in name
        assert len(os.fsencode(name)) <= 255


@pytest.mark.parametrize(
    ("host", "path", "target"),
    [
        ("127.0.0.1:80", "/mystorageaccount/myshare/a/b", Target("mystorageaccount", "myshare", ("a", "b"))),
        ("mystorageaccount.file.core.windows.net", "/myshare/a", Target("mystorageaccount", "myshare", ("a",))),
        ("MyStorageAccount.File.core.windows.net:8000", "/", Target("mystorageaccount")),
        ("127.0.0.1", "/mystorageaccount", Target("mystorageaccount")),
        ("127.0.0.1", "/mystorageaccount/", Target("mystorageaccount")),
        ("127.0.0.1", "/No_Account/myshare", Target("", "myshare")),
        ("127.0.0.1", "/", Target("")),
        ("", "*", Target("")),
    ],
)
def test_account_and_share_are_found_in_host_or_path(host: Any, path: Any, target: Any) -> None:
    assert request(path, host=host).target == target


@pytest.mark.parametrize("path", ["/mystorageaccount//f", "/mystorageaccount//a/b", "/mystorageaccount//%2Ff"])
def test_a_file_without_a_share_is_refused(path: Any) -> None:
    with pytest.raises(ServiceError, match="no share"):
        request(path)


def test_a_query_is_read_as_clients_sign_it() -> None:
    read = request(query="Prefix=a+b%2B%20c&include=&flag&x=1=2").query
    assert read == {"prefix": "a+b+ c", "include": "", "flag": "", "x": "1=2"}


@pytest.mark.parametrize("forwarded", ["", "https", "HTTPS", "ftp"])
def test_the_scheme_is_the_one_before_the_proxy(forwarded: Any) -> None:
    read = request(x_forwarded_proto=forwarded) if forwarded else request()
    assert read.scheme == ("https" if forwarded.lower() == "https" else "http")


@given(st.integers(0, 50), st.integers(0, 60) | st.none(), st.integers(0, 60) | st.none())
@settings(max_examples=300, deadline=None)
def test_ranges_cut_what_slices_cut(size: Any, first: Any, last: Any) -> None:
    data = bytes(range(size))
    if first is None and last is None:
        return
    text = f"bytes={'' if first is None else first}-{'' if last is None else last}"
    if first is not None and last is not None and last < first:
        with pytest.raises(ServiceError):
            byte_range.asked(request(range=text))
        return
    part = byte_range.asked(request(range=text))
    assert part is not None
    span = byte_range.bounds(part, size)
    if first is None:
        expected = data[-last:] if last else b""
    else:
        expected = data[first:] if last is None else data[first : last + 1]
    assert (data[span[0] : span[1] + 1] if span else b"") == expected
    assert span is None or 0 <= span[0] <= span[1] < size


@given(st.text(max_size=20))
@settings(deadline=None)
def test_any_text_as_a_range_is_read_or_refused(text: Any) -> None:
    asked = evolve(request(), headers={"x-ms-range": text})
    try:
        part = byte_range.asked(asked)
    except ServiceError as error:
        assert error.status == 400
        return
    assert part is None or text.strip().startswith("bytes=")


def receiving(*messages: dict[str, object]) -> Any:
    """Returns what an ASGI server would hand over, message by message."""
    left = list(messages)

    async def receive() -> dict[str, object]:
        return left.pop(0)

    return receive


@pytest.mark.parametrize("count", [0, 1, 255, 256, 257, 3000])
def test_a_body_in_many_pieces_is_written_as_one(tmp_path: Path, count: Any) -> None:
    pieces = [bytes([number % 251]) * (number % 3) for number in range(count)]
    messages = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    body = asyncio.run(read_body(receiving(*messages, {"type": "http.request"})))
    assert body is not None and b"".join(body) == b"".join(pieces)
    assert len(body) <= 256 + count // 256
    with (tmp_path / "f").open("wb") as file:
        content.write(file.fileno(), pieces, 5)
    assert (tmp_path / "f").read_bytes()[5:] == b"".join(pieces)


def test_a_body_that_breaks_off_or_never_ends_is_not_taken() -> None:
    part = {"type": "http.request", "body": bytes(1 << 20), "more_body": True}
    assert asyncio.run(read_body(receiving(part, {"type": "http.disconnect"}))) is None
    with pytest.raises(ServiceError) as caught:
        asyncio.run(read_body(receiving(*[part] * 9)))
    assert caught.value.code == "RequestBodyTooLarge"


def test_the_storage_clients_range_goes_before_https_own() -> None:
    assert byte_range.asked(request(range="bytes=0-1", x_ms_range="bytes=5-6")) == (5, 6)


@given(st.lists(NAME, unique=True, max_size=20), st.integers(1, 7))
@settings(deadline=None)
def test_pages_hold_each_name_once_in_order(names: Any, size: Any) -> None:
    seen: list[str] = []
    marker = ""
    while True:
        rest = disk_names.after(
            disk_names.in_order([os.fsencode(name) for name in names]), listing.name_of(marker), b"", size + 1
        )
        seen += rest[:size]
        if len(rest) <= size:
            break
        marker = listing.mark(rest[size - 1])
    assert seen == sorted(names, key=os.fsencode)


@given(TEXT)
@settings(deadline=None)
def test_a_name_in_xml_reads_back(name: Any) -> None:
    parent = ElementTree.Element("Parent")
    xml.add_name(parent, name)
    element = ElementTree.fromstring(xml.document(parent))[0]
    text = element.text or ""
    assert (unquote(text) if element.get("Encoded") else text) == name


@given(st.text(max_size=30), st.text(max_size=30))
@settings(deadline=None)
def test_a_listing_is_well_formed_whatever_was_asked(prefix: Any, path: Any) -> None:
    entries = [xml.entry("File", "f&<", 7, {"Content-Length": 1}, {})]
    text = xml.listing("Entries", entries, "m", {"Prefix": prefix}, {"P": path})
    assert ElementTree.fromstring(text).findtext("Entries/File/Properties/Content-Length") == "1"


def test_an_errors_message_is_escaped() -> None:
    assert ElementTree.fromstring(xml.error_document("Code", "<&>")).findtext("Message") == "<&>"


def test_writes_within_one_tick_of_the_systems_clock_have_etags_of_their_own(tmp_path: Path) -> None:
    tags = []
    with (tmp_path / "f").open("wb") as file:
        for _ in range(200):
            os.pwrite(file.fileno(), b"same size", 0)
            content.stamp(file.fileno())
            tags.append(etag(os.fstat(file.fileno())))
    assert len(set(tags)) == 200


@pytest.mark.parametrize(
    "text",
    ["2019-02-12T19:33:20Z", "2019-02-12T19:33:20.1234567Z", "2019-02-12T19:33:20+00:00", "now", "Preserve", ""],
)
def test_times_are_read(text: Any) -> None:
    moment = smb.written_at(request(x_ms_file_last_write_time=text), before=7, default="preserve")
    expected = {"now": int(time.time()), "preserve": 0, "": 0}.get(text.lower(), 1_550_000_000)
    assert abs(moment // 10**9 - expected) < 60
    assert (moment == 7) == (text.lower() in ("preserve", ""))


@pytest.mark.parametrize("text", ["yesterday", "1969-01-01T00:00:00Z", "2019-13-01T00:00:00Z", "2019-02-12", "١"])
def test_other_times_are_refused(text: Any) -> None:
    wrong = evolve(request(), headers={"x-ms-file-last-write-time": text})
    with pytest.raises(ServiceError) as caught:
        smb.written_at(wrong, before=7)
    assert caught.value.code == "InvalidHeaderValue"


@pytest.mark.parametrize("text", ["", "-1", "1.5", "٣", "1e3", "9" * 30, "11"])
def test_a_number_is_whole_and_within_its_limits(text: Any) -> None:
    assert evolve(request(), headers={"x-n": "7"}).number("x-n", most=10) == 7
    with pytest.raises(ServiceError):
        evolve(request(), headers={"x-n": text}).number("x-n", most=10)


@pytest.mark.parametrize(
    ("method", "path", "query", "code"),
    [
        ("PATCH", "f", "", "UnsupportedHttpVerb"),
        ("GET", "f", "comp=tags", "NotImplemented"),
        ("PUT", "f", "restype=symboliclink", "NotImplemented"),
        ("PUT", "f", "restype=hardlink", "NotImplemented"),
        ("GET", "", "comp=userdelegationkey", "NotImplemented"),
        ("GET", "", "", "UnsupportedHttpVerb"),
    ],
)
def test_what_is_not_spoken_is_refused(method: Any, path: Any, query: Any, code: Any) -> None:
    with pytest.raises(ServiceError) as caught:
        find(request(f"/mystorageaccount/myshare/{path}", query, method))
    assert caught.value.code == code


def test_refusals_of_the_system_become_refusals_to_the_client() -> None:
    for error, code in (
        (FileNotFoundError(2, ""), "ResourceNotFound"),
        (PermissionError(13, ""), "CannotAccess"),
        (OSError(28, ""), "ShareSizeLimitReached"),
        (OSError(36, ""), "InvalidResourceName"),
    ):
        found = translate(error)
        assert found is not None and found.code == code
    assert translate(OSError(5, "input/output error")) is None
    assert refusal("ResourceNotFound", "Look.").args[0].endswith("Look.")


def test_notes_count_for_the_inode_they_were_made_for(tmp_path: Path) -> None:
    notes = Sidecar(tmp_path / "sidecar.sqlite")
    notes.put("a/s", "f", 2**64 - 5, {"metadata": {"k": "v"}, "content": {}, "created": None})
    assert notes.get("a/s", "f", 2**64 - 5) == {"metadata": {"k": "v"}}
    assert notes.get("a/s", "f", 7) == notes.get("a/s", "g", 5) == notes.get("b/s", "f", 2**64 - 5) == {}
    notes.put("a/s", "f", 7, {})
    assert notes.get("a/s", "f", 2**64 - 5) == {}
    notes.close()


def test_notes_move_with_a_directory_and_with_it_alone(tmp_path: Path) -> None:
    notes = Sidecar(tmp_path / "sidecar.sqlite")
    for number, path in enumerate(("a", "a/b", "a/b/ü", "ab", "a0", "z/old")):
        notes.put("a/s", path, number, {"metadata": {"path": path}})
    notes.move("a/s", "a", "z")
    kept = {path: notes.get("a/s", path, number) for number, path in enumerate(("z", "z/b", "z/b/ü", "ab", "a0"))}
    assert {path: facts["metadata"]["path"] for path, facts in kept.items()} == {
        "z": "a", "z/b": "a/b", "z/b/ü": "a/b/ü", "ab": "ab", "a0": "a0",
    }  # fmt: skip
    assert notes.get("a/s", "z/old", 5) == {}  # what the place held before
    notes.forget_share("a/s")
    assert notes.get("a/s", "ab", 3) == {}
    notes.close()


def test_a_share_has_a_directory_only_where_there_is_one(tmp_path: Path) -> None:
    files = Files(tmp_path / "Dateien ü", {"account1": ["a2V5"]}.get)
    (tmp_path / "Dateien ü" / "account1" / "myshare").mkdir(parents=True)
    assert files.directory("account1", "myshare") == tmp_path / "Dateien ü" / "account1" / "myshare"
    for account, share in (("account1", "other"), ("account1", ".."), (".files", "staging"), ("..", "x"), ("", "")):
        assert files.directory(account, share) is None
    with pytest.raises(ServiceError):
        files.sas("account2", "myshare", "f", "r", 4e9)
    files.close()


def test_a_new_service_clears_what_a_killed_one_left(tmp_path: Path) -> None:
    root = Path(tmp_path / "Dateien ü")
    Files(root, lambda account: None).close()
    (root / ".files" / "staging" / "half").write_bytes(b"half")
    (root / ".files" / "trash" / "share").mkdir()
    Files(root, lambda account: None).close()
    until(lambda: not list((root / ".files" / "trash").iterdir()), 10)
    assert [path.name for path in sorted((root / ".files").rglob("*")) if path.suffix == ""] == ["staging", "trash"]
