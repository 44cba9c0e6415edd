"""azure-storage-file 2.1, the client of the years before azure-storage-file-share."""

from __future__ import annotations

import io

import steps
from azure.storage.file import FileService

DATA = bytes(range(256)) * (9 << 12)
service = FileService(connection_string=steps.CONNECTION)
SHARE = "clients-legacy"


def create() -> None:
    assert service.create_share(SHARE, metadata={"one": "1"}, quota=1)
    assert service.create_directory(SHARE, "a")


def upload() -> None:
    service.create_file_from_bytes(SHARE, "a", "f", DATA, max_connections=4)


def download() -> None:
    assert service.get_file_to_bytes(SHARE, "a", "f", max_connections=4).content == DATA
    stream = io.BytesIO()
    service.get_file_to_stream(SHARE, "a", "f", stream, start_range=10, end_range=19)
    assert stream.getvalue() == DATA[10:20]


def properties() -> None:
    service.set_file_metadata(SHARE, "a", "f", {"two": "2"})
    assert service.get_file_metadata(SHARE, "a", "f") == {"two": "2"}
    service.resize_file(SHARE, "a", "f", 512)
    assert service.get_file_properties(SHARE, "a", "f").properties.content_length == 512


def ranges() -> None:
    service.clear_range(SHARE, "a", "f", 0, 511)
    assert service.list_ranges(SHARE, "a", "f") == []


def listing() -> None:
    assert [each.name for each in service.list_directories_and_files(SHARE, "a")] == ["f"]
    assert SHARE in [each.name for each in service.list_shares()]


def copy() -> None:
    source = service.make_file_url(SHARE, "a", "f")
    assert service.copy_file(SHARE, None, "copied", source).status == "success"


def snapshot() -> None:
    taken = service.snapshot_share(SHARE).snapshot
    service.delete_file(SHARE, "a", "f")
    assert service.get_file_properties(SHARE, "a", "f", snapshot=taken).properties.content_length == 512


def policies() -> None:
    assert service.get_share_acl(SHARE) == {}


def delete() -> None:
    from azure.storage.file.models import DeleteSnapshot

    service.delete_share(SHARE, delete_snapshots=DeleteSnapshot.Include)


if __name__ == "__main__":
    steps.run([create, upload, download, properties, ranges, listing, copy, snapshot, policies, delete])
