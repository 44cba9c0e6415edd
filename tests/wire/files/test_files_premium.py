"""Shares of accounts of the kind FileStorage: what their SKU offers is kept and given back, the rest is refused."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.fileshare import ShareClient

from tests.wire.files.conftest import ACCOUNT, PREMIUM, PROVISIONED, Service, code


@pytest.fixture
def make(service: Service) -> Iterator[Any]:
    made: list[ShareClient] = []

    def making(account: str, **wanted: Any) -> ShareClient:
        client = service.share(f"share{len(made)}", account=account)
        client.create_share(**wanted)
        made.append(client)
        return client

    yield making
    for client in made:
        client.delete_share()


def test_a_share_of_nfs_keeps_protocol_and_root_squash(service: Service, make: Any) -> None:
    share = make(PREMIUM, protocols="NFS", root_squash="AllSquash", quota=200)
    share.set_share_properties(quota=300)
    plain = make(PREMIUM)
    found = share.get_share_properties()
    assert (found.protocols, found.root_squash, found.access_tier) == (["NFS"], "AllSquash", "Premium")
    assert (found.quota, found.provisioned_iops, found.provisioned_bandwidth) == (300, 3300, 130)
    share.set_share_properties(root_squash="RootSquash")
    listed = {each.name: each for each in service.account(PREMIUM).list_shares()}
    assert (listed[share.share_name].protocols, listed[share.share_name].root_squash) == (["NFS"], "RootSquash")
    assert (listed[plain.share_name].protocols, listed[plain.share_name].root_squash) == (["SMB"], None)
    snapshot = share.create_snapshot()["snapshot"]
    kept = service.share(share.share_name, account=PREMIUM, snapshot=snapshot)
    assert kept.get_share_properties().root_squash == "RootSquash"
    kept.delete_share()


def test_provisioned_throughput_is_kept_and_raising_it_holds_it_for_a_day(service: Service, make: Any) -> None:
    share = make(PROVISIONED, quota=1000)
    found = share.get_share_properties()
    assert (found.provisioned_iops, found.provisioned_bandwidth) == (1200, 80)
    assert (found.included_burst_iops, found.max_burst_credits_for_iops) == (5000, 3800 * 3600)
    share.set_share_properties(access_tier="Cool", provisioned_iops=4000)
    found = next(iter(service.account(PROVISIONED).list_shares()))
    assert (found.provisioned_iops, found.provisioned_bandwidth, found.access_tier) == (4000, 80, "Cool")
    assert found.included_burst_iops == 12000
    tomorrow = datetime.now(timezone.utc) + timedelta(days=1)
    assert found.next_provisioned_iops_downgrade is not None
    assert abs(found.next_provisioned_iops_downgrade - tomorrow) < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("account", "wanted"),
    [
        (ACCOUNT, {"protocols": "NFS"}),
        (ACCOUNT, {"access_tier": "Premium"}),
        (ACCOUNT, {"provisioned_iops": 500}),
        (ACCOUNT, {"paid_bursting_enabled": True}),
        (PREMIUM, {"access_tier": "Hot"}),
        (PREMIUM, {"quota": 99}),
        (PREMIUM, {"provisioned_iops": 5000}),
        (PREMIUM, {"paid_bursting_enabled": True, "paid_bursting_iops": 102401}),
        (PREMIUM, {"paid_bursting_iops": 100}),
        (PROVISIONED, {"protocols": "NFS"}),
        (PROVISIONED, {"quota": 31}),
        (PROVISIONED, {"provisioned_iops": 499}),
        (PROVISIONED, {"provisioned_bandwidth_mibps": 5121}),
    ],
)
def test_what_an_account_does_not_offer_is_refused(service: Service, account: str, wanted: dict[str, Any]) -> None:
    share = service.share("refused", account=account)
    with pytest.raises(HttpResponseError) as caught:
        share.create_share(**wanted)
    assert caught.value.status_code == 400, code(caught)
    assert not any(each.name == "refused" for each in service.account(account).list_shares())


def test_root_squash_of_a_share_of_smb_is_refused(make: Any) -> None:
    share = make(PREMIUM)
    share.set_share_properties(root_squash="NoRootSquash")  # as Azure takes it, where it changes nothing
    with pytest.raises(HttpResponseError) as caught:
        share.set_share_properties(root_squash="AllSquash")
    assert code(caught) == (400, "InvalidHeaderValue")
    assert share.get_share_properties().root_squash is None
