"""What was once taken and dropped: names of metadata, hosts of sources, checksums, times, ranges, unknown headers."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.storage.fileshare import ContentSettings, ShareClient, ShareSasPermissions, generate_share_sas
from azure.storage.fileshare import ShareDirectoryClient as Directory

from batchhvd.service.storage.disk.sidecar import Sidecar
from batchhvd.service.storage.protocol import crc64
from tests.wire.files.conftest import ACCOUNT, KEYS, Service, code

THEN = datetime(2001, 2, 3, 4, 5, 6, 789000, tzinfo=timezone.utc)


def refused(attempt: Callable[[], Any], status: int, expected: str) -> None:
    with pytest.raises(HttpResponseError) as caught:
        attempt()
    assert code(caught) == (status, expected)


@pytest.mark.parametrize("name", ["1a", "a&b", "a-b", "a.b", "a'", "!"])
def test_a_metadata_name_that_is_none_is_refused_everywhere(share: ShareClient, service: Service, name: str) -> None:
    file, directory = share.get_file_client("f"), share.get_directory_client("d")
    file.upload_file(b"1")
    directory.create_directory()
    wrong = {name: "x"}
    for attempt in (
        lambda: service.share("never-created").create_share(metadata=wrong),
        lambda: share.set_share_metadata(wrong),
        lambda: share.create_snapshot(metadata=wrong),
        lambda: share.create_directory("e", metadata=wrong),
        lambda: directory.set_directory_metadata(wrong),
        lambda: file.create_file(1, metadata=wrong),
        lambda: file.set_file_metadata(wrong),
        lambda: share.get_file_client("g").start_copy_from_url(file.url, metadata=wrong),
        lambda: file.rename_file("h", metadata=wrong),
    ):
        refused(attempt, 400, "InvalidMetadata")
    assert share.share_name in [found.name for found in service.account().list_shares(include_metadata=True)]
    assert sorted(entry.name for entry in share.list_directories_and_files()) == ["d", "f"]


def test_names_of_metadata_keep_their_capitals(service: Service, share: ShareClient) -> None:
    said = {"MixedCase": "1", "lower": "2", "UP_9": "3"}
    share.set_share_metadata(said)
    folder = share.create_directory("d", metadata=said)
    file = folder.get_file_client("f")
    file.upload_file(b"1", metadata=said)
    file.get_file_properties()
    copy, moved = share.get_file_client("copy"), file.rename_file("d/g")
    copy.start_copy_from_url(moved.url)
    for told in (share.get_share_properties(), folder.get_directory_properties(), copy.get_file_properties()):
        assert told.metadata == said
    assert moved.get_file_properties().metadata == said
    [listed] = service.account().list_shares(share.share_name, include_metadata=True)
    assert listed.metadata == said
    moved.set_file_metadata({"mixedcase": "now small"})
    assert moved.get_file_properties().metadata == {"mixedcase": "now small"}


def test_what_an_earlier_version_took_does_not_break_a_listing(service: Service, share: ShareClient) -> None:
    notes = Sidecar(service.root / ".files" / "sidecar.sqlite")
    inode = (service.root / ACCOUNT / share.share_name).stat().st_ino
    notes.put(f"{ACCOUNT}/{share.share_name}", "", inode, {"metadata": {"a&<b": "x", "ok": "<&>\x01"}})
    notes.close()
    found = list(service.account().list_shares(share.share_name, include_metadata=True))
    assert found[0].metadata == {"ok": "<&>\ufffd"}


def test_a_source_elsewhere_is_refused_not_taken_from_here(service: Service, share: ShareClient) -> None:
    file = share.get_file_client("f")
    file.upload_file(b"secret of here")
    copy = share.get_file_client("copy")
    copy.create_file(100)
    path = f"{ACCOUNT}/{share.share_name}/f"
    link = service.files.sas(ACCOUNT, share.share_name, "f", "r", 4e9)
    port = service.url.rpartition(":")[2]
    for url in (
        f"https://elsewhere.example/{path}",
        f"http://127.0.0.1:1/{path}",
        f"http://127.0.0.1/{path}",
        f"https://{ACCOUNT}.file.core.windows.net/{share.share_name}/f",
        f"https://{ACCOUNT}.blob.core.windows.net/{share.share_name}/f",
        f"http://user@127.0.0.1:{port}/{path}",
    ):
        refused(partial(copy.start_copy_from_url, url), 404, "CannotVerifyCopySource")
        refused(partial(copy.upload_range_from_url, f"{url}?{link}", 0, 4, 0), 404, "CannotVerifyCopySource")
        with httpx.Client(trust_env=False) as web:
            query = f"comp=rename&{service.files.sas(ACCOUNT, share.share_name, '', 'rwd', 4e9)}"
            headers = {"x-ms-file-rename-source": url}
            answer = web.put(f"{share.url}/renamed?{query}", headers=headers)
        assert answer.headers["x-ms-error-code"] == "CannotVerifyCopySource"
    assert copy.download_file().readall() == bytes(100)
    copy.start_copy_from_url(f"http://localhost:{port}/{path}")  # the same service by another of its names
    assert copy.download_file().readall() == b"secret of here"


def test_a_range_from_a_url_needs_a_link_of_its_own(share: ShareClient) -> None:
    file = share.get_file_client("f")
    file.upload_file(b"data")
    with pytest.raises(HttpResponseError) as caught:
        file.upload_range_from_url(file.url, 0, 4, 0)
    answer: Any = caught.value.response
    headers = answer.headers
    assert headers["x-ms-copy-source-status-code"] == "401"
    assert headers["x-ms-copy-source-error-code"] == "NoAuthenticationInformation"


def test_a_crc64_is_checked_on_the_body_and_on_the_source(service: Service, share: ShareClient, folder: Path) -> None:
    file = share.get_file_client("f")
    file.upload_file(b"0" * 8)
    right, wrong = crc64.encoded([b"data"]), crc64.encoded([b"other"])
    refused(lambda: file.upload_range(b"data", 0, 4, headers={"x-ms-content-crc64": wrong}), 400, "Crc64Mismatch")
    assert (folder / "f").read_bytes() == b"0" * 8
    file.upload_range(b"data", 0, 4, headers={"x-ms-content-crc64": right})
    refused(
        lambda: share.get_file_client("g").create_file(4, data=b"data", headers={"x-ms-content-crc64": wrong}),
        400,
        "Crc64Mismatch",
    )
    url = f"{file.url}?{service.files.sas(ACCOUNT, share.share_name, 'f', 'r', 4e9)}"
    copy = share.get_file_client("copy")
    copy.create_file(4)
    for header, value, status, expected in (
        ("x-ms-source-content-crc64", wrong, 400, "Crc64Mismatch"),
        ("x-ms-source-if-match-crc64", wrong, 412, "SourceConditionNotMet"),
        ("x-ms-source-if-none-match-crc64", right, 412, "SourceConditionNotMet"),
        ("x-ms-source-if-match", '"0x1"', 412, "SourceConditionNotMet"),
        ("x-ms-source-if-none-match", file.get_file_properties().etag, 412, "SourceConditionNotMet"),
    ):
        refused(
            partial(copy.upload_range_from_url, url, 0, 4, 0, headers={header: value}),
            status,
            expected,
        )
    assert copy.download_file().readall() == bytes(4)
    copy.upload_range_from_url(url, 0, 4, 0, headers={"x-ms-source-content-crc64": right})
    assert copy.download_file().readall() == b"data"


def test_times_are_kept_and_preserve_preserves(service: Service, share: ShareClient, folder: Path) -> None:
    file, directory = share.get_file_client("f"), share.get_directory_client("d")
    times: dict[str, Any] = {
        "file_last_write_time": THEN, "file_change_time": THEN, "file_creation_time": THEN
    }  # fmt: skip
    file.create_file(8, **times)
    directory.create_directory(**times)
    for told in (file.get_file_properties(), directory.get_directory_properties()):
        assert (told.last_write_time, told.change_time, told.creation_time) == (THEN, THEN, THEN)
    url = f"{file.url}?{service.files.sas(ACCOUNT, share.share_name, 'f', 'r', 4e9)}"
    writes: list[Callable[[], Any]] = [
        lambda: file.set_http_headers(content_settings=ContentSettings()),
        lambda: file.resize_file(9),
        lambda: file.upload_range(b"x", 0, 1, file_last_write_mode="preserve"),
        lambda: file.upload_range_from_url(url, 0, 1, 0, file_last_write_mode="preserve"),
    ]
    for write in writes:
        tag = file.get_file_properties().etag
        write()
        told = file.get_file_properties()
        assert (told.last_write_time, told.creation_time) == (THEN, THEN)
        assert told.change_time != THEN  # it was changed since
        assert told.etag != tag
    file.upload_range(b"x", 0, 1)
    assert file.get_file_properties().last_write_time != THEN
    directory.set_http_headers(file_creation_time="preserve", file_last_write_time="preserve")
    assert directory.get_directory_properties().last_write_time == THEN
    directory.set_http_headers(file_last_write_time="now")
    assert directory.get_directory_properties().last_write_time != THEN
    moved = file.rename_file("g", file_last_write_time=THEN, file_change_time=THEN)
    assert moved.get_file_properties().change_time == THEN
    with (folder / "g").open("r+b") as job:
        job.write(b"y")
    assert moved.get_file_properties().change_time != THEN


def test_every_change_of_a_share_or_directory_changes_its_etag(share: ShareClient) -> None:
    directory = share.get_directory_client("d")
    directory.create_directory()
    tags = [share.get_share_properties().etag]
    changes: list[Callable[[], Any]] = [
        lambda: share.set_share_metadata({"a": "1"}),
        lambda: share.set_share_quota(7),
        lambda: share.set_share_properties(access_tier="Hot"),
        lambda: share.set_share_access_policy({}),
    ]
    for change in changes:
        answer = change()
        tags.append(share.get_share_properties().etag)
        assert answer["etag"] == tags[-1]
    assert len(set(tags)) == 5
    tags = [directory.get_directory_properties().etag]
    for number in range(20):
        directory.set_directory_metadata({"a": str(number)})
        tags.append(directory.get_directory_properties().etag)
    assert len(set(tags)) == 21


def test_ranges_are_exact_to_the_sector_and_come_in_pages(share: ShareClient, folder: Path) -> None:
    file = share.get_file_client("f")
    file.create_file(1 << 20)
    for start, length in ((512, 512), (2048, 1), (5000, 100), (65536, 4096)):
        file.upload_range(b"x" * length, start, length)
    file.clear_range(65536 + 1024, 512)
    exact = [(512, 1023), (2048, 2559), (4608, 5119), (65536, 66559), (67072, 69631)]
    assert [(each.start, each.end) for each in file.list_ranges()] == exact
    pages = [[(each.start, each.end) for each in page] for page in file.list_ranges(results_per_page=2).by_page()]
    assert pages == [exact[:2], exact[2:4], exact[4:]]
    assert [(each.start, each.end) for each in file.list_ranges(offset=600, length=1500)] == [(600, 1023), (2048, 2099)]
    (folder / "tail").write_bytes(bytes(512) + b"abc")
    assert [(each.start, each.end) for each in share.get_file_client("tail").list_ranges()] == [(512, 514)]


def test_the_roots_handles_are_listed_and_closed(share: ShareClient) -> None:
    root = share.get_directory_client()
    assert list(root.list_handles(recursive=True)) == []
    assert root.close_all_handles(recursive=True)["closed_handles_count"] == 0
    with pytest.raises(ResourceNotFoundError):
        list(share.get_file_client("missing").list_handles())


def test_a_link_that_may_read_and_write_may_rename(service: Service, share: ShareClient) -> None:
    token = generate_share_sas(
        ACCOUNT, share.share_name, KEYS[ACCOUNT][0], ShareSasPermissions(read=True, write=True), datetime(2100, 1, 1)
    )
    client = service.share(share.share_name, token)
    client.get_file_client("f").upload_file(b"1")
    client.create_directory("d")
    assert client.get_file_client("f").rename_file(f"g?{token}").get_file_properties()
    assert client.get_directory_client("d").rename_directory(f"e?{token}").get_directory_properties()


def test_parents_ids_encryption_and_permission_are_told(share: ShareClient, folder: Path) -> None:
    share.create_directory("d")
    file = share.get_file_client("d/f")
    file.upload_file(b"1")
    told = file.get_file_properties()
    assert (told.file_id, told.parent_id) == (str((folder / "d/f").stat().st_ino), str((folder / "d").stat().st_ino))
    assert told.server_encrypted and told.permission_key
    directory = share.get_directory_client("d").get_directory_properties()
    assert directory.parent_id == str(folder.stat().st_ino) and directory.permission_key == told.permission_key
    assert share.get_directory_client("").get_directory_properties().parent_id == "0"
    refused(lambda: share.get_directory_client("no/such").get_directory_properties(), 404, "ParentNotFound")
    refused(lambda: share.get_directory_client("none").get_directory_properties(), 404, "ResourceNotFound")


@pytest.mark.parametrize(
    ("headers", "query", "status", "expected"),
    [
        ({"x-ms-version": "banana"}, "restype=share", 400, "InvalidHeaderValue"),
        ({"x-ms-version": "2019-13-01"}, "restype=share", 400, "InvalidHeaderValue"),
        ({"x-ms-version": "2099-01-01"}, "restype=share", 200, None),
        ({"x-ms-unknown": "1"}, "restype=share", 400, "UnsupportedHeader"),
        ({}, "restype=directory&comp=list&include=bogus", 400, "InvalidQueryParameterValue"),
        ({}, "restype=share&sharesnapshot=yesterday", 400, "InvalidQueryParameterValue"),
    ],
)
def test_what_nobody_knows_is_refused(
    service: Service, share: ShareClient, web: httpx.Client, headers: Any, query: Any, status: Any, expected: Any
) -> None:
    link = service.files.sas(ACCOUNT, share.share_name, "", "rl", 4e9)
    answer = web.get(f"{share.url}?{query}&{link}", headers=headers)
    assert (answer.status_code, answer.headers.get("x-ms-error-code")) == (status, expected)


def test_a_checksum_needs_a_range(service: Service, share: ShareClient, web: httpx.Client) -> None:
    share.get_file_client("f").upload_file(b"data")
    url = f"{share.url}/f?{service.files.sas(ACCOUNT, share.share_name, 'f', 'r', 4e9)}"
    assert web.get(url, headers={"x-ms-range-get-content-md5": "true"}).status_code == 400
    answer = web.get(url, headers={"x-ms-range-get-content-crc64": "true", "x-ms-range": "bytes=0-3"})
    assert answer.headers["x-ms-content-crc64"] == crc64.encoded([b"data"])


def test_attributes_and_permissions_are_kept_and_nonsense_refused(share: ShareClient) -> None:
    file, sddl = share.get_file_client("f"), "O:SYG:SYD:(A;;FA;;;BA)(A;;FR;;;WD)"
    file.create_file(1, file_attributes="Hidden|Archive", file_permission=sddl)
    told = file.get_file_properties()
    assert told.file_attributes == "Hidden|Archive"
    assert share.get_permission_for_share(told.permission_key) == sddl
    assert share.create_permission_for_share(sddl) == told.permission_key
    listed = next(iter(share.list_directories_and_files(include=["Attributes", "PermissionKey"])))
    assert (listed.file_attributes, listed.permission_key) == ("Hidden|Archive", told.permission_key)
    refused(lambda: file.create_file(1, file_attributes="Bogus"), 400, "InvalidHeaderValue")
    refused(lambda: file.create_file(1, file_permission="bogus"), 400, "InvalidHeaderValue")
    refused(lambda: file.create_file(1, permission_key="1*1"), 404, "FilePermissionNotFound")
    refused(lambda: share.get_permission_for_share("1*1"), 404, "FilePermissionNotFound")
    assert file.get_file_properties().file_attributes == "Hidden|Archive"


def test_no_page_with_a_next_one_is_empty(share: ShareClient, folder: Path) -> None:
    for number in range(6):
        os.mkfifo(folder / f"a{number}")  # nothing that a listing shows
    for name in ("b", "c", "d"):
        (folder / name).touch()
    pages = [[entry.name for entry in page] for page in share.list_directories_and_files(results_per_page=2).by_page()]
    assert pages == [["b", "c"], ["d"]]
    assert isinstance(share.get_directory_client(""), Directory)
