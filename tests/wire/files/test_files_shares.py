"""Shares, directories and listings, with the real client."""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.storage.fileshare import ShareClient

from tests.wire.files.conftest import Service, code

CASES = Path(__file__).parents[2] / "data" / "storage"


def names(listing: Any) -> list[str]:
    """Returns a listing's names."""
    return [entry["name"] for entry in listing]


def test_a_share_is_made_described_changed_listed_and_deleted(service: Service) -> None:
    client = service.share("life-of-a-share")
    client.create_share(quota=7, metadata={"project": "cifar"})
    told = client.get_share_properties()
    assert (told.quota, told.metadata) == (7, {"project": "cifar"})
    assert told.etag and told.last_modified
    client.set_share_quota(9)
    client.set_share_metadata({"owner": "ö"})
    told = client.get_share_properties()
    assert (told.quota, told.metadata) == (9, {"owner": "ö"})
    listed = list(service.account().list_shares("life", include_metadata=True))
    assert [(share.name, share.quota, share.metadata) for share in listed] == [("life-of-a-share", 9, {"owner": "ö"})]
    client.delete_share()
    assert "life-of-a-share" not in names(service.account().list_shares())
    with pytest.raises(ResourceNotFoundError) as caught:
        client.get_share_properties()
    assert code(caught) == (404, "ShareNotFound")


def test_a_share_that_exists_is_not_made_again(share: ShareClient) -> None:
    with pytest.raises(ResourceExistsError) as caught:
        share.create_share()
    assert code(caught) == (409, "ShareAlreadyExists")


def test_a_share_that_was_deleted_leaves_nothing_to_its_successor(service: Service) -> None:
    client = service.share("made-twice")
    client.create_share(quota=3, metadata={"old": "yes"})
    client.get_file_client("f").upload_file(b"old", metadata={"old": "yes"})
    client.delete_share()
    client.create_share()
    assert client.get_share_properties().metadata == {}
    assert client.get_share_properties().quota == 5120
    assert names(client.list_directories_and_files()) == []
    client.delete_share()


@pytest.mark.parametrize("name", ["ab", "Große", "UPPER", "-x-", "a--b", "a" * 64, "..", ".files", "a_b"])
def test_names_that_no_share_can_have_are_refused(service: Service, name: str) -> None:
    with pytest.raises(HttpResponseError) as caught:
        service.share(name).create_share()
    assert code(caught) in ((400, "InvalidResourceName"), (403, "AuthenticationFailed"))  # some are lost on the way
    assert not (service.root / "mystorageaccount" / name).is_dir() or name in ("..", ".files")


@pytest.mark.parametrize("quota", [0, -1, 102401])
def test_a_quota_outside_the_limits_is_refused(service: Service, quota: Any) -> None:
    with pytest.raises((HttpResponseError, ValueError)):
        service.share("quota-of-none").create_share(quota=quota)


def test_shares_are_listed_in_pages(service: Service) -> None:
    made = [service.share(f"page-{number}") for number in range(5)]
    for client in made:
        client.create_share()
    pages = list(service.account().list_shares("page-", results_per_page=2).by_page())
    assert [names(page) for page in pages] == [["page-0", "page-1"], ["page-2", "page-3"], ["page-4"]]
    for client in made:
        client.delete_share()


def test_stats_tell_what_a_share_takes(share: ShareClient, folder: Path) -> None:
    (folder / "f").write_bytes(b"x" * 100_000)
    assert 100_000 <= share.get_share_stats() < 200_000


def test_a_directory_needs_its_parent_and_is_made_once(share: ShareClient, folder: Path) -> None:
    with pytest.raises(ResourceNotFoundError) as caught:
        share.create_directory("a/b")
    assert code(caught) == (404, "ParentNotFound")
    share.create_directory("a")
    share.create_directory("a/b", metadata={"k": "v"})
    assert (folder / "a" / "b").is_dir()
    with pytest.raises(ResourceExistsError) as exists:
        share.create_directory("a/b")
    assert code(exists) == (409, "ResourceAlreadyExists")
    assert share.get_directory_client("a/b").get_directory_properties().metadata == {"k": "v"}
    assert share.get_directory_client("a/b").exists()
    assert not share.get_directory_client("a/c").exists()


def test_a_directory_in_a_missing_share_says_so(service: Service) -> None:
    with pytest.raises(ResourceNotFoundError) as caught:
        service.share("never-made").create_directory("a")
    assert code(caught) == (404, "ShareNotFound")


def test_a_directory_is_deleted_when_it_is_empty(share: ShareClient, folder: Path) -> None:
    share.create_directory("a")
    share.get_file_client("a/f").upload_file(b"1")
    directory = share.get_directory_client("a")
    with pytest.raises(ResourceExistsError) as caught:
        directory.delete_directory()
    assert code(caught) == (409, "DirectoryNotEmpty")
    directory.delete_file("f")
    directory.delete_directory()
    assert not (folder / "a").exists()
    with pytest.raises(ResourceNotFoundError):
        directory.delete_directory()


def test_files_and_directories_are_not_taken_for_each_other(share: ShareClient, folder: Path) -> None:
    share.create_directory("d")
    share.get_file_client("f").upload_file(b"kept")
    assert not share.get_file_client("d").exists()
    assert not share.get_directory_client("f").exists()
    for attempt in (
        lambda: share.get_file_client("d").upload_file(b"x"),
        lambda: share.create_directory("f"),
        lambda: share.get_file_client("d").delete_file(),
        lambda: share.get_directory_client("f").delete_directory(),
        lambda: share.get_file_client("f/g").upload_file(b"x"),
        lambda: share.get_file_client("d").download_file(),
        lambda: list(share.list_directories_and_files("f")),
    ):
        with pytest.raises(HttpResponseError) as caught:
            attempt()
        assert caught.value.status_code in (404, 409)
    assert (folder / "f").read_bytes() == b"kept"
    assert (folder / "d").is_dir()


def test_metadata_of_directories_and_the_roots_own(share: ShareClient) -> None:
    directory = share.get_directory_client("d")
    directory.create_directory()
    directory.set_directory_metadata({"a": "1", "b_c": "2"})
    assert directory.get_directory_properties().metadata == {"a": "1", "b_c": "2"}
    assert share.get_directory_client().get_directory_properties().metadata == {}


def test_a_listing_has_files_and_directories_with_sizes_and_times(share: ShareClient, folder: Path) -> None:
    share.create_directory("dir")
    (folder / "by a job.log").write_bytes(b"123")
    entries = list(share.list_directories_and_files(include=["timestamps", "Etag", "Attributes"]))
    told: dict[str, Any] = {entry["name"]: entry for entry in entries}
    assert sorted(told) == ["by a job.log", "dir"]
    assert told["dir"].is_directory and not told["by a job.log"].is_directory
    assert told["by a job.log"].size == 3
    written = datetime.fromisoformat(told["by a job.log"].last_write_time[:26] + "+00:00")
    assert abs(written.timestamp() - (folder / "by a job.log").stat().st_mtime) < 0.01
    properties = share.get_file_client("by a job.log").get_file_properties()
    assert told["by a job.log"].etag == properties.etag
    assert told["by a job.log"].file_id == properties.file_id


def test_a_listing_in_pages_misses_nothing_while_others_write(share: ShareClient, folder: Path) -> None:
    made = [f"f{number:03}" for number in range(0, 40, 2)]
    for name in made:
        (folder / name).touch()
    pages = share.list_directories_and_files(results_per_page=7).by_page()
    seen = names(next(pages))
    (folder / "f000a").touch()
    (folder / "f001").touch()
    (folder / "f000").unlink()
    for page in pages:
        seen += names(page)
    assert seen == made


def test_a_prefix_filters_names_of_that_directory(share: ShareClient, folder: Path) -> None:
    (folder / "ab").mkdir()
    for name in ("abc", "b", "ab/abd"):
        (folder / name).touch() if "/" not in name else (folder / name).write_bytes(b"")
    assert names(share.list_directories_and_files(name_starts_with="ab")) == ["ab", "abc"]
    assert names(share.list_directories_and_files("ab", name_starts_with="ab")) == ["abd"]
    assert names(share.list_directories_and_files(name_starts_with="zz")) == []


def test_a_wrong_page_size_or_marker_is_refused(share: ShareClient) -> None:
    for size in (0, 5001):
        with pytest.raises(HttpResponseError) as caught:
            list(share.list_directories_and_files(results_per_page=size))
        assert code(caught) == (400, "InvalidQueryParameterValue")
    with pytest.raises(HttpResponseError):
        list(share.list_directories_and_files().by_page("no marker!"))


def test_case_nested_directories(share: ShareClient, folder: Path, tmp_path: Path) -> None:
    path = CASES / "nested-directories.json"
    case = json.loads(path.read_text())
    for name in case["create"]:
        parts = name.split("/")
        for depth in range(1, len(parts)):
            if not share.get_directory_client("/".join(parts[:depth])).exists():
                share.create_directory("/".join(parts[:depth]))
        share.create_directory(name)
    data = os.urandom(1000)
    for upload in case["upload"]:
        client = share.get_file_client(upload["to"])
        if (folder / upload["to"]).parent.is_dir():
            client.upload_file(data)
            continue
        with pytest.raises(ResourceNotFoundError) as caught:
            client.upload_file(data)
        assert code(caught) == (404, "ParentNotFound")
    assert share.get_file_client("a/b/train.py").download_file().readall() == data
    with pytest.raises(ResourceNotFoundError):
        share.get_file_client("a/b/missing.py").download_file()
