"""Shared access signatures: links that permit some operations, on some resources, for some time, without the key.

Source: the Azure Storage REST reference, "Create a service SAS" and "Create an account SAS".
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from urllib.parse import quote

from attrs import frozen

from batchhvd.service.files.protocol.refusal import refusal
from batchhvd.service.files.protocol.request import Target
from batchhvd.service.files.protocol.shared_key import same, sign

_VERSION = "2022-11-02"
_TIMES = ("%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%MZ", "%Y-%m-%d", "%Y-%m-%dT%H:%M:%S.%fZ")
_OVERRIDES = ("rscc", "rscd", "rsce", "rscl", "rsct")


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
    query = {"sv": _VERSION, "sr": "f" if target.names else "s", "sp": permission, "se": ends}
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
) -> Grant:
    """Returns what a link grants on a target; refuses one that is forged, not valid now, or not valid for this caller.

    Args:
        query: the decoded parameters of the request.
        target: what the request is about.
        keys: the account's keys, base64.
        now: seconds since 1970.
        scheme: ``"http"`` or ``"https"``.
        client: the caller's address.
    """
    text, grant = _account(query, target) if "ss" in query else _service(query, target)
    if not any(same(sign(key, text), query.get("sig", "")) for key in keys):
        raise refusal("AuthenticationFailed", "The link's signature does not fit the link and what it is used for.")
    _check_time(query, now)
    if scheme not in query.get("spr", "https,http").split(","):
        raise refusal("AuthorizationProtocolMismatch")
    if query.get("sip") and not _inside(query["sip"], client):
        raise refusal("AuthorizationSourceIPMismatch")
    return grant


def service_text(query: Mapping[str, str], target: Target) -> str:
    """Returns what a service link signs: its own parameters and the file or share that it is for."""
    resource = f"/file/{target.account}/{target.share}"
    if query.get("sr") == "f":
        resource += f"/{target.path}"
    lines = [query.get(name, "") for name in ("sp", "st", "se")]
    lines += [resource] + [query.get(name, "") for name in ("si", "sip", "spr", "sv", *_OVERRIDES)]
    return "\n".join(lines)


def account_text(query: Mapping[str, str], account: str) -> str:
    """Returns what an account link signs; from version 2020-12-06 on with one more line, the encryption scope."""
    names = ["sp", "ss", "srt", "st", "se", "sip", "spr", "sv"]
    if query.get("sv", "") >= "2020-12-06":
        names.append("ses")
    return "".join(f"{line}\n" for line in [account, *(query.get(name, "") for name in names)])


def _account(query: Mapping[str, str], target: Target) -> tuple[str, Grant]:
    if "f" not in query["ss"]:
        raise refusal("AuthorizationServiceMismatch")
    return account_text(query, target.account), Grant(query.get("sp", ""), query.get("srt", "").replace("o", "do"))


def _service(query: Mapping[str, str], target: Target) -> tuple[str, Grant]:
    levels = {"s": "cdo", "f": "o"}.get(query.get("sr", ""))
    if levels is None or not target.share or query.get("si"):
        raise refusal(
            "AuthenticationFailed", "The link is not a service link for this file or share with its own permissions."
        )
    return service_text(query, target), Grant(query.get("sp", ""), levels, manages=False)


def _check_time(query: Mapping[str, str], now: float) -> None:
    if now >= _seconds(query.get("se", "")):
        raise refusal("AuthenticationFailed", "The link has expired; ask for a new one.")
    if query.get("st") and now < _seconds(query["st"]):
        raise refusal("AuthenticationFailed", "The link is not valid yet.")


def _seconds(text: str) -> float:
    for form in _TIMES:
        try:
            return datetime.strptime(text, form).replace(tzinfo=timezone.utc).timestamp()
        except ValueError:
            continue
    raise refusal("AuthenticationFailed", "A time in the link is not in ISO 8601, UTC.")


def _inside(allowed: str, client: str) -> bool:
    first, _, last = allowed.partition("-")
    try:
        low, high, address = (ipaddress.ip_address(text) for text in (first, last or first, client))
    except ValueError:
        return False
    return low.version == high.version == address.version and int(low) <= int(address) <= int(high)
