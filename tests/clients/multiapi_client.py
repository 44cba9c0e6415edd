"""azure-multiapi-storage: each version of the client that it bundles."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import azure.multiapi.storagev2.fileshare as versions
import steps

DATA = bytes(range(256)) * (5 << 12)


def round_trip(version: str) -> None:
    module = import_module(f"{versions.__name__}.{version}")
    share = module.ShareClient.from_connection_string(steps.CONNECTION, f"multi-{version.replace('_', '-')}")
    share.create_share()
    share.get_file_client("f").upload_file(DATA, max_concurrency=4)
    assert share.get_file_client("f").download_file(max_concurrency=4).readall() == DATA
    assert [each["name"] for each in share.list_directories_and_files()] == ["f"]
    share.delete_share()


def step(version: str) -> object:
    def run() -> None:
        round_trip(version)

    run.__name__ = version
    return run


if __name__ == "__main__":
    steps.run([step(each.name) for each in pkgutil.iter_modules(versions.__path__) if each.name.startswith("v")])  # type: ignore[misc]
