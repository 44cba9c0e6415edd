"""Shared access signatures: links that permit some operations, on some resources, for some time, without the key.

Source: the Azure Storage REST reference, "Create a service SAS" and "Create an account SAS".
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from urllib.parse import quote

from attrs import evolve, frozen

from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.request import Target
from batchhvd.service.storage.protocol.shared_key import same, sign

LETTERS = "rcwdl"
"""The permissions that a link or a policy can give: read, create, write, delete, list."""

_LEVELS = {"file": {"s": "cdo", "f": "o"}, "blob": {"c": "co", "b": "o"}}
_BY_KIND = "2018-11-09"  # the version since which links to blobs sign what kind of thing they open
_BY_SCOPE = "2020-12-06"  # and their encryption scope

_VERSION = "2022-11-02"
_TIMES = ("%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%MZ", "%Y-%m-%d", "%Y-%m-%dT%H:%M:%S.%fZ")
_OF_POLICY = {"sp": "permission", "st": "start", "se": "expiry"}
_OVERRIDES = ("rscc", "rscd", "rsce", "rscl", "rsct")


Policies = Callable[[Target], Mapping[str, Mapping[str, str]]]
"""Returns a share's stored access policies by id: ``start``, ``expiry``, ``permission``, those that it sets."""


@frozen
class Grant:
    """What a request may do.

    Attributes:
        letters: the permissions, such as ``"rl"``; None for everything, as a key gives.
        levels: of ``s`` the account, ``c`` shares and their listings, ``d`` directories, ``o`` files.
        manages: whether it may also make, change and delete shares.
    """

    letters: str | None = None
    levels: str = "scdo"
    manages: bool = True


def mint(key: str, target: Target, permission: str, expiry: float) -> str:
    """Returns the query string of a link to one file, or to a whole share if the target has no names.

    Args:
        key: one of the account's keys, base64.
        target: the file or the share.
        permission: letters of ``rcwdl``.
        expiry: seconds since 1970 from which the link is refused.
    """
    ends = datetime.fromtimestamp(expiry, timezone.utc).strftime(_TIMES[0])
    whole, one = _LEVELS[target.service]
    query = {"sv": _VERSION, "sr": one if target.names else whole, "sp": permission, "se": ends}
    query["sig"] = sign(key, service_text(query, target))
    return "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())


def check(
    query: Mapping[str, str],
    target: Target,
    keys: Sequence[str],
    now: float,
    *,
    scheme: str,
    client: str,
    policies: Policies = lambda target: {},
) -> Grant:
    """Returns what a link grants on a target; refuses one that is forged, not valid now, or not valid for this caller.

    Args:
        query: the decoded parameters of the request.
        target: what the request is about.
        keys: the account's keys, base64.
        now: seconds since 1970.
        scheme: ``"http"`` or ``"https"``.
        client: the caller's address.
        policies: returns a share's stored access policies by id.
    """
    text, grant = _account(query, target) if "ss" in query else _service(query, target)
    if not any(same(sign(key, text), query.get("sig", "")) for key in keys):
        raise refusal("AuthenticationFailed", "The link's signature does not fit the link and what it is used for.")
    if query.get("si"):
        query = _completed(query, policies(target))
        grant = evolve(grant, letters=query.get("sp", ""))
    _check_time(query, now)
    if scheme not in query.get("spr", "https,http").split(","):
        raise refusal("AuthorizationProtocolMismatch")
    if query.get("sip") and not _inside(query["sip"], client):
        raise refusal("AuthorizationSourceIPMismatch")
    return grant


def service_text(query: Mapping[str, str], target: Target) -> str:
    """Returns what a service link signs: its own parameters and the file or share that it is for."""
    resource = f"/{target.service}/{target.account}/{target.share}"
    if query.get("sr") in ("f", "b"):
        resource += f"/{target.path}"
    lines = [query.get(name, "") for name in ("sp", "st", "se")]
    names = ("si", "sip", "spr", "sv", *_of_blobs(query, target), *_OVERRIDES)
    lines += [resource] + [query.get(name, "") if name else "" for name in names]
    return "\n".join(lines)


def _of_blobs(query: Mapping[str, str], target: Target) -> Sequence[str]:
    """Returns what only a link to blobs signs: its kind, no snapshot, its encryption scope, by its version."""
    if target.service != "blob" or query.get("sv", "") < _BY_KIND:
        return ()
    return ("sr", "", "ses") if query["sv"] >= _BY_SCOPE else ("sr", "")


def account_text(query: Mapping[str, str], account: str) -> str:
    """Returns what an account link signs; from version 2020-12-06 on with one more line, the encryption scope."""
    names = ["sp", "ss", "srt", "st", "se", "sip", "spr", "sv"]
    if query.get("sv", "") >= "2020-12-06":
        names.append("ses")
    return "".join(f"{line}\n" for line in [account, *(query.get(name, "") for name in names)])


def _account(query: Mapping[str, str], target: Target) -> tuple[str, Grant]:
    if target.service[0] not in query["ss"]:
        raise refusal("AuthorizationServiceMismatch")
    return account_text(query, target.account), Grant(query.get("sp", ""), query.get("srt", "").replace("o", "do"))


def _service(query: Mapping[str, str], target: Target) -> tuple[str, Grant]:
    levels = _LEVELS[target.service].get(query.get("sr", ""))
    if levels is None or not target.share:
        raise refusal(
            "AuthenticationFailed", "The link is not a service link for this file or share, blob or container."
        )
    return service_text(query, target), Grant(query.get("sp", ""), levels, manages=False)


def _completed(query: Mapping[str, str], policies: Mapping[str, Mapping[str, str]]) -> Mapping[str, str]:
    """Returns a link's parameters with those of the policy that it names; each stands in one of the two."""
    policy = policies.get(query["si"])
    if policy is None:
        raise refusal("AuthenticationFailed", "There is no stored access policy of the link's name.")
    given = {name: policy[key] for name, key in _OF_POLICY.items() if policy.get(key)}
    if twice := [name for name in given if query.get(name)]:
        raise refusal("AuthenticationFailed", f"The link and its policy both set {' and '.join(twice)}.")
    return {**query, **given}


def is_time(text: str) -> bool:
    """Says whether a text is a time as links have it."""
    return _read_time(text) is not None


def _check_time(query: Mapping[str, str], now: float) -> None:
    if now >= _seconds(query.get("se", "")):
        raise refusal("AuthenticationFailed", "The link has expired; ask for a new one.")
    if query.get("st") and now < _seconds(query["st"]):
        raise refusal("AuthenticationFailed", "The link is not valid yet.")


def _seconds(text: str) -> float:
    found = _read_time(text)
    if found is None:
        raise refusal("AuthenticationFailed", "A time in the link is not in ISO 8601, UTC.")
    return found


def _read_time(text: str) -> float | None:
    text = re.sub(r"(\.\d{6})\d+", r"\1", text)
    for form in _TIMES:
        try:
            return datetime.strptime(text, form).replace(tzinfo=timezone.utc).timestamp()
        except ValueError:
            continue
    return None


def _inside(allowed: str, client: str) -> bool:
    first, _, last = allowed.partition("-")
    try:
        low, high, address = (ipaddress.ip_address(text) for text in (first, last or first, client))
    except ValueError:
        return False
    return low.version == high.version == address.version and int(low) <= int(address) <= int(high)
