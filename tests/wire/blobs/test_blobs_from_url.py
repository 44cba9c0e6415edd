"""Blobs and blocks from the URL of another blob, and the asynchronous client."""

from __future__ import annotations

import asyncio
import hashlib
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobBlock, BlobSasPermissions, ContainerClient, ContentSettings, generate_blob_sas

from tests.wire.blobs.conftest import ACCOUNT, CLIENT, KEYS, BlobPlace, code


def link(container: ContainerClient, name: str, **permits: bool) -> str:
    permission = BlobSasPermissions(**(permits or {"read": True}))
    ends = datetime.now(timezone.utc) + timedelta(hours=1)
    key = KEYS[ACCOUNT][0]
    signed = generate_blob_sas(
        ACCOUNT, container.container_name, name, account_key=key, permission=permission, expiry=ends
    )
    return f"{container.get_blob_client(name).url}?{signed}"


def test_a_blob_from_a_url_has_its_content_and_properties(container: ContainerClient) -> None:
    container.upload_blob("from", b"0123456789", metadata={"a": "1"}, content_settings=ContentSettings("text/x"))
    made = container.get_blob_client("to/it")
    made.upload_blob_from_url(link(container, "from"), metadata={"b": "2"})
    found = made.get_blob_properties()
    assert made.download_blob().readall() == b"0123456789"
    assert (found.metadata, found.content_settings.content_type) == ({"b": "2"}, "text/x")
    assert bytes(found.content_settings.content_md5 or b"") == hashlib.md5(b"0123456789").digest()
    made.upload_blob_from_url(link(container, "from"), overwrite=True, include_source_blob_properties=False)
    assert made.get_blob_properties().content_settings.content_type == "application/octet-stream"


def test_blocks_from_a_url_are_ranges_of_it(container: ContainerClient) -> None:
    container.upload_blob("from", b"0123456789")
    made, source = container.get_blob_client("made"), link(container, "from")
    made.stage_block_from_url("1", source, source_offset=2, source_length=3)
    made.stage_block_from_url("2", source, source_content_md5=bytearray(hashlib.md5(b"0123456789").digest()))
    made.commit_block_list([BlobBlock("1"), BlobBlock("2")])
    assert made.download_blob().readall() == b"2340123456789"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"unsigned": True}, (401, "CannotVerifyCopySource")),
        ({"write": True}, (403, "AuthorizationPermissionMismatch")),
        ({"elsewhere": True}, (404, "CannotVerifyCopySource")),
        ({"source_content_md5": bytearray(16)}, (400, "Md5Mismatch")),
        ({"source_offset": 8, "source_length": 3}, (416, "InvalidRange")),
    ],
)
def test_what_a_source_does_not_permit_or_hold_makes_no_block(
    container: ContainerClient, place: BlobPlace, change: dict[str, Any], expected: tuple[int, str]
) -> None:
    container.upload_blob("from", b"0123456789")
    made, source = container.get_blob_client("made"), link(container, "from")
    if change.pop("unsigned", False):
        source = source.partition("?")[0]
    if change.pop("elsewhere", False):
        source = "https://elsewhere.example/c/from?sig=x"
    if change.pop("write", False):
        source = link(container, "from", write=True)
    with pytest.raises(HttpResponseError) as refused:
        made.stage_block_from_url("1", source, **change)
    assert code(refused) == expected
    assert "sig=" not in str(refused.value)
    with pytest.raises(HttpResponseError) as absent:
        made.get_block_list("all")
    assert absent.value.status_code == 404 and place.left() == []


def test_the_asynchronous_client_puts_lists_and_reads(
    container: ContainerClient, place: BlobPlace, folder: Path
) -> None:
    aio = pytest.importorskip("azure.storage.blob.aio")
    pytest.importorskip("aiohttp")
    content = bytes(range(256)) * 5000

    async def work() -> list[str]:
        settings = {**CLIENT, "max_block_size": 1 << 18, "max_single_put_size": 1 << 18, "max_chunk_get_size": 1 << 18}
        url = f"{place.url}/{ACCOUNT}"
        async with aio.ContainerClient(url, container.container_name, credential=KEYS[ACCOUNT][0], **settings) as own:
            await own.upload_blob("d/large", content, max_concurrency=4)
            reader = await own.download_blob("d/large", max_concurrency=4)
            assert await reader.readall() == content
            return [blob.name async for blob in own.list_blobs(name_starts_with="d/")]

    assert asyncio.run(work()) == ["d/large"]
    assert (folder / "d/large").read_bytes() == content
