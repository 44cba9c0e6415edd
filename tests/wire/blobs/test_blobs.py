"""Containers and blobs through azure-storage-blob of today: what is put comes back, in directories that jobs see."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import httpx
import pytest
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceModifiedError
from azure.core.pipeline.transport import AsyncioRequestsTransport
from azure.storage.blob import BlobBlock, BlobPrefix, ContainerClient, ContentSettings
from azure.storage.blob.aio import BlobServiceClient as AsyncClient

from tests.wire.blobs.conftest import ACCOUNT, CLIENT, KEYS, BlobPlace, code

NAMES = ("a-b", "a.txt", "a/b", "a/c/d", "a0", "z ü/ö %.txt")
DATA = random.Random(3).randbytes((3 << 20) + 17)


def test_a_blob_is_a_file_of_its_name(container: ContainerClient, folder: Path) -> None:
    blob = container.upload_blob("cifar/data 1.bin", b"content", metadata={"epoch": "3"})
    assert (folder / "cifar" / "data 1.bin").read_bytes() == b"content"
    assert blob.download_blob().readall() == b"content"
    found = blob.get_blob_properties()
    assert (found.size, found.metadata, str(found.blob_type)) == (7, {"epoch": "3"}, "BlobType.BLOCKBLOB")
    (folder / "cifar" / "log.txt").write_text("by a job")
    assert container.download_blob("cifar/log.txt").readall() == b"by a job"


def test_lists_are_in_the_order_of_names_with_prefix_delimiter_and_pages(container: ContainerClient) -> None:
    for name in reversed(NAMES):
        container.upload_blob(name, name.encode())
    assert [blob.name for blob in container.list_blobs()] == list(NAMES)
    pages = [[blob.name for blob in page] for page in container.list_blobs(results_per_page=2).by_page()]
    assert pages == [list(NAMES[:2]), list(NAMES[2:4]), list(NAMES[4:])]
    assert [blob.name for blob in container.list_blobs(name_starts_with="a/")] == ["a/b", "a/c/d"]
    top = list(container.walk_blobs())
    assert {entry.name for entry in top if isinstance(entry, BlobPrefix)} == {"a/", "z ü/"}
    assert {entry.name for entry in top} == {"a-b", "a.txt", "a/", "a0", "z ü/"}
    assert {entry.name for entry in container.walk_blobs("a/")} == {"a/b", "a/c/"}
    assert {entry.name for entry in container.walk_blobs(delimiter="-")} == {"a-", *NAMES[1:]}


def test_a_list_tells_of_each_blob(container: ContainerClient) -> None:
    settings = ContentSettings("text/plain", "gzip", "de", "inline", "no-cache")
    put = container.upload_blob("x", b"1234", metadata={"a": "b"}, content_settings=settings)
    [found] = container.list_blobs(include=["metadata", "snapshots", "deleted", "copy", "tags"])
    assert (found.size, found.metadata, found.content_settings.content_encoding) == (4, {"a": "b"}, "gzip")
    about = put.get_blob_properties()
    assert (found.etag, found.last_modified) == (about.etag.strip('"'), about.last_modified)
    assert about.content_settings.cache_control == "no-cache"
    with pytest.raises(HttpResponseError) as refused:
        list(container.list_blobs(include=["uncommittedblobs"]))
    assert code(refused) == (501, "NotImplemented")


def test_large_blobs_go_in_blocks_and_come_in_ranges(container: ContainerClient, place: BlobPlace) -> None:
    before = len(place.left())
    blob = container.upload_blob("large", DATA, max_concurrency=3)
    assert blob.download_blob(max_concurrency=3).readall() == DATA
    assert blob.download_blob(offset=1000, length=2_000_000).readall() == DATA[1000:2_001_000]
    committed, waiting = blob.get_block_list("all")
    assert ([block.size for block in committed], waiting) == ([1 << 20, 1 << 20, 1 << 20, 17], [])
    assert len(place.left()) == before + 1  # the list of its blocks
    blob.delete_blob()
    assert len(place.left()) == before


def test_a_blob_in_blocks_keeps_its_metadata(container: ContainerClient, place: BlobPlace) -> None:
    """Microsoft's client sends them with each block as well."""
    account = place.account(max_single_put_size=4, max_block_size=4)
    blob = account.get_blob_client(str(container.container_name), "large")
    blob.upload_blob(b"0123456789", metadata={"a": "1"})
    assert blob.get_blob_properties().metadata == {"a": "1"}


def test_an_md5_that_is_not_the_content_s_is_refused(container: ContainerClient) -> None:
    wrong = ContentSettings(content_md5=bytearray(16))
    with pytest.raises(HttpResponseError) as refused:
        container.upload_blob("x", b"1", content_settings=wrong)
    assert code(refused) == (400, "Md5Mismatch")
    assert not list(container.list_blobs())


def test_blocks_are_put_listed_and_reused(container: ContainerClient, folder: Path) -> None:
    blob = container.get_blob_client("d/blocks")
    blob.stage_block("1", b"one")
    blob.stage_block("2", b"two")
    assert not list(folder.rglob("*"))  # nobody sees blocks
    assert [block["id"] for block in blob.get_block_list("uncommitted")[1]] == ["1", "2"]
    blob.commit_block_list([BlobBlock("1"), BlobBlock("2")], metadata={"k": "v"})
    blob.stage_block("3", b"three")
    blob.commit_block_list([BlobBlock("2"), BlobBlock("3"), BlobBlock("1")])
    assert blob.download_blob().readall() == b"twothreeone"
    with pytest.raises(HttpResponseError) as refused:
        blob.commit_block_list([BlobBlock("4")])
    assert code(refused) == (400, "InvalidBlockList")
    (folder / "d" / "blocks").write_bytes(b"a job wrote this")
    assert blob.get_block_list("committed")[0] == []  # it does not consist of those blocks any more
    blob.upload_blob(b"whole", overwrite=True)
    assert blob.get_block_list("all") == ([], [])


def test_copies_properties_and_metadata(container: ContainerClient) -> None:
    source = container.upload_blob("from", b"12", metadata={"a": "1"}, content_settings=ContentSettings("text/x"))
    copied = container.get_blob_client("to/there")
    assert copied.start_copy_from_url(source.url)["copy_status"] == "success"
    found = copied.get_blob_properties()
    assert (found.metadata, found.content_settings.content_type, found.copy.status) == ({"a": "1"}, "text/x", "success")
    assert "sig=" not in str(found.copy.source)
    before = found.etag
    copied.set_blob_metadata({"b": "2"})
    copied.set_http_headers(ContentSettings("text/y"))
    found = copied.get_blob_properties()
    assert (found.metadata, found.content_settings.content_type) == ({"b": "2"}, "text/y")
    assert found.etag != before
    container.set_container_metadata({"c": "3"})
    assert container.get_container_properties().metadata == {"c": "3"}
    with pytest.raises(HttpResponseError) as refused:
        copied.start_copy_from_url("https://elsewhere.example/x")
    assert code(refused) == (404, "CannotVerifyCopySource")


def test_conditions_hold_or_refuse(container: ContainerClient) -> None:
    blob = container.upload_blob("x", b"1")
    with pytest.raises(HttpResponseError) as exists:
        container.upload_blob("x", b"2")
    assert code(exists) == (409, "BlobAlreadyExists")
    etag = blob.get_blob_properties().etag
    same = MatchConditions.IfNotModified
    blob.upload_blob(b"2", overwrite=True, etag=etag, match_condition=same)
    for change in (
        lambda: blob.upload_blob(b"3", overwrite=True, etag=etag, match_condition=same),
        lambda: blob.delete_blob(etag=etag, match_condition=same),
        lambda: blob.set_blob_metadata({}, etag=etag, match_condition=same),
        lambda: blob.download_blob(etag=etag, match_condition=same),
    ):
        with pytest.raises(ResourceModifiedError) as modified:
            change()
        assert code(modified) == (412, "ConditionNotMet")
    assert blob.download_blob().readall() == b"2"


def test_contents_are_checked_on_the_way(container: ContainerClient, web: httpx.Client) -> None:
    blob = container.upload_blob("x", DATA[:5000], validate_content=True)
    assert blob.download_blob(validate_content=True).readall() == DATA[:5000]
    with pytest.raises(HttpResponseError) as wrong:
        blob.upload_blob(b"y", overwrite=True, headers={"Content-MD5": "AAAAAAAAAAAAAAAAAAAAAA=="})
    assert code(wrong) == (400, "Md5Mismatch")
    assert blob.download_blob().readall() == DATA[:5000]


def test_deleting_takes_directories_that_nothing_is_in(container: ContainerClient, folder: Path) -> None:
    for name in ("a/b/c/one", "a/two", "e"):
        container.upload_blob(name, b"")
    container.delete_blob("a/b/c/one")
    assert sorted(path.name for path in folder.rglob("*")) == ["a", "e", "two"]
    container.delete_blob("a/two", delete_snapshots="include")
    container.upload_blob("a", b"a name is free again")
    assert container.download_blob("e").readall() == b""


def test_the_async_client_works_too(container: ContainerClient, place: BlobPlace) -> None:
    async def use() -> bytes:
        url, transport = f"{place.url}/{ACCOUNT}", AsyncioRequestsTransport()  # aiohttp is one package more
        async with AsyncClient(url, KEYS[ACCOUNT][0], transport=transport, **CLIENT) as client:
            own = client.get_container_client(str(container.container_name))
            await own.upload_blob("async", DATA)
            assert [blob.name async for blob in own.list_blobs()] == ["async"]
            return await (await own.download_blob("async")).readall()

    assert asyncio.run(use()) == DATA


def test_links_of_a_job_work_inside_a_container_only(container: ContainerClient, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("outside")
    container.upload_blob("real/file", b"inside")
    os.symlink(tmp_path / "secret", folder / "out")
    os.symlink("real/file", folder / "in")
    os.symlink("real", folder / "walk")
    assert [blob.name for blob in container.list_blobs()] == ["in", "real/file"]
    assert container.download_blob("in").readall() == container.download_blob("walk/file").readall() == b"inside"
    with pytest.raises(HttpResponseError) as refused:
        container.download_blob("out")
    assert code(refused) == (404, "BlobNotFound")
    container.upload_blob("out", b"mine", overwrite=True)
    assert (tmp_path / "secret").read_text() == "outside"


def test_the_md5_goes_when_a_job_writes_into_the_file(container: ContainerClient, folder: Path) -> None:
    blob = container.upload_blob("x", b"1234", metadata={"a": "b"})
    assert blob.get_blob_properties().content_settings.content_md5
    with (folder / "x").open("r+b") as file:
        file.write(b"56")
    blob.set_blob_metadata({"c": "d"})
    found = blob.get_blob_properties()
    assert (found.content_settings.content_md5, found.metadata) == (None, {"c": "d"})
    assert blob.download_blob().readall() == b"5634"
