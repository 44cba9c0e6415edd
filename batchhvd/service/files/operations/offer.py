"""What an account's SKU offers its shares: sizes, tiers, NFS, paid bursting, provisioned IOPS and throughput.

All of it is checked by Azure's published limits, kept and given back; of these only the size has an effect here.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from attrs import field, frozen

from batchhvd.errors import ServiceError
from batchhvd.service.storage.disk.disk import Disk
from batchhvd.service.storage.disk.sidecar import Facts
from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.request import Request
from batchhvd.service.storage.shown_headers import http_date

QUOTA = 5120  # GiB, Azure's default
TIER = "TransactionOptimized"
_DAY = 86400
_SQUASH, _PROTOCOL = "x-ms-root-squash", "x-ms-enabled-protocols"
_VIRTUAL = "x-ms-enable-snapshot-virtual-directory-access"
_BURSTS = "x-ms-share-paid-bursting-enabled"
_BURST_MIBPS, _BURST_IOPS = "x-ms-share-paid-bursting-max-bandwidth-mibps", "x-ms-share-paid-bursting-max-iops"
_IOPS, _MIBPS = "x-ms-share-provisioned-iops", "x-ms-share-provisioned-bandwidth-mibps"
_QUOTA, _QUOTA_TIME = "x-ms-share-quota", "x-ms-share-next-allowed-quota-downgrade-time"
_TIMES = {
    _IOPS: "x-ms-share-next-allowed-provisioned-iops-downgrade-time",
    _MIBPS: "x-ms-share-next-allowed-provisioned-bandwidth-downgrade-time",
}
_SPELLED = {word.lower(): word for word in ("NFS", "SMB", "NoRootSquash", "RootSquash", "AllSquash")}
ELEMENTS = {
    _PROTOCOL: "EnabledProtocols",
    _SQUASH: "RootSquash",
    _VIRTUAL: "EnableSnapshotVirtualDirectoryAccess",
    _BURSTS: "PaidBurstingEnabled",
    _BURST_IOPS: "PaidBurstingMaxIops",
    _BURST_MIBPS: "PaidBurstingMaxBandwidthMibps",
    _IOPS: "ProvisionedIops",
    _MIBPS: "ProvisionedBandwidthMiBps",
    "x-ms-share-provisioned-ingress-mbps": "ProvisionedIngressMBps",
    "x-ms-share-provisioned-egress-mbps": "ProvisionedEgressMBps",
    "x-ms-share-included-burst-iops": "IncludedBurstIops",
    "x-ms-share-max-burst-credits-for-iops": "MaxBurstCreditsForIops",
    _QUOTA_TIME: "NextAllowedQuotaDowngradeTime",
    _TIMES[_IOPS]: "NextAllowedProvisionedIopsDowngradeTime",
    _TIMES[_MIBPS]: "NextAllowedProvisionedBandwidthDowngradeTime",
}
"""By header, the element of a share in a listing that says the same."""


@frozen
class _Bought:
    """IOPS or throughput that is bought for a share.

    Attributes:
        least: the least that can be bought.
        most: the most.
        usual: what a share of a size in GiB has if nothing is said.
    """

    least: int
    most: int
    usual: Callable[[int], float]

    def of(self, quota: int) -> int:
        """Returns what a share of a size has if nothing is said."""
        return min(math.ceil(self.usual(quota)), self.most)


@frozen
class _Offer:
    """What a kind of account offers.

    Attributes:
        sizes: least and most GiB of a share.
        tiers: the tiers of shares, the default first.
        nfs: whether a share may be one of NFS.
        bursts: whether bursting can be paid for.
        bought: what can be bought beside the size, by header.
        burst: the IOPS to which any share bursts.
    """

    sizes: tuple[int, int]
    tiers: tuple[str, ...] = (TIER, "Hot", "Cool")
    nfs: bool = field(default=False, kw_only=True)
    bursts: bool = field(default=False, kw_only=True)
    bought: dict[str, _Bought] = field(factory=dict, kw_only=True)
    burst: int = field(default=0, kw_only=True)


# Source: Azure's scale targets of Azure Files, and the formulas of its billing models provisioned v1 and v2.
_OFFERS = {
    "Premium_": _Offer((100, 102400), ("Premium",), nfs=True, bursts=True),
    "PremiumV2_": _Offer(
        (32, 262144),
        ("Premium",),
        nfs=True,
        bought={
            _IOPS: _Bought(3000, 102400, lambda size: 3000 + size),
            _MIBPS: _Bought(100, 10340, lambda size: 100 + size / 10),
        },
        burst=10000,
    ),
    "StandardV2_": _Offer(
        (32, 262144),
        bought={
            _IOPS: _Bought(500, 50000, lambda size: 1000 + size / 5),
            _MIBPS: _Bought(60, 5120, lambda size: 60 + size / 50),
        },
        burst=5000,
    ),
}
_STANDARD = _Offer((1, 102400))
_BURST_LIMITS = {_BURST_MIBPS: 10340, _BURST_IOPS: 102400}


def choose(disk: Disk, request: Request, facts: Facts) -> None:
    """Notes what a request wants of a share; refuses what the share's account does not offer."""
    offer, kept = _offer(disk, request.target.account), dict(facts.get("offer", {}))
    if _QUOTA in request.headers:
        _choose_size(disk, request, offer, facts, kept)
    if wanted := request.header("x-ms-access-tier"):
        facts["tier"], facts["tiered"] = _tier(offer, wanted), disk.now()
    _choose_protocol(request, offer, kept)
    _choose_bursts(request, offer, kept)
    _choose_bought(disk, request, offer, kept)
    if offer is not _STANDARD:
        for name in (_QUOTA_TIME, *(_TIMES.values() if offer.bought else ())):
            kept.setdefault(name, _tomorrow(disk))
    facts["offer"] = kept


def told(disk: Disk, account: str, facts: Facts, created: float) -> dict[str, str]:
    """Returns the headers that say what a share has.

    Args:
        disk: where it lies.
        account: its account.
        facts: what is noted of it.
        created: when it was made or changed, for times that nothing is noted of.
    """
    offer, kept, quota = _offer(disk, account), facts.get("offer", {}), facts.get("quota") or QUOTA
    found: dict[str, object] = {_PROTOCOL: "SMB"}
    first = http_date(int((created + _DAY) * 1e9))
    if kept.get(_PROTOCOL) == "NFS":
        found |= {_SQUASH: "NoRootSquash", _VIRTUAL: "true"}
    if offer.bursts:
        found |= {_BURSTS: "false", _IOPS: min(3000 + quota, 102400), _QUOTA_TIME: first, **_throughput(quota)}
    if offer.bought:
        found |= {name: bought.of(quota) for name, bought in offer.bought.items()}
        found |= {_QUOTA_TIME: first, **dict.fromkeys(_TIMES.values(), first)}
        found |= _burst(offer, int(kept.get(_IOPS) or offer.bought[_IOPS].of(quota)))
    return {name: str(value) for name, value in (found | kept).items()}


def tier(disk: Disk, account: str, facts: Facts) -> str:
    """Returns a share's tier."""
    return facts.get("tier") or _offer(disk, account).tiers[0]


def _offer(disk: Disk, account: str) -> _Offer:
    sku = disk.sku(account)
    return next((offer for start, offer in _OFFERS.items() if sku.startswith(start)), _STANDARD)


def _throughput(quota: int) -> dict[str, object]:
    into, out = math.ceil(quota * 0.04), math.ceil(quota * 0.06)
    return {
        _MIBPS: min(100 + into + out, 10340),
        "x-ms-share-provisioned-ingress-mbps": 40 + into,
        "x-ms-share-provisioned-egress-mbps": 60 + out,
    }


def _burst(offer: _Offer, iops: int) -> dict[str, object]:
    burst = min(max(3 * iops, offer.burst), offer.bought[_IOPS].most)
    credit = (burst - iops) * 3600  # an hour of it
    return {"x-ms-share-included-burst-iops": burst, "x-ms-share-max-burst-credits-for-iops": credit}


def _choose_size(disk: Disk, request: Request, offer: _Offer, facts: Facts, kept: dict[str, str]) -> None:
    quota = request.number(_QUOTA, least=offer.sizes[0], most=offer.sizes[1])
    if offer is not _STANDARD and quota > (facts.get("quota") or QUOTA):
        kept[_QUOTA_TIME] = _tomorrow(disk)
    facts["quota"] = quota


def _tier(offer: _Offer, wanted: str) -> str:
    found = next((each for each in offer.tiers if each.lower() == wanted.lower()), None)
    if found is None:
        raise refusal("InvalidHeaderValue", f"x-ms-access-tier: this account's shares are {' or '.join(offer.tiers)}.")
    return found


def _choose_protocol(request: Request, offer: _Offer, kept: dict[str, str]) -> None:
    if request.header(_PROTOCOL).lower() == "nfs":
        if not offer.nfs:
            raise _not_offered(_PROTOCOL, "NFS", "Premium_LRS")
        kept[_PROTOCOL] = "NFS"
    is_nfs = kept.get(_PROTOCOL) == "NFS"
    for name, harmless in ((_SQUASH, "norootsquash"), (_VIRTUAL, "")):
        wanted = request.header(name).lower()
        if wanted and is_nfs:
            kept[name] = _SPELLED.get(wanted, wanted)
        elif wanted and (wanted != harmless or not offer.nfs):  # Azure takes NoRootSquash of any share on SSD
            raise refusal("InvalidHeaderValue", f"{name} is one of NFS shares, and this is none.")


def _choose_bursts(request: Request, offer: _Offer, kept: dict[str, str]) -> None:
    asked = [name for name in (_BURSTS, *_BURST_LIMITS) if name in request.headers]
    if asked and not offer.bursts:
        raise _not_offered(asked[0], "bursting that is paid for", "Premium_LRS")
    if _BURSTS in asked:
        kept[_BURSTS] = request.header(_BURSTS).lower()
    for name in asked:
        if name in _BURST_LIMITS:
            if kept.get(_BURSTS) != "true":
                raise refusal("InvalidHeaderValue", f"{name} needs {_BURSTS}: true.")
            kept[name] = str(request.number(name, least=1, most=_BURST_LIMITS[name]))


def _choose_bought(disk: Disk, request: Request, offer: _Offer, kept: dict[str, str]) -> None:
    for name, time in _TIMES.items():
        if name not in request.headers:
            continue
        if name not in offer.bought:
            raise _not_offered(name, "what is provisioned beside the size", "StandardV2_LRS or PremiumV2_LRS")
        bought = request.number(name, least=offer.bought[name].least, most=offer.bought[name].most)
        if bought > int(kept.get(name, 0)):
            kept[time] = _tomorrow(disk)
        kept[name] = str(bought)


def _tomorrow(disk: Disk) -> str:
    return http_date(int((disk.now() + _DAY) * 1e9))


def _not_offered(name: str, what: str, sku: str) -> ServiceError:
    return refusal("InvalidHeaderValue", f"{name}: {what} needs an account of the kind FileStorage and SKU {sku}.")
