"""Uploads to a share that a fire drill has filled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.fileshare import ShareClient

from batchhvd import NotFoundError, ResourceGroup
from batchhvd.errors import ServiceError
from batchhvd.service import drills


def test_a_full_share_takes_nothing_more(service: Any, group: ResourceGroup, tmp_path: Path) -> None:
    account = group.create_storage_account("vollesspeicher")
    share = account.create_share("ablage")
    for name, size in (("small ü.bin", 1000), ("large.bin", 3000)):
        (tmp_path / name).write_bytes(b"x" * size)
    share.upload(tmp_path / "small ü.bin")
    drills.fill_share(service.root, account.name, "ablage", 2000)
    with pytest.raises(ServiceError, match="The share is full") as refused:
        share.upload(tmp_path / "large.bin")
    assert (refused.value.status, refused.value.code) == (413, "ShareSizeLimitReached")
    assert [entry.name for entry in share.files()] == ["small ü.bin"]
    url, key = f"{account._connection.endpoint}/{account.name}", account.read_key()
    client = ShareClient(url, "ablage", credential=key, retry_total=0)
    file, copy = client.get_file_client("small ü.bin"), client.get_file_client("copy.bin")
    file.resize_file(2000)
    growths: list[Callable[[], object]] = [lambda: file.resize_file(2001), lambda: copy.start_copy_from_url(file.url)]
    for grow in growths:
        with pytest.raises(HttpResponseError, match="ShareSizeLimitReached"):
            grow()
    drills.free_share(service.root, account.name, "ablage")
    share.upload(tmp_path / "large.bin")
    assert {entry.name: entry.size for entry in share.files()}["large.bin"] == 3000


def test_a_share_that_is_not_there_cannot_be_filled(service: Any) -> None:
    with pytest.raises(NotFoundError, match="account nobody has no share nothing"):
        drills.fill_share(service.root, "nobody", "nothing")
