"""azure-storage-file-share, of whatever version runs this."""

from __future__ import annotations

import datetime

import steps
from azure.storage.fileshare import ShareClient, ShareFileClient, generate_share_sas

DATA = bytes(range(256)) * (9 << 12)  # 9 MiB: several ranges
share = ShareClient.from_connection_string(steps.CONNECTION, "clients-sync")
file = share.get_file_client("a/ü 1.bin")


def create() -> None:
    share.create_share(metadata={"one": "1"}, quota=1)
    share.create_directory("a")


def upload_in_parallel() -> None:
    file.upload_file(DATA, max_concurrency=4, validate_content=True)


def download_in_parallel() -> None:
    assert file.download_file(max_concurrency=4, validate_content=True).readall() == DATA


def ranges() -> None:
    file.clear_range(0, 512)
    assert file.get_ranges()[0]["start"] == 512
    assert file.download_file(offset=0, length=4).readall() == bytes(4)


def properties() -> None:
    file.set_file_metadata({"two": "2"})
    assert file.get_file_properties().metadata == {"two": "2"}
    file.resize_file(100)
    assert file.get_file_properties().size == 100


def listing() -> None:
    assert [each["name"] for each in share.list_directories_and_files()] == ["a"]
    assert [each["name"] for each in share.list_directories_and_files("a", results_per_page=1)] == ["ü 1.bin"]


def copy_and_rename() -> None:
    copied = share.get_file_client("copied")
    assert copied.start_copy_from_url(file.url)["copy_status"] == "success"
    assert copied.rename_file("moved").get_file_properties().size == 100


def lease() -> None:
    held = file.acquire_lease()
    file.set_file_metadata({"three": "3"}, lease=held)
    held.release()


def snapshot() -> None:
    taken = share.create_snapshot()["snapshot"]
    file.delete_file()
    before = ShareFileClient.from_connection_string(steps.CONNECTION, "clients-sync", "a/ü 1.bin", snapshot=taken)
    assert before.get_file_properties().size == 100


def link() -> None:
    hour = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
    text = generate_share_sas(steps.ACCOUNT, "clients-sync", steps.KEY, permission="rl", expiry=hour)
    reader = ShareClient(steps.ENDPOINT, "clients-sync", credential=text)
    assert reader.get_file_client("moved").get_file_properties().size == 100


def delete() -> None:
    share.delete_share(delete_snapshots=True)


if __name__ == "__main__":
    steps.run([create, upload_in_parallel, download_in_parallel, ranges, properties, listing, copy_and_rename, lease,
               snapshot, link, delete])  # fmt: skip
