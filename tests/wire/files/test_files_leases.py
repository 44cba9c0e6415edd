"""Leases of shares and files, and the attribute ReadOnly: who may write, and for how long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.fileshare import ContentSettings, NTFSAttributes, ShareClient

from batchhvd.service.files.operations import file, lease
from tests.wire.files.conftest import ACCOUNT, Service, code

ID, OTHER_ID = "00000000-1111-2222-3333-444444444444", "44444444-3333-2222-1111-000000000000"


@pytest.fixture(autouse=True)
def _clock(service: Service) -> Iterator[None]:
    yield
    service.ahead = 0.0


def refused(attempt: Callable[[], Any], status: int, expected: str) -> None:
    with pytest.raises(HttpResponseError) as caught:
        attempt()
    assert code(caught) == (status, expected)


def test_only_who_has_the_lease_writes_a_file(share: ShareClient, folder: Path) -> None:
    file = share.get_file_client("f")
    file.upload_file(b"12345678")
    lease = file.acquire_lease(lease_id=ID)
    told = file.get_file_properties().lease
    assert (told.status, told.state, told.duration) == ("locked", "leased", "infinite")
    writes: list[Callable[..., Any]] = [
        lambda **lease: file.upload_range(b"x", 0, 1, **lease),
        lambda **lease: file.resize_file(7, **lease),
        lambda **lease: file.set_file_metadata({"a": "1"}, **lease),
        lambda **lease: file.set_http_headers(file_attributes="hidden", content_settings=ContentSettings(), **lease),
        lambda **lease: file.start_copy_from_url(share.get_file_client("g").url, **lease),
        lambda **lease: file.create_file(8, **lease),
        lambda **lease: file.delete_file(**lease),
    ]
    share.get_file_client("g").upload_file(b"copied")
    for write in writes[:-1]:
        refused(write, 412, "LeaseIdMissing")
        refused(partial(write, lease=OTHER_ID), 412, "LeaseIdMismatchWithFileOperation")
        write(lease=lease)
        assert file.get_file_properties().lease.state == "leased"  # it outlives a copy over the file
    refused(lambda: file.rename_file("h"), 412, "LeaseIdMissing")
    refused(lambda: share.get_file_client("g").rename_file("f", overwrite=True), 412, "LeaseIdMissing")
    refused(writes[-1], 412, "LeaseIdMissing")
    assert file.download_file(lease=lease).readall() == bytes(8)
    refused(lambda: file.download_file(lease=OTHER_ID), 412, "LeaseIdMismatchWithFileOperation")
    writes[-1](lease=lease)
    assert not (folder / "f").exists()


def test_a_files_lease_is_changed_broken_and_given_back(share: ShareClient) -> None:
    file = share.get_file_client("f")
    file.upload_file(b"1")
    refused(lambda: file.download_file(lease=ID), 412, "LeaseNotPresentWithFileOperation")
    lease = file.acquire_lease(lease_id=ID)
    refused(lambda: file.acquire_lease(lease_id=OTHER_ID), 409, "LeaseAlreadyPresent")
    lease.change(OTHER_ID)
    refused(lambda: file.upload_range(b"x", 0, 1, lease=ID), 412, "LeaseIdMismatchWithFileOperation")
    file.upload_range(b"x", 0, 1, lease=OTHER_ID)
    lease.break_lease()
    assert file.get_file_properties().lease.state == "broken"
    file.upload_range(b"y", 0, 1)
    again = file.acquire_lease(lease_id=ID)
    again.release()
    assert file.get_file_properties().lease.state == "available"
    refused(lambda: file.upload_range(b"z", 0, 1, lease=ID), 412, "LeaseNotPresentWithFileOperation")


def test_a_file_that_a_job_puts_in_place_has_no_lease(share: ShareClient, folder: Path) -> None:
    file = share.get_file_client("f")
    file.upload_file(b"1")
    file.acquire_lease(lease_id=ID)
    (folder / "new").write_bytes(b"22")
    (folder / "new").rename(folder / "f")
    file.upload_range(b"3", 0, 1)


def test_a_shares_lease_ends_when_its_time_is_over(service: Service) -> None:
    share = service.share("leased-share")
    share.create_share()
    refused(lambda: share.acquire_lease(lease_id=ID, lease_duration=14), 400, "InvalidHeaderValue")
    lease = share.acquire_lease(lease_id=ID, lease_duration=15)
    assert share.get_share_properties().lease.duration == "fixed"
    refused(share.delete_share, 412, "LeaseIdMissing")
    refused(lambda: share.delete_share(lease=OTHER_ID), 412, "LeaseIdMismatchWithContainerOperation")
    refused(lambda: share.set_share_metadata({}, lease=OTHER_ID), 412, "LeaseIdMismatchWithContainerOperation")
    share.set_share_metadata({"a": "1"})  # only deleting the share needs it
    service.ahead = 14
    lease.renew()
    service.ahead = 28
    refused(share.delete_share, 412, "LeaseIdMissing")
    service.ahead = 30
    assert share.get_share_properties().lease.state == "expired"
    share.delete_share()


def test_a_shares_lease_that_is_broken_ends_with_the_period(service: Service) -> None:
    share = service.share("broken-lease")
    share.create_share()
    lease = share.acquire_lease(lease_id=ID)
    assert lease.break_lease(lease_break_period=5) == 5
    assert share.get_share_properties().lease.state == "breaking"
    refused(lambda: share.acquire_lease(lease_id=OTHER_ID), 409, "LeaseIsBreakingAndCannotBeAcquired")
    refused(lambda: lease.change(OTHER_ID), 409, "LeaseIsBreakingAndCannotBeChanged")
    refused(lease.renew, 409, "LeaseIsBrokenAndCannotBeRenewed")
    refused(share.delete_share, 412, "LeaseIdMissing")
    service.ahead = 6
    refused(lambda: share.delete_share(lease=ID), 412, "LeaseNotPresentWithContainerOperation")
    refused(lease.break_lease, 409, "LeaseAlreadyBroken")
    share.delete_share()


def test_a_snapshot_with_a_lease_goes_only_if_that_is_said(service: Service) -> None:
    share = service.share("leased-snapshot")
    share.create_share()
    service.share("leased-snapshot", snapshot=share.create_snapshot()["snapshot"]).acquire_lease(lease_id=ID)
    refused(lambda: share.delete_share(delete_snapshots="include"), 412, "LeaseIdMissing")
    share.delete_share(delete_snapshots="include-leased")


def test_a_read_only_file_is_not_written_by_requests(share: ShareClient, folder: Path) -> None:
    file = share.get_file_client("f")
    file.create_file(8, file_attributes=NTFSAttributes(read_only=True, archive=True))
    other = share.get_file_client("other")
    other.upload_file(b"12345678")
    for attempt in (
        lambda: file.upload_range(b"x", 0, 1),
        lambda: file.resize_file(9),
        lambda: file.create_file(8),
        lambda: file.start_copy_from_url(other.url),
        lambda: other.rename_file("f", overwrite=True),
        file.delete_file,
    ):
        refused(attempt, 409, "ReadOnlyAttribute")
    file.start_copy_from_url(other.url, ignore_read_only=True)
    assert (folder / "f").read_bytes() == b"12345678"
    file.set_http_headers(content_settings=ContentSettings(), file_attributes=NTFSAttributes(read_only=True))
    file.set_http_headers(content_settings=ContentSettings(), file_attributes="None")
    file.delete_file()


def test_clients_of_before_the_leases_are_told_of_none(service: Service, share: ShareClient, web: httpx.Client) -> None:
    share.get_file_client("f").upload_file(b"1")
    link = service.files.sas(ACCOUNT, share.share_name, "", "r", 4e9)
    for path, version, told in (
        ("/f?", "2018-03-28", False),
        ("/f?", "2019-02-02", True),
        ("?restype=share&", "2019-12-12", False),
        ("?restype=share&", "2020-02-10", True),
    ):
        answer = web.get(f"{share.url}{path}{link}", headers={"x-ms-version": version})
        assert ("x-ms-lease-state" in answer.headers, answer.status_code) == (told, 200)


def test_a_lease_is_not_lost_to_metadata_that_is_set_at_the_same_time(
    service: Service, share: ShareClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request reads the notes, the other acquires, the first notes what it had read."""
    client = share.get_file_client("f")
    client.upload_file(b"1")
    check, begun = lease.check_lease, threading.Event()

    def checked(*arguments: Any, **named: Any) -> None:
        check(*arguments, **named)
        begun.set()
        time.sleep(0.3)

    monkeypatch.setattr(file, "check_lease", checked)
    setting = threading.Thread(target=client.set_file_metadata, args=({"a": "1"},))
    setting.start()
    assert begun.wait(20)
    share.get_file_client("f").acquire_lease(lease_id=ID)
    setting.join(20)
    told = client.get_file_properties()
    assert (told.lease.state, told.metadata) == ("leased", {"a": "1"})
