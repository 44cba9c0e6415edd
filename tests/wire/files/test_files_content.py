"""Files and ranges, with the real client."""

from __future__ import annotations

import hashlib
import os
import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import httpx
import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceModifiedError, ResourceNotFoundError
from azure.storage.fileshare import ContentSettings, ShareClient

from batchhvd.service.storage.disk.disk import Staged
from batchhvd.service.storage.disk.tree import Spot
from tests.wire.files.conftest import ACCOUNT, Service, code

MIB = 1 << 20


def spans(file: Any, **part: Any) -> list[tuple[int, int]]:
    """Returns the ranges that hold data."""
    if hasattr(file, "list_ranges"):
        return [(found.start, found.end) for found in file.list_ranges(**part)]
    return [(found["start"], found["end"]) for found in file.get_ranges(**part)]  # packages of 2024


@pytest.mark.parametrize("size", [0, 1, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1, 33 * MIB + 5])
def test_a_file_of_any_size_goes_up_in_parallel_and_comes_down_the_same(
    share: ShareClient, folder: Path, size: int
) -> None:
    data = os.urandom(size)
    file = share.get_file_client("f")
    file.upload_file(data, max_concurrency=4)
    assert (folder / "f").read_bytes() == data
    assert hashlib.sha256(file.download_file(max_concurrency=4).readall()).digest() == hashlib.sha256(data).digest()
    assert b"".join(file.download_file().chunks()) == data
    assert file.get_file_properties().size == size


def test_a_file_is_replaced_as_a_whole(share: ShareClient, folder: Path) -> None:
    file = share.get_file_client("f")
    file.upload_file(b"long old content", metadata={"old": "yes"})
    reader = (folder / "f").open("rb")
    file.upload_file(b"new")
    assert (folder / "f").read_bytes() == b"new"
    assert reader.read() == b"long old content"  # who has it open keeps what it opened
    assert file.get_file_properties().metadata == {}
    reader.close()


def test_a_large_file_is_replaced_by_a_thread_of_its_own(
    service: Service, share: ShareClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    enter = Staged.enter

    def watched(staged: Staged, place: Spot) -> os.stat_result:
        threads.append(threading.current_thread().name)
        return enter(staged, place)

    monkeypatch.setattr(Staged, "enter", watched)
    file = share.get_file_client("f")
    for size in (3 * MIB, 5, 7):
        file.create_file(size)
    assert [name.startswith("files") for name in threads] == [False, True, False]  # freeing 3 MiB may take long
    assert (folder / "f").stat().st_size == 7


def test_a_made_file_is_zeros_of_the_size_asked_for(share: ShareClient, folder: Path) -> None:
    file = share.get_file_client("f")
    file.create_file(10 * MIB)
    assert (folder / "f").stat().st_size == 10 * MIB
    assert (folder / "f").stat().st_blocks == 0
    file.upload_range(b"abc", 5, 3)
    assert file.download_file(offset=3, length=7).readall() == b"\0\0abc\0\0"


@pytest.mark.parametrize("size", [-1, (4 << 40) + 1])
def test_an_impossible_size_is_refused(share: ShareClient, size: int) -> None:
    with pytest.raises(HttpResponseError) as caught:
        share.get_file_client("f").create_file(size)
    assert code(caught)[1] == "InvalidHeaderValue"
    assert not share.get_file_client("f").exists()


def test_ranges_are_written_where_they_belong_and_nowhere_else(share: ShareClient, folder: Path) -> None:
    file = share.get_file_client("f")
    file.create_file(100)
    file.upload_range(b"x" * 10, 90, 10)
    for offset, length in ((91, 10), (100, 1), (4000, 5)):
        with pytest.raises(HttpResponseError) as caught:
            file.upload_range(b"y" * length, offset, length)
        assert code(caught) == (416, "InvalidRange")
    assert (folder / "f").read_bytes() == b"\0" * 90 + b"x" * 10


def test_a_range_of_more_than_four_mebibytes_is_refused(service: Service, share: ShareClient) -> None:
    big = service.share(share.share_name, max_range_size=5 * MIB).get_file_client("f")
    big.create_file(5 * MIB)
    with pytest.raises(HttpResponseError) as caught:
        big.upload_range(b"x" * (4 * MIB + 1), 0, 4 * MIB + 1)
    assert code(caught) == (413, "RequestBodyTooLarge")


def test_every_write_changes_the_etag_and_nothing_else_does(share: ShareClient) -> None:
    file = share.get_file_client("f")
    seen = [file.create_file(4)["etag"], *(file.upload_range(b"same", 0, 4)["etag"] for _ in range(50))]
    assert len(set(seen)) == 51
    assert {file.get_file_properties().etag for _ in range(3)} == {seen[-1]}
    file.download_file().readall()
    assert file.get_file_properties().etag == seen[-1]


def test_ranges_are_read_with_206_and_past_the_end_416(share: ShareClient, service: Service, web: httpx.Client) -> None:
    file = share.get_file_client("f")
    file.upload_file(bytes(range(100)))
    url = f"{file.url}?{service.files.sas('mystorageaccount', share.share_name, 'f', 'r', 4e9)}"
    for header, status, expected in (
        ("bytes=10-19", 206, bytes(range(10, 20))),
        ("bytes=90-", 206, bytes(range(90, 100))),
        ("bytes=90-5000", 206, bytes(range(90, 100))),
        ("bytes=-5", 206, bytes(range(95, 100))),
        ("bytes=-500", 206, bytes(range(100))),
        ("bytes=0-0", 206, b"\0"),
        ("bytes=100-", 416, None),
        ("bytes=100-200", 416, None),
        ("bytes=-0", 416, None),
        ("bytes=5-2", 400, None),
        ("bytes=a-b", 400, None),
        ("bytes=0-1,4-5", 400, None),
        ("bytes=99999999999999999999-", 400, None),
    ):
        answer = web.get(url, headers={"Range": header})
        assert answer.status_code == status, header
        if status == 206:
            assert answer.content == expected
            assert answer.headers["content-range"].endswith("/100")
        if status == 416:
            assert answer.headers["content-range"] == "bytes */100"
            assert answer.headers["x-ms-error-code"] == "InvalidRange"
    whole = web.get(url)
    assert (whole.status_code, whole.content) == (200, bytes(range(100)))
    assert "content-range" not in whole.headers
    with pytest.raises(HttpResponseError) as caught:
        file.download_file(offset=100)
    assert caught.value.status_code == 416


def test_a_growing_file_is_followed_by_ranges(share: ShareClient, folder: Path) -> None:
    log = share.get_file_client("stdout.txt")
    pieces = [f"epoch {number} ü\n".encode() * 1000 for number in range(5)]
    read = b""
    for piece in pieces:
        with (folder / "stdout.txt").open("ab") as stream:
            stream.write(piece)
        read += log.download_file(offset=len(read)).readall()
    assert read == b"".join(pieces)
    with pytest.raises(HttpResponseError) as caught:
        log.download_file(offset=len(read))
    assert caught.value.status_code == 416


def test_a_file_that_shrinks_while_it_is_sent_ends_the_connection(
    share: ShareClient, service: Service, folder: Path, web: httpx.Client
) -> None:
    (folder / "f").write_bytes(b"x" * 64 * MIB)
    url = f"{share.get_file_client('f').url}?{service.files.sas('mystorageaccount', share.share_name, 'f', 'r', 4e9)}"
    with pytest.raises(httpx.HTTPError), web.stream("GET", url) as answer:
        chunks = answer.iter_raw()
        next(chunks)
        os.truncate(folder / "f", 1)
        for _ in chunks:
            pass


def test_a_reader_that_goes_away_leaves_no_file_open(
    share: ShareClient, service: Service, folder: Path, web: httpx.Client
) -> None:
    (folder / "f").write_bytes(b"x" * 64 * MIB)
    url = f"{share.get_file_client('f').url}?{service.files.sas('mystorageaccount', share.share_name, 'f', 'r', 4e9)}"
    for _ in range(3):
        with web.stream("GET", url) as answer:
            next(answer.iter_raw())
    path = str(folder / "f")
    for _ in range(500):
        if path not in {os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")}:
            return
        threading.Event().wait(0.01)
    pytest.fail("the service still has the file open")


def test_cleared_ranges_read_as_zeros_and_are_not_listed(share: ShareClient, folder: Path) -> None:
    file = share.get_file_client("f")
    file.create_file(16 * MIB)
    file.upload_range(b"x" * 4 * MIB, 0, 4 * MIB)
    file.upload_range(b"y" * 4 * MIB, 8 * MIB, 4 * MIB)
    assert spans(file) == [(0, 4 * MIB - 1), (8 * MIB, 12 * MIB - 1)]
    assert spans(file, offset=MIB, length=MIB) == [(MIB, 2 * MIB - 1)]
    file.clear_range(MIB, 2 * MIB)
    assert spans(file) == [(0, MIB - 1), (3 * MIB, 4 * MIB - 1), (8 * MIB, 12 * MIB - 1)]
    assert (folder / "f").read_bytes()[: 4 * MIB] == b"x" * MIB + bytes(2 * MIB) + b"x" * MIB
    assert (folder / "f").stat().st_size == 16 * MIB


def test_ranges_of_an_empty_file_are_none(share: ShareClient) -> None:
    file = share.get_file_client("f")
    file.create_file(0)
    assert spans(file) == []


def test_content_is_validated_by_md5_both_ways(share: ShareClient, folder: Path) -> None:
    data = os.urandom(9 * MIB)
    file = share.get_file_client("f")
    file.upload_file(data, validate_content=True, max_concurrency=2)
    assert file.download_file(validate_content=True).readall() == data
    with pytest.raises(HttpResponseError) as caught:
        file.upload_range(b"abc", 0, 3, headers={"Content-MD5": "AAAAAAAAAAAAAAAAAAAAAA=="})
    assert code(caught) == (400, "Md5Mismatch")
    assert (folder / "f").read_bytes() == data


def test_properties_metadata_and_content_headers_are_kept(share: ShareClient, service: Service) -> None:
    file = share.get_file_client("model.h5")
    settings = ContentSettings(content_type="text/x-ü", content_language="de", cache_control="no-cache")
    file.upload_file(b"data", metadata={"epoch": "25", "_b": "x", "ab": "y", "a_b": "z"}, content_settings=settings)
    told = file.get_file_properties()
    assert told.metadata == {"epoch": "25", "_b": "x", "ab": "y", "a_b": "z"}
    assert told.content_settings.content_type == "text/x-ü"
    assert (told.content_settings.content_language, told.content_settings.cache_control) == ("de", "no-cache")
    assert file.download_file().properties.metadata["epoch"] == "25"
    tag = told.etag
    file.set_file_metadata({"only": "this"})
    assert file.get_file_properties().metadata == {"only": "this"}
    assert file.get_file_properties().etag != tag
    file.set_http_headers(ContentSettings(content_type="application/x-hdf", content_md5=bytearray(b"0123456789abcdef")))
    told = file.get_file_properties()
    assert told.content_settings.content_type == "application/x-hdf"
    assert told.content_settings.content_md5 == bytearray(b"0123456789abcdef")
    assert told.content_settings.content_language is None
    assert told.metadata == {"only": "this"}


def test_a_file_that_a_job_put_in_place_of_another_inherits_nothing(share: ShareClient, folder: Path) -> None:
    share.get_file_client("f").upload_file(b"1", metadata={"of": "the first"})
    (folder / "new").write_bytes(b"2")
    (folder / "new").rename(folder / "f")
    assert share.get_file_client("f").get_file_properties().metadata == {}


def test_more_than_eight_kibibytes_of_metadata_are_refused(share: ShareClient) -> None:
    with pytest.raises(HttpResponseError) as caught:
        share.get_file_client("f").create_file(1, metadata={f"m{number}": "x" * 1000 for number in range(9)})
    assert code(caught)[1] == "MetadataTooLarge"


def test_a_file_is_resized_and_keeps_its_headers(share: ShareClient, folder: Path) -> None:
    file = share.get_file_client("f")
    file.upload_file(b"0123456789", content_settings=ContentSettings(content_type="text/plain"))
    file.resize_file(4)
    assert (folder / "f").read_bytes() == b"0123"
    file.resize_file(6)
    assert (folder / "f").read_bytes() == b"0123\0\0"
    assert file.get_file_properties().content_settings.content_type == "text/plain"


def test_times_that_the_client_sets_are_shown_again(share: ShareClient, folder: Path) -> None:
    moment = datetime(2019, 2, 12, 19, 33, 20, 123456, tzinfo=timezone.utc)
    file = share.get_file_client("f")
    file.create_file(3, file_creation_time=moment, file_last_write_time=moment + timedelta(days=1))
    told: Any = file.get_file_properties()
    assert told.creation_time.replace(tzinfo=timezone.utc) == moment
    assert told.last_write_time.replace(tzinfo=timezone.utc) == moment + timedelta(days=1)
    assert (folder / "f").stat().st_mtime == (moment + timedelta(days=1)).timestamp()
    before = file.get_file_properties().etag
    file.upload_range(b"abc", 0, 3, file_last_write_mode="Preserve")  # type: ignore[arg-type]  # as it was written in 2019
    assert (folder / "f").stat().st_mtime == (moment + timedelta(days=1)).timestamp()
    assert file.get_file_properties().etag != before


def test_conditions_are_kept(share: ShareClient, service: Service, folder: Path, web: httpx.Client) -> None:
    file = share.get_file_client("f")
    tag = file.upload_file(b"one")["etag"]
    url = f"{file.url}?{service.files.sas('mystorageaccount', share.share_name, 'f', 'rwd', 4e9)}"
    modified = web.head(url).headers["last-modified"]
    assert web.get(url, headers={"If-None-Match": tag}).status_code == 304
    assert web.head(url, headers={"If-None-Match": tag}).status_code == 304
    assert web.get(url, headers={"If-Modified-Since": modified}).status_code == 304
    assert web.get(url, headers={"If-Match": tag}).status_code == 200
    assert web.get(url, headers={"If-Unmodified-Since": modified}).status_code == 200
    assert web.get(url, headers={"If-Match": '"0xother"'}).status_code == 412
    old = "Tue, 12 Feb 2019 19:33:20 GMT"
    assert web.get(url, headers={"If-Unmodified-Since": old}).status_code == 412
    assert web.get(url, headers={"If-Modified-Since": "yesterday"}).status_code == 400
    write = {"x-ms-range": "bytes=0-2", "x-ms-write": "update", "x-ms-version": "2022-11-02"}
    refused = web.put(f"{url}&comp=range", content=b"two", headers={**write, "If-Match": '"0xother"'})
    assert (refused.status_code, refused.headers["x-ms-error-code"]) == (412, "ConditionNotMet")
    assert (folder / "f").read_bytes() == b"one"
    assert web.put(f"{url}&comp=range", content=b"two", headers={**write, "If-Match": tag}).status_code == 201
    assert web.delete(url, headers={"If-None-Match": "*"}).status_code == 412
    new = {"x-ms-type": "file", "x-ms-content-length": "1", "If-None-Match": "*"}
    assert web.put(url, headers=new).status_code == 412


def test_a_download_of_a_file_that_changes_is_noticed_by_the_client(
    share: ShareClient, service: Service, folder: Path
) -> None:
    client = service.share(share.share_name, max_single_get_size=1024, max_chunk_get_size=1024).get_file_client("f")
    client.upload_file(b"1" * 4096)
    download = client.download_file()
    client.upload_range(b"2" * 10, 3000, 10)
    with pytest.raises(ResourceModifiedError):
        download.readall()


def test_a_deleted_file_is_gone(share: ShareClient, folder: Path) -> None:
    file = share.get_file_client("f")
    file.upload_file(b"1")
    file.delete_file()
    assert not (folder / "f").exists()
    for attempt in (
        file.delete_file,
        file.get_file_properties,
        file.download_file,
        lambda: file.upload_range(b"1", 0, 1),
    ):
        with pytest.raises(ResourceNotFoundError):
            attempt()


def test_rename_takes_content_and_metadata_along(share: ShareClient, folder: Path) -> None:
    share.create_directory("d")
    file = share.get_file_client("old ü.txt")
    file.upload_file(b"content", metadata={"k": "v"}, content_settings=ContentSettings(content_type="text/plain"))
    new = file.rename_file("d/new + 100%.txt")
    assert (folder / "d" / "new + 100%.txt").read_bytes() == b"content"
    assert not file.exists()
    assert new.get_file_properties().metadata == {"k": "v"}
    assert new.get_file_properties().content_settings.content_type == "text/plain"
    other = share.get_file_client("other")
    other.upload_file(b"other")
    with pytest.raises(ResourceExistsError) as caught:
        new.rename_file("other")
    assert code(caught)[1] == "ResourceAlreadyExists"
    assert new.rename_file("other", overwrite=True, metadata={"n": "1"}).get_file_properties().metadata == {"n": "1"}
    assert (folder / "other").read_bytes() == b"content"
    with pytest.raises(ResourceNotFoundError):
        file.rename_file("x")
    with pytest.raises(ResourceNotFoundError) as missing:
        other.rename_file("no/such/place")
    assert code(missing)[1] == "ParentNotFound"


def test_a_directory_is_renamed_with_all_that_is_in_it(share: ShareClient, folder: Path) -> None:
    share.create_directory("a")
    share.create_directory("a/b", metadata={"of": "b"})
    share.get_file_client("a/b/f").upload_file(b"1", metadata={"of": "f"})
    share.get_file_client("ab").upload_file(b"2", metadata={"of": "ab"})
    moved = share.get_directory_client("a").rename_directory("z z")
    assert (folder / "z z" / "b" / "f").read_bytes() == b"1"
    assert share.get_file_client("z z/b/f").get_file_properties().metadata == {"of": "f"}
    assert share.get_directory_client("z z/b").get_directory_properties().metadata == {"of": "b"}
    assert share.get_file_client("ab").get_file_properties().metadata == {"of": "ab"}
    share.create_directory("a")
    for target in ("a", "z z/b/inside"):
        with pytest.raises(HttpResponseError) as caught:
            moved.rename_directory(target)
        assert caught.value.status_code in (400, 409)
    assert (folder / "z z" / "b" / "f").exists()


def test_a_copy_inside_the_service_is_done_when_it_is_answered(
    share: ShareClient, service: Service, folder: Path
) -> None:
    source = share.get_file_client("source ü")
    source.create_file(20 * MIB, metadata={"k": "v"}, content_settings=ContentSettings(content_type="text/plain"))
    source.upload_range(b"abc", 10 * MIB, 3)
    copy = share.get_file_client("copy")
    receipt = copy.start_copy_from_url(source.url)
    assert receipt["copy_status"] == "success"
    told = copy.get_file_properties()
    assert (told.copy.id, told.copy.status, told.copy.progress) == (
        receipt["copy_id"],
        "success",
        f"{20 * MIB}/{20 * MIB}",
    )
    assert told.metadata == {"k": "v"}
    assert told.content_settings.content_type == "text/plain"
    assert (folder / "copy").read_bytes() == (folder / "source ü").read_bytes()
    assert (folder / "copy").stat().st_blocks < 100  # what was a hole is one
    with pytest.raises(HttpResponseError) as caught:
        copy.abort_copy(receipt["copy_id"])
    assert code(caught)[1] == "NoPendingCopyOperation"
    with pytest.raises(ResourceNotFoundError):
        copy.start_copy_from_url(f"{share.url}/missing")
    copy.create_file(100)
    link = service.files.sas(ACCOUNT, share.share_name, "source ü", "r", 4e9)
    copy.upload_range_from_url(f"{source.url}?{link}", offset=10, length=3, source_offset=10 * MIB)
    assert copy.download_file(offset=9, length=5).readall() == b"\0abc\0"


def test_what_is_not_spoken_is_refused_not_ignored(share: ShareClient) -> None:
    file = share.get_file_client("f")
    file.upload_file(b"1")
    for attempt in (
        lambda: file.create_symlink("other"),
        lambda: file.create_hardlink("other"),
        lambda: share.create_directory("d", owner="345"),
        lambda: file.upload_range(b"1", 0, 1, headers={"x-ms-structured-body": "XSM/1.0; properties=crc64"}),
    ):
        with pytest.raises(HttpResponseError) as caught:
            attempt()
        assert code(caught) == (501, "NotImplemented")
    assert list(file.list_handles()) == []
    assert file.close_all_handles()["closed_handles_count"] == 0
