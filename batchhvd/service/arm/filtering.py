"""``$filter`` of Resource Manager's lists: what narrows a list is heeded or refused, never dropped.

A script may delete what it lists: a filter that is ignored would delete other groups' data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from batchhvd.errors import BadRequestError
from batchhvd.service.http.exchange import Ask
from batchhvd.service.store.records import Record

Fetch = Callable[[int, int], Sequence[Record]]

FILTER = "$filter"
NARROWING = (FILTER, "$top", "$skip", "$search")
"""The options by which a request narrows a list."""
_SLICE = 1000  # records that are read at once
_CLAUSE = re.compile(r"\s*(\w+)\s+eq\s+'((?:[^']|'')*)'\s*(?:\band\b|$)", re.IGNORECASE)
_NAMES = ("name", "location", "resourcegroup", "resourcetype", "tagname", "tagvalue")


def narrowed(ask: Ask, fetch: Fetch) -> Fetch:
    """Returns what fetches only the records that a request asks for.

    Raises:
        BadRequestError: 400, the filter is not understood.
    """
    wanted = _read(next((value for name, value in ask.query.items() if name.lower() == FILTER), ""))
    return _only(fetch, wanted) if wanted else fetch


def _only(fetch: Fetch, wanted: Mapping[str, str]) -> Fetch:
    def only(after: int, most: int) -> Sequence[Record]:
        found: list[Record] = []
        while len(found) < most and (some := fetch(after, _SLICE)):
            found += [record for record in some if _matches(record, wanted)]
            after = some[-1].number
        return found[:most]

    return only


def _read(text: str) -> dict[str, str]:
    wanted: dict[str, str] = {}
    place = 0
    while place < len(text.rstrip()):
        found = _CLAUSE.match(text, place)
        if found is None or found[1].lower() not in _NAMES:
            raise BadRequestError(
                f"$filter is understood only as NAME eq 'VALUE', joined by 'and', with the names {', '.join(_NAMES)}; "
                f"it is: {text[:100]}",
                code="InvalidFilterInQueryString",
                target="$filter",
            )
        name, value = found[1].lower(), found[2].replace("''", "'")
        value = value.replace(" ", "") if name == "location" else value
        if wanted.setdefault(name, value) != value:
            raise BadRequestError(f"$filter names {name} twice.", code="InvalidFilterInQueryString", target=FILTER)
        place = found.end()
    return wanted


def _matches(record: Record, wanted: Mapping[str, str]) -> bool:
    document, words = record.document, record.id.split("/")
    facts = {"name": str(document.get("name", "")), "location": str(document.get("location", "")).replace(" ", "")}
    facts |= {"resourcegroup": words[4] if len(words) > 4 else "", "resourcetype": str(document.get("type", ""))}
    tags: dict[str, str] = {name.lower(): value for name, value in document.get("tags", {}).items()}
    if "tagname" in wanted:
        name, value = wanted["tagname"].lower(), wanted.get("tagvalue")
        if name not in tags or (value is not None and tags[name] != value):
            return False
    elif "tagvalue" in wanted and wanted["tagvalue"] not in tags.values():
        return False
    plain = ((name, value) for name, value in wanted.items() if name in facts)
    return all(facts[name].lower() == value.lower() for name, value in plain)
