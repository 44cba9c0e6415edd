"""Pages of a listing: names in the order of their bytes, each page beginning after the last name of the one before."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping, Sequence

from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.request import Request

PAGE = 5000  # entries on a page at most, as in Azure


def mark(name: str) -> str:
    """Returns a marker for the page that begins after a name."""
    return base64.urlsafe_b64encode(os.fsencode(name)).decode()


def asked(query: Mapping[str, str]) -> dict[str, str]:
    """Returns what a request asked for, as its answer repeats it."""
    return {name: query.get(name.lower(), "") for name in ("Prefix", "Marker", "MaxResults")}


def included(query: Mapping[str, str], known: Sequence[str]) -> list[str]:
    """Returns what a request wants beside names; refuses what the listing does not have."""
    words = [word.strip().lower() for word in query.get("include", "").split(",") if word.strip()]
    if unknown := [word for word in words if word not in known]:
        raise refusal("InvalidQueryParameterValue", f"include: {unknown[0][:60]!r} is none of {', '.join(known)}.")
    return words


def endpoint(request: Request) -> str:
    """Returns the account's URL as the client addressed it."""
    host, account = request.header("host"), request.target.account
    by_host = host.lower().startswith(f"{account}.{request.target.service}.")
    return f"{request.scheme}://{host}/{'' if by_host else account}"


def name_of(marker: str) -> bytes:
    """Returns the name after which a page begins, b"" for the first page. New or deleted names shift nothing."""
    try:
        return base64.b64decode(marker, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise refusal("InvalidQueryParameterValue", "The marker is not one of this listing.") from None
