"""The XML documents of the file service, written and read with the standard library's element trees.

Text is always text: what clients and jobs have named can never become markup.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote
from xml.etree.ElementTree import Element, ParseError, SubElement, fromstring, tostring

from batchhvd.service.storage.protocol.refusal import refusal

# What XML 1.0 cannot hold, what its readers would change (line ends), and bytes that were not UTF-8.
_UNWRITABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_ELEMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_HEAD = b'<?xml version="1.0" encoding="utf-8"?>'
_DOCUMENT_BYTES = 1 << 16  # of a document that a request brings


def document(root: Element) -> bytes:
    """Returns a tree as a document."""
    text: str = tostring(root, encoding="unicode")
    return _HEAD + text.encode()


def add(parent: Element, name: str, text: object = None) -> Element:
    """Adds an element with a text, in which U+FFFD stands for characters that XML cannot hold."""
    element = SubElement(parent, name)
    if type(text) is int:
        element.text = str(text)
    elif text is not None:
        element.text = _UNWRITABLE.sub("\ufffd", str(text))
    return element


def add_all(parent: Element, values: Mapping[str, object]) -> Element:
    """Adds an element for each name and value; a dictionary becomes an element that holds its own."""
    for name, value in values.items():
        if type(value) is dict:
            add_all(add(parent, name), value)
        else:
            add(parent, name, value)
    return parent


def elements(values: Mapping[str, str]) -> dict[str, str]:
    """Returns those values whose names elements can have; an earlier version took metadata under any name."""
    return {name: value for name, value in values.items() if _ELEMENT.fullmatch(name)}


def tree(name: str, values: Mapping[str, object]) -> bytes:
    """Returns a document of names and values."""
    return document(add_all(Element(name), values))


def read(pieces: Sequence[bytes], root: str, most: int = _DOCUMENT_BYTES) -> Element:
    """Returns the document that a request brings; refuses one that is not XML, or has another root, or is too large."""
    body = b"".join(pieces)
    if len(body) > most:
        raise refusal("InvalidXmlDocument", f"It has more than {most >> 10} KiB.")
    if b"<!" in body.replace(b"<!--", b""):
        raise refusal("InvalidXmlDocument", "It may declare no document type and no entities.")
    try:
        found = fromstring(body)
    except (ParseError, ValueError, LookupError) as error:  # LookupError: an encoding that nobody knows
        raise refusal("InvalidXmlDocument", f"It is not well formed: {error}.") from None
    if found.tag != root:
        raise refusal("InvalidXmlDocument", f"Its root must be {root}.")
    return found


def error_document(code: str, message: str) -> bytes:
    """Returns the body of an error."""
    told = {"Code": code, "Message": message}
    if code == "AuthenticationFailed":
        told["AuthenticationErrorDetail"] = message
    return tree("Error", told)


def add_name(parent: Element, name: str) -> None:
    """Adds a file's name, percent-encoded if XML cannot hold it."""
    element = SubElement(parent, "Name")
    if _UNWRITABLE.search(name):
        element.set("Encoded", "true")
        element.text = quote(os.fsencode(name), safe="")
    else:
        element.text = name


def entry(
    kind: str, name: str, file_id: object, properties: Mapping[str, object], tail: Mapping[str, object]
) -> Element:
    """Returns one entry of a listing.

    Args:
        kind: ``Directory`` or ``File``.
        name: its name.
        file_id: its id.
        properties: what stands in its properties.
        tail: what stands after them.
    """
    element = Element(kind)
    add_name(element, name)
    add(element, "FileId", file_id)
    add_all(add(element, "Properties"), properties)
    return add_all(element, tail)


def share(
    name: str, head: Mapping[str, object], properties: Mapping[str, object], tail: Mapping[str, object]
) -> Element:
    """Returns one share of an account's listing: its name, more that names it, its properties, its metadata."""
    element = Element("Share")
    add_all(element, {"Name": name, **head})
    add_all(add(element, "Properties"), properties)
    return add_all(element, tail)


def listing(
    around: str,
    items: Iterable[Element],
    marker: str,
    echo: Mapping[str, str],
    place: Mapping[str, str],
    rest: Mapping[str, object] | None = None,
) -> bytes:
    """Returns a page of a listing.

    Args:
        around: the element that holds the items, ``Entries`` or ``Shares``.
        items: the items' elements.
        marker: where the next page begins, or "" at the end.
        echo: what the request asked for, repeated by element name.
        place: attributes of the root element.
        rest: what stands at the end.
    """
    root = Element("EnumerationResults", {name: _UNWRITABLE.sub("\ufffd", value) for name, value in place.items()})
    add_all(root, {name: value for name, value in echo.items() if value})
    add(root, around).extend(items)
    add(root, "NextMarker", marker)
    return document(add_all(root, rest or {}))


def ranges(found: Iterable[tuple[str, int, int]], marker: str = "") -> bytes:
    """Returns ranges of bytes, both ends included; each is a ``Range`` or, in a comparison, a ``ClearRange``."""
    root = Element("Ranges")
    for kind, first, last in found:
        add_all(add(root, kind), {"Start": first, "End": last})
    if marker:
        add(root, "NextMarker", marker)
    return document(root)
