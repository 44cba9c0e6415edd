"""Lists in pages: at most ``maxresults`` items, and where to ask for the next ones."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import urlencode

from batchhvd.errors import Refused
from batchhvd.service.exchange import Answer, Ask
from batchhvd.service.store import Record

TOKEN = "$skiptoken"
T = TypeVar("T")


def records(
    ask: Ask, found: Sequence[Record], show: Callable[[Record], Any] = lambda record: record.document
) -> Answer:
    """Returns one page of resources in the order they were made; what is made meanwhile comes on the last page."""
    return page(ask, found, lambda record: f"{record.number:020d}", show)


def page(ask: Ask, items: Sequence[T], key: Callable[[T], str], show: Callable[[T], Any]) -> Answer:
    """Returns one page of items that are sorted by ``key``.

    Raises:
        Refused: 400, the token in the query is none of ours.
    """
    after, most = _after(ask), int(ask.query.get("maxresults", 1000))
    rest = [item for item in items if key(item) > after] if after else list(items)
    body: dict[str, Any] = {"value": [show(item) for item in rest[:most]]}
    if len(rest) > most:
        body["nextLink"] = _next(ask, key(rest[most - 1]))
    return Answer(200, body)


def _after(ask: Ask) -> str:
    try:
        return base64.b64decode(ask.query.get(TOKEN, "").encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError) as error:
        raise Refused(f"{TOKEN} is none that this service gave out.", status=400, code="InvalidField") from error


def _next(ask: Ask, last: str) -> str:
    token = base64.urlsafe_b64encode(last.encode()).decode()
    return f"{ask.base}{ask.path}?{urlencode({**ask.query, TOKEN: token}, safe='$')}"
