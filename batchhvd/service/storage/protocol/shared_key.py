"""SharedKey: the signature that a storage account's key makes over one request.

Source: the Azure Storage REST reference, "Authorize with Shared Key", and what azure-storage-file-share sends.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Iterator, Sequence
from email.utils import parsedate_to_datetime
from functools import lru_cache

from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.request import Request

SKEW = 15 * 60  # seconds that a request's clock may differ from ours

_SIGNED = (
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
)


def check(request: Request, keys: Sequence[str], now: float) -> None:
    """Refuses a request whose Authorization header was not made with one of the account's keys in the last minutes."""
    scheme, _, value = request.header("authorization").partition(" ")
    account, _, signature = value.partition(":")
    if scheme != "SharedKey" or account != request.target.account:
        raise refusal("AuthenticationFailed")
    _check_date(request.header("x-ms-date") or request.header("date"), now)
    for key in keys:
        for text in texts(request):
            if same(sign(key, text), signature):
                return
    raise refusal("AuthenticationFailed", "The signature was not made with one of the account's keys.")


def texts(request: Request) -> Iterator[str]:
    """Yields the strings that a client may have signed: with its headers in the service's order, or in ASCII's.

    They differ only for metadata names with hyphens; clients of 2019 sorted them by ASCII.
    """
    names = [name for name in request.headers if name.startswith("x-ms-")]
    ordered = sorted(names, key=_weight)
    yield _text(request, ordered)
    if ordered != sorted(names):
        yield _text(request, sorted(names))


def sign(key: str, text: str) -> str:
    """Returns the base64 HMAC-SHA256 of a text under a base64 key."""
    try:
        secret = base64.b64decode(key, validate=True)
    except binascii.Error:
        raise ValueError("a storage account's key is not base64") from None
    return base64.b64encode(hmac.new(secret, text.encode("utf-8", "surrogateescape"), hashlib.sha256).digest()).decode()


def same(right: str, given: str) -> bool:
    """Says whether two signatures are equal, in a time that does not depend on where they differ."""
    return hmac.compare_digest(right.encode(), given.encode("utf-8", "replace"))


def _text(request: Request, names: Iterable[str]) -> str:
    return "\n".join(
        [
            request.method,
            *(_value(request, name) for name in _SIGNED),
            *(f"{name}:{request.headers[name]}" for name in names),
            f"/{request.target.account}{request.raw_path}",
            *(f"{name}:{value}" for name, value in sorted(request.query.items())),
        ]
    )


def _value(request: Request, name: str) -> str:
    value = request.header(name)
    if name == "content-length" and value == "0":
        return ""
    if name == "date" and "x-ms-date" in request.headers:
        return ""
    return value


@lru_cache(maxsize=256)  # the same dozen names come with every request
def _weight(name: str) -> tuple[list[tuple[int, str]], list[int]]:
    """Sorts header names as the service does: ``_`` < digits < letters, hyphens only if all else is equal."""
    letters = [(0 if letter == "_" else 1, letter) for letter in name if letter != "-"]
    return letters, [-place for place, letter in enumerate(name) if letter == "-"]


def _check_date(text: str, now: float) -> None:
    try:
        sent = parsedate_to_datetime(text)
        apart = abs(sent.timestamp() - now)
    except (TypeError, ValueError, OverflowError):
        raise refusal("AuthenticationFailed", "Send x-ms-date, the time in the format of RFC 1123.") from None
    if sent.tzinfo is None:  # read as the service's own time, it would open a window of hours
        raise refusal("AuthenticationFailed", "The request's date has no time zone; send it in GMT, as in RFC 1123.")
    if apart > SKEW:
        raise refusal("AuthenticationFailed", "The request's date differs by more than 15 minutes from the service's.")
