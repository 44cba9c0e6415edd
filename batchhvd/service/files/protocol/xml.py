"""The XML documents of the file service."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

# What XML 1.0 cannot hold, what its readers would change (line ends), and bytes that were not UTF-8.
_UNWRITABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_HEAD = '<?xml version="1.0" encoding="utf-8"?>'


def error_document(code: str, message: str) -> str:
    """Returns the body of an error."""
    return f"{_HEAD}<Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>"


def name_element(name: str) -> str:
    """Returns a file's name as an element, percent-encoded if XML cannot hold it."""
    if _UNWRITABLE.search(name):
        return f'<Name Encoded="true">{quote(os.fsencode(name), safe="")}</Name>'
    return f"<Name>{escape(name)}</Name>"


def entry(kind: str, name: str, inode: int, properties: Mapping[str, object], attributes: str = "") -> str:
    """Returns one entry of a listing; ``kind`` is ``Directory`` or ``File``."""
    told = f"{_properties(properties)}{attributes and f'<Attributes>{attributes}</Attributes>'}"
    return f"<{kind}>{name_element(name)}<FileId>{inode}</FileId>{told}</{kind}>"


def share(name: str, properties: Mapping[str, object], metadata: Mapping[str, str]) -> str:
    """Returns one share of an account's listing."""
    known = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in metadata.items())
    return f"<Share><Name>{name}</Name>{_properties(properties)}{known and f'<Metadata>{known}</Metadata>'}</Share>"


def listing(around: str, items: Sequence[str], marker: str, echo: Mapping[str, str], **place: str) -> str:
    """Returns a page of a listing.

    Args:
        around: the element that holds the items, ``Entries`` or ``Shares``.
        items: the items' elements.
        marker: where the next page begins, or "" at the end.
        echo: what the request asked for, repeated by element name.
        place: attributes of the root element.
    """
    attributes = "".join(f" {name}={quoteattr(_clean(value))}" for name, value in place.items())
    asked = "".join(f"<{name}>{escape(_clean(value))}</{name}>" for name, value in echo.items() if value)
    inside = f"<{around}>{''.join(items)}</{around}><NextMarker>{marker}</NextMarker>"
    return f"{_HEAD}<EnumerationResults{attributes}>{asked}{inside}</EnumerationResults>"


def ranges(stretches: Iterable[tuple[int, int]]) -> str:
    """Returns ranges of bytes, both ends included."""
    items = "".join(f"<Range><Start>{first}</Start><End>{last}</End></Range>" for first, last in stretches)
    return f"{_HEAD}<Ranges>{items}</Ranges>"


def share_stats(size: int) -> str:
    """Returns how many bytes a share takes."""
    return f"{_HEAD}<ShareStats><ShareUsageBytes>{size}</ShareUsageBytes></ShareStats>"


def no_handles() -> str:
    """Returns the empty list of open handles: this service keeps no files open."""
    return f"{_HEAD}<EnumerationResults><Entries /><NextMarker /></EnumerationResults>"


def service_properties() -> str:
    """Returns the account's settings for files: no metrics, no rules for browsers."""
    off = "<Version>1.0</Version><Enabled>false</Enabled><RetentionPolicy><Enabled>false</Enabled></RetentionPolicy>"
    metrics = f"<HourMetrics>{off}</HourMetrics><MinuteMetrics>{off}</MinuteMetrics>"
    return f"{_HEAD}<StorageServiceProperties>{metrics}<Cors /></StorageServiceProperties>"


def _properties(properties: Mapping[str, object]) -> str:
    return f"<Properties>{''.join(f'<{name}>{value}</{name}>' for name, value in properties.items())}</Properties>"


def _clean(text: str) -> str:
    return _UNWRITABLE.sub("\ufffd", text)
