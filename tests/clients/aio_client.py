"""azure-storage-file-share's asynchronous side."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

import steps
from azure.storage.fileshare.aio import ShareClient

DATA = bytes(range(256)) * (9 << 12)


def step(act: Callable[[Any], Awaitable[None]]) -> Callable[[], None]:
    @wraps(act)
    def run() -> None:
        async def inside() -> None:
            async with ShareClient.from_connection_string(steps.CONNECTION, "clients-aio") as share:
                await act(share)

        asyncio.run(inside())

    return run


@step
async def create(share: Any) -> None:
    await share.create_share()
    await share.create_directory("a")


@step
async def upload_in_parallel(share: Any) -> None:
    await share.get_file_client("a/f").upload_file(DATA, max_concurrency=4)


@step
async def download_in_parallel(share: Any) -> None:
    stream = await share.get_file_client("a/f").download_file(max_concurrency=4)
    assert await stream.readall() == DATA


@step
async def listing(share: Any) -> None:
    assert [each["name"] async for each in share.list_directories_and_files("a")] == ["f"]


@step
async def rename(share: Any) -> None:
    await share.get_file_client("a/f").rename_file("moved")
    assert (await share.get_file_client("moved").get_file_properties()).size == len(DATA)


@step
async def delete(share: Any) -> None:
    await share.delete_share()


if __name__ == "__main__":
    steps.run([create, upload_in_parallel, download_in_parallel, listing, rename, delete])
