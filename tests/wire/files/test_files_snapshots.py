"""Snapshots: what they hold stays as it was, whoever writes, and however."""

from __future__ import annotations

import mmap
import os
import shutil
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.storage.fileshare import ShareClient

from batchhvd.service.storage.disk import snapshot as taking
from batchhvd.service.storage.disk.sidecar import Sidecar
from tests.wire.files.conftest import ACCOUNT, Service, code

MIB = 1 << 20


def snapshot_of(service: Service, share: ShareClient, **more: Any) -> ShareClient:
    """Takes a snapshot and returns a client for it."""
    stamp = share.create_snapshot(**more)["snapshot"]
    return service.share(share.share_name, snapshot=stamp)


def content(snapshot: ShareClient, path: str) -> bytes:
    return snapshot.get_file_client(path).download_file().readall()


@pytest.fixture(params=["clones", "copies"])
def cloning(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Once as the file system can, once as one without clones."""
    if request.param == "copies":
        monkeypatch.setattr(taking, "_clone", lambda source, target: False)
    return str(request.param)


@pytest.mark.usefixtures("cloning")
def test_a_snapshot_keeps_what_requests_and_jobs_then_write_in_place(
    service: Service, share: ShareClient, folder: Path
) -> None:
    share.create_directory("d")
    file = share.get_file_client("d/f")
    file.upload_file(b"old" * 1000, metadata={"epoch": "1"})
    (folder / "mapped").write_bytes(b"old" * 2000)
    (folder / "gone").write_bytes(b"gone")
    before = file.get_file_properties()
    first = snapshot_of(service, share)
    second = snapshot_of(service, share)  # the files of the two may be one
    file.upload_range(b"new", 0, 3)
    file.set_file_metadata({"epoch": "2"})
    with (folder / "d" / "f").open("r+b") as job:
        job.seek(300)
        job.write(b"by a job")
    with (folder / "mapped").open("r+b") as job, mmap.mmap(job.fileno(), 0) as view:
        view[:3] = b"new"
    (folder / "gone").unlink()
    os.truncate(folder / "d" / "f", 500)
    for snapshot in (first, second):
        assert content(snapshot, "d/f") == b"old" * 1000
        assert content(snapshot, "mapped") == b"old" * 2000
        assert content(snapshot, "gone") == b"gone"
        then = snapshot.get_file_client("d/f").get_file_properties()
        assert (then.metadata, then.etag, then.file_id) == ({"epoch": "1"}, before.etag, before.file_id)
        assert (then.last_write_time, then.creation_time) == (before.last_write_time, before.creation_time)
        listed = list(snapshot.list_directories_and_files(include=["Etag"]))
        assert sorted(entry.name for entry in listed) == ["d", "gone", "mapped"]
    assert sorted(entry.name for entry in share.list_directories_and_files()) == ["d", "mapped"]
    assert content(snapshot_of(service, share), "mapped")[:3] == b"new"


def test_a_file_at_rest_is_copied_once_and_a_changed_one_again(
    service: Service, share: ShareClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "_clone", lambda source, target: False)
    for name in ("rests", "written", "replaced", "touched"):
        (folder / name).write_bytes(name.encode() * 1000)
    moment = os.stat(folder / "written").st_mtime_ns
    time.sleep(0.3)
    stamps = [share.create_snapshot()["snapshot"]]
    with (folder / "written").open("r+b") as job:
        job.write(b"W")
    os.utime(folder / "written", ns=(moment, moment))  # as if nothing had been: only the time of change tells it
    (folder / "new").write_bytes(b"replaced" * 1000)
    os.utime(folder / "new", ns=(moment, moment))
    (folder / "new").rename(folder / "replaced")
    stamps.append(share.create_snapshot()["snapshot"])
    kept = service.root / ".files" / "snapshots" / ACCOUNT / share.share_name
    same = {
        name: (kept / stamps[0] / name).stat().st_ino == (kept / stamps[1] / name).stat().st_ino
        for name in ("rests", "written", "replaced", "touched")
    }
    assert same == {"rests": True, "written": False, "replaced": False, "touched": True}
    assert (folder / "rests").stat().st_nlink == 1  # never one with the share's own file
    assert (kept / stamps[0] / "written").read_bytes()[:1] == b"w"
    service.share(share.share_name, snapshot=stamps[0]).delete_share()
    assert content(service.share(share.share_name, snapshot=stamps[1]), "rests") == b"rests" * 1000


def test_a_file_that_had_just_been_written_is_not_trusted_to_be_the_same(
    service: Service, share: ShareClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "_clone", lambda source, target: False)
    (folder / "f").write_bytes(b"f")
    stamps = [share.create_snapshot()["snapshot"] for _ in range(2)]
    kept = service.root / ".files" / "snapshots" / ACCOUNT / share.share_name
    assert len({(kept / stamp / "f").stat().st_ino for stamp in stamps}) == 2


def test_a_snapshot_cannot_be_changed_and_nothing_of_it_gets_out(
    service: Service, share: ShareClient, folder: Path
) -> None:
    (folder / "f").write_bytes(b"data")
    (folder / "inside").symlink_to(folder / "f")
    (folder / "outside").symlink_to(service.root.parent)
    snapshot = snapshot_of(service, share)
    (folder / "f").write_bytes(b"DATA")
    assert content(snapshot, "inside") == b"data"
    with pytest.raises(ResourceNotFoundError):
        content(snapshot, "outside/x")
    url = f"?sharesnapshot={snapshot.snapshot}"
    for attempt in (
        lambda: snapshot.create_directory("d"),
        lambda: snapshot.get_file_client("f").create_file(1),
        lambda: snapshot.get_file_client("f").upload_range(b"x", 0, 1),
        lambda: snapshot.get_file_client("f").delete_file(),
        lambda: snapshot.set_share_metadata({"a": "1"}),
    ):
        try:
            attempt()
        except HttpResponseError:
            continue  # most of the client's writes name no snapshot and go to the share
    link = service.files.sas(ACCOUNT, share.share_name, "", "rwdl", 4e9)
    for method, path, headers in (
        ("PUT", "/f", {"x-ms-type": "file", "x-ms-content-length": "1"}),
        ("DELETE", "/f", {}),
        ("PUT", "/d", {}),
    ):
        query = f"{url}&{link}" + ("&restype=directory" if path == "/d" else "")
        answer = httpx.request(method, f"{share.url}{path}{query}", headers=headers, trust_env=False)
        assert (answer.status_code, answer.headers["x-ms-error-code"]) == (409, "ShareSnapshotOperationNotSupported")
    assert content(snapshot, "f") == b"data"


def test_snapshots_are_listed_described_and_deleted(service: Service, share: ShareClient) -> None:
    share.set_share_metadata({"of": "share"})
    stamps = [share.create_snapshot()["snapshot"], share.create_snapshot(metadata={"of": "snapshot"})["snapshot"]]
    assert stamps == sorted(set(stamps))
    found = list(service.account().list_shares(share.share_name, include_snapshots=True, include_metadata=True))
    assert [(each.snapshot, each.metadata) for each in found] == [
        (None, {"of": "share"}),
        (stamps[0], {"of": "share"}),
        (stamps[1], {"of": "snapshot"}),
    ]
    pages = service.account().list_shares(share.share_name, include_snapshots=True, results_per_page=2).by_page()
    assert [len(list(page)) for page in pages] == [2, 1]
    assert len(list(service.account().list_shares(share.share_name))) == 1
    with pytest.raises(ResourceExistsError) as caught:
        share.delete_share()
    assert code(caught) == (409, "ShareHasSnapshots")
    first = service.share(share.share_name, snapshot=stamps[0])
    first.delete_share()
    with pytest.raises(ResourceNotFoundError) as missing:
        first.get_share_properties()
    assert code(missing) == (404, "ShareSnapshotNotFound")
    assert share.get_share_properties().metadata == {"of": "share"}


@pytest.mark.filterwarnings("ignore:get_ranges_diff")
def test_a_comparison_tells_what_was_written_and_what_was_cleared(service: Service, share: ShareClient) -> None:
    file = share.get_file_client("f")
    file.create_file(8 * MIB)
    file.upload_range(b"a" * 4096, 0, 4096)
    file.upload_range(b"b" * 1024, 5 * MIB, 1024)
    stamp = share.create_snapshot()["snapshot"]
    file.upload_range(b"c" * 512, 1024, 512)
    file.clear_range(5 * MIB, 512)
    file.upload_range(b"d" * 700, 6 * MIB, 700)
    changed, cleared = file.get_ranges_diff(previous_sharesnapshot=stamp)
    assert [(each["start"], each["end"]) for each in changed] == [(1024, 1535), (6 * MIB, 6 * MIB + 1023)]
    assert [(each["start"], each["end"]) for each in cleared] == [(5 * MIB, 5 * MIB + 511)]
    again = share.create_snapshot()["snapshot"]
    assert file.get_ranges_diff(previous_sharesnapshot=again) == ([], [])
    renamed = file.rename_file("g")
    with pytest.raises(ResourceExistsError):
        renamed.get_ranges_diff(previous_sharesnapshot=stamp)
    assert renamed.get_ranges_diff(previous_sharesnapshot=stamp, include_renames=True)[0] == changed
    other = share.get_file_client("new")
    other.upload_file(b"x" * 10)
    assert other.get_ranges_diff(previous_sharesnapshot=stamp)[0] == [{"start": 0, "end": 9}]


@pytest.mark.filterwarnings("ignore:get_ranges_diff")
def test_a_comparison_tells_of_rewrites_and_clears_that_leave_the_bytes_as_they_were(
    service: Service, share: ShareClient, folder: Path
) -> None:
    file = share.get_file_client("f")
    file.create_file(4 * MIB)
    file.upload_range(b"a" * 2048, 0, 2048)
    file.upload_range(b"a" * 512, 3072, 512)  # before any snapshot: nobody asks for it
    first = share.create_snapshot()["snapshot"]
    file.upload_range(b"a" * 100, 600, 100)
    file.clear_range(2 * MIB, 1024)
    second = share.create_snapshot()["snapshot"]
    link = service.files.sas(ACCOUNT, share.share_name, "f", "r", 4e9)
    file.upload_range_from_url(f"{file.url}?{link}", offset=1536, length=512, source_offset=0)
    with (folder / "f").open("r+b") as job:
        job.write(b"a" * 100)

    def compared(since: str, client: Any = file) -> list[list[tuple[int, int]]]:
        found = client.get_ranges_diff(previous_sharesnapshot=since)
        return [[(each["start"], each["end"]) for each in kind] for kind in found]

    hole = (2 * MIB, 2 * MIB + 1023)
    assert compared(first) == [[(512, 1023), (1536, 2047)], [hole]]
    assert compared(second) == [[(1536, 2047)], []]
    between = service.share(share.share_name, snapshot=second).get_file_client("f")
    assert compared(first, between) == [[(512, 1023)], [hole]]
    key, inode = f"{ACCOUNT}/{share.share_name}", (folder / "f").stat().st_ino
    with closing(Sidecar(service.root / ".files" / "sidecar.sqlite")) as kept:  # on the disk, for the next service
        assert kept.touched(key, inode, "", "~") == [(600, 699), (1536, 2047), hole]
        service.share(share.share_name, snapshot=first).delete_share()
        assert kept.touched(key, inode, "", "~") == [(1536, 2047)]
        assert compared(second) == [[(1536, 2047)], []]
        service.share(share.share_name, snapshot=second).delete_share()
        assert kept.touched(key, inode, "", "~") == []


def test_a_file_comes_back_from_a_snapshot_by_a_copy(service: Service, share: ShareClient) -> None:
    file = share.get_file_client("f")
    file.upload_file(b"old", metadata={"epoch": "1"})
    snapshot = snapshot_of(service, share)
    file.upload_file(b"new")
    file.start_copy_from_url(snapshot.get_file_client("f").url)
    assert file.download_file().readall() == b"old"
    assert file.get_file_properties().metadata == {"epoch": "1"}


def test_a_new_share_of_the_name_has_no_snapshots_of_the_old_one(service: Service) -> None:
    client = service.share("snapshot-heir")
    client.create_share()
    stamp = client.create_snapshot()["snapshot"]
    client.delete_share(delete_snapshots="include")
    client.create_share()
    assert len(list(service.account().list_shares("snapshot-heir", include_snapshots=True))) == 1
    with pytest.raises(ResourceNotFoundError):
        service.share("snapshot-heir", snapshot=stamp).get_share_properties()
    client.delete_share()


def test_what_is_kept_of_an_account_goes_with_it(service: Service, share: ShareClient) -> None:
    share.create_snapshot()
    kept = service.root / ".files" / "snapshots" / ACCOUNT
    copy = shutil.copytree(kept, service.root / ".files" / "snapshots" / "goneaccount")
    service.files.forget("goneaccount")
    assert kept.is_dir() and not Path(copy).exists()


def test_a_snapshot_that_is_being_taken_does_not_outlive_its_share(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = service.share("outlived")
    client.create_share()
    fill, begun, deleted = taking.Taken.fill, threading.Event(), threading.Event()

    def slow(taken: taking.Taken) -> None:
        begun.set()
        deleted.wait(0.5)  # time enough for a deletion that does not wait
        fill(taken)

    monkeypatch.setattr(taking.Taken, "fill", slow)
    taker = threading.Thread(target=client.create_snapshot)
    taker.start()
    assert begun.wait(20)
    with pytest.raises(ResourceExistsError) as caught:
        service.share("outlived").delete_share()
    deleted.set()
    taker.join(20)
    assert code(caught) == (409, "ShareHasSnapshots")
    client.delete_share(delete_snapshots="include")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_the_service_may_not_read_is_named(
    service: Service, share: ShareClient, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "f").write_bytes(b"x")
    (folder / "f").chmod(0)
    (folder / "d").mkdir(mode=0)
    snapshot = snapshot_of(service, share)
    assert [entry.name for entry in snapshot.list_directories_and_files()] == ["d"]
    assert "may not read" in caplog.text and "/d/" in caplog.text and "f" in caplog.text
