"""Stored access policies: what links name by ``si``, as the documents that set and show them."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree.ElementTree import Element

from batchhvd.service.storage.protocol import xml
from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.sas import is_time

_MOST = 5  # policies of a share or container, as in Azure
_FIELDS = {"Start": "start", "Expiry": "expiry", "Permission": "permission"}


def document(policies: Sequence[dict[str, str]]) -> bytes:
    """Returns policies as a document."""
    root = Element("SignedIdentifiers")
    for policy in policies:
        fields = {name: policy[key] for name, key in _FIELDS.items() if policy.get(key)}
        xml.add_all(xml.add(root, "SignedIdentifier"), {"Id": policy["id"], "AccessPolicy": fields})
    return xml.document(root)


def read(pieces: Sequence[bytes], letters: str) -> list[dict[str, str]]:
    """Returns the policies of a document, none if there is no document; their permissions are some of the letters."""
    body = b"".join(pieces)
    found = [_policy(each, letters) for each in xml.read([body], "SignedIdentifiers")] if body else []
    if len(found) > _MOST or len({policy["id"] for policy in found}) < len(found):
        raise refusal("InvalidXmlDocument", f"There are at most {_MOST} policies, each with an id of its own.")
    return found


def _policy(element: Element, letters: str) -> dict[str, str]:
    found = {"id": element.findtext("Id") or ""}
    if not 1 <= len(found["id"]) <= 64:
        raise refusal("InvalidXmlDocument", "A policy's Id must have 1 to 64 characters.")
    for name, key in _FIELDS.items():
        text = element.findtext(f"AccessPolicy/{name}") or ""
        if text:
            _check(name, text, letters)
            found[key] = text
    return found


def _check(name: str, text: str, letters: str) -> None:
    if name == "Permission" and not set(text) <= set(letters):
        raise refusal("InvalidXmlDocument", f"A policy's permission has letters of {letters}, not {text[:20]!r}.")
    if name != "Permission" and not is_time(text):
        raise refusal("InvalidXmlDocument", f"A policy's {name} must be a time in ISO 8601, UTC, not {text[:40]!r}.")
