"""Lists in pages: at most ``maxresults`` items, and the link to the next page."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from typing import TypeVar
from urllib.parse import urlencode

from batchhvd.errors import BadRequestError
from batchhvd.service.http.exchange import Answer, Ask
from batchhvd.service.store.records import Document, Record, StoredText

TOKEN = "$skiptoken"
T = TypeVar("T")


def records(
    ask: Ask,
    fetch: Callable[[int, int], Sequence[Record]],
    show: Callable[[Record], object] = lambda record: record.document,
) -> Answer:
    """Returns one page of resources in the order they were made; what is made meanwhile comes on the last page.

    Args:
        ask: the request.
        fetch: returns the resources with numbers above its first argument, as many as its second one at most.
        show: what of a resource the page holds.

    Raises:
        BadRequestError: 400, the query's token or number is invalid.
    """
    most, after = _most(ask), _number(ask)
    found = fetch(after, most + 1)
    return _page(ask, found, most, lambda record: str(record.number), show)


def stored(ask: Ask, fetch: Callable[[int, int], Sequence[StoredText]]) -> Answer:
    """Returns one page of resources like ``records``; the documents go out as they are stored."""
    most, after = _most(ask), _number(ask)
    found = fetch(after, most + 1)
    body = f'{{"value": [{", ".join(text for _, text in found[:most])}]'
    if len(found) > most:
        body += f', "nextLink": {json.dumps(_next(ask, str(found[most - 1][0])))}'
    return Answer(200, f"{body}}}".encode())


def page(ask: Ask, items: Sequence[T], key: Callable[[T], str], show: Callable[[T], object]) -> Answer:
    """Returns one page of items that are sorted by ``key``.

    Raises:
        BadRequestError: 400, the query's token or number is invalid.
    """
    most, after = _most(ask), _after(ask)
    return _page(ask, [item for item in items if not after or key(item) > after], most, key, show)


def found(
    ask: Ask, fetch: Callable[[str, int], Sequence[T]], key: Callable[[T], str], show: Callable[[T], object]
) -> Answer:
    """Returns one page of items that are found in the order of their keys.

    Args:
        ask: the request.
        fetch: returns the items whose keys come after its first argument, as many as its second one at most.
        key: what a page begins after.
        show: what of an item the page holds.

    Raises:
        BadRequestError: 400, the query's token or number is invalid.
    """
    most, after = _most(ask), _after(ask)
    return _page(ask, fetch(after, most + 1), most, key, show)


def _page(ask: Ask, rest: Sequence[T], most: int, key: Callable[[T], str], show: Callable[[T], object]) -> Answer:
    body: Document = {"value": [show(item) for item in rest[:most]]}
    if len(rest) > most:
        body["nextLink"] = _next(ask, key(rest[most - 1]))
    return Answer(200, body)


def _most(ask: Ask) -> int:
    text = ask.query.get("maxresults", "1000")
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:5]) <= 1000):
        raise BadRequestError("maxresults must be from 1 to 1000.", code="InvalidField", target="maxresults")
    return int(text)


def _number(ask: Ask) -> int:
    after = _after(ask)
    if after and not (after.isascii() and after.isdigit() and len(after) < 19):
        raise _no_token()
    return int(after or 0)


def _after(ask: Ask) -> str:
    try:
        return base64.b64decode(ask.query.get(TOKEN, "").encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError) as error:
        raise _no_token() from error


def _no_token() -> BadRequestError:
    return BadRequestError(
        f"{TOKEN} was not given out by this service; follow nextLink as it is.", code="InvalidField", target=TOKEN
    )


def _next(ask: Ask, last: str) -> str:
    token = base64.urlsafe_b64encode(last.encode()).decode()
    return f"{ask.base}{ask.path}?{urlencode({**ask.query, TOKEN: token}, safe='$')}"
