"""Listings: the containers of an account, the blobs of a container."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from xml.etree.ElementTree import Element

from attrs import frozen

from batchhvd.service.blobs.blob import TIER, shown
from batchhvd.service.blobs.call import BlobCall
from batchhvd.service.blobs.walk import Found, Walk
from batchhvd.service.storage.disk.names import following, names_in
from batchhvd.service.storage.disk.sidecar import Facts
from batchhvd.service.storage.disk.tag import etag
from batchhvd.service.storage.protocol import xml
from batchhvd.service.storage.protocol.listing import PAGE, asked, endpoint, included, mark, name_of
from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.request import Request, Target, is_name
from batchhvd.service.storage.protocol.response import Response, xml_response
from batchhvd.service.storage.shown_headers import http_date
from batchhvd.service.storage.whole import share_facts

# What a listing may include. Snapshots, versions, tags and deleted blobs can always be included: there are none.
_OF_BLOBS = ("metadata", "copy", "snapshots", "versions", "deleted", "deletedwithversions", "tags", "permissions",
             "immutabilitypolicy", "legalhold")  # fmt: skip
_OF_CONTAINERS = ("metadata", "deleted", "system")
_PROPERTIES = {
    "Content-Type": "content-type",
    "Content-Encoding": "content-encoding",
    "Content-Language": "content-language",
    "Content-MD5": "content-md5",
    "Cache-Control": "cache-control",
    "Content-Disposition": "content-disposition",
}
_COPY = {
    "CopyId": "x-ms-copy-id",
    "CopySource": "x-ms-copy-source",
    "CopyStatus": "x-ms-copy-status",
    "CopyProgress": "x-ms-copy-progress",
    "CopyCompletionTime": "x-ms-copy-completion-time",
}


@frozen
class Page:
    """A page of a listing of blobs.

    Attributes:
        items: blobs, and the common beginnings of names that the delimiter cuts.
        marker: where the next page begins, "" at the end.
    """

    items: list[Found | bytes]
    marker: str


def list_blobs(call: BlobCall) -> Response:
    """Lists the blobs of a container in the order of their names."""
    request = call.request
    share_facts(call.disk, request.target)
    include = _included(request, _OF_BLOBS)
    page = _page(call)
    items = (_prefix(item) if isinstance(item, bytes) else _blob(call, item, include) for item in page.items)
    echo = {**asked(request.query), "Delimiter": request.query.get("delimiter", "")}
    place = {"ServiceEndpoint": endpoint(request), "ContainerName": request.target.share}
    return xml_response(xml.listing("Blobs", items, page.marker, echo, place))


def _page(call: BlobCall) -> Page:
    query = call.request.query
    most = call.request.count("maxresults", PAGE, PAGE)
    prefix, delimiter = os.fsencode(query.get("prefix", "")), os.fsencode(query.get("delimiter", ""))
    walk = Walk(call.container, prefix, name_of(query.get("marker", "")))
    items: list[Found | bytes] = []
    for found in walk.blobs():
        cut = found.name.find(delimiter, len(prefix)) if delimiter else -1
        item = found.name[: cut + len(delimiter)] if cut >= 0 else found
        if found.name < walk.low:
            continue
        if len(items) == most:
            return Page(items, mark(os.fsdecode(item if isinstance(item, bytes) else item.name)))
        items.append(item)
        if isinstance(item, bytes):
            walk.low = item[:-1] + bytes((item[-1] + 1,))  # after all that begin so
    return Page(items, "")


def _prefix(name: bytes) -> Element:
    element = Element("BlobPrefix")
    xml.add_name(element, os.fsdecode(name))
    return element


def _blob(call: BlobCall, found: Found, include: list[str]) -> Element:
    target = call.request.target
    facts = call.disk.facts(target, found.path, found.about) if found.path else Facts()
    headers = shown(found.about, facts)
    element = Element("Blob")
    xml.add_name(element, os.fsdecode(found.name))
    told = {
        "Creation-Time": headers["x-ms-creation-time"],
        "Last-Modified": headers["last-modified"],
        "Etag": headers["etag"].strip('"'),
        "Content-Length": found.about.st_size,
        **{name: headers[header] for name, header in _PROPERTIES.items() if header in headers},
        "BlobType": "BlockBlob",
        "AccessTier": TIER,
        "AccessTierInferred": "true",
        "LeaseStatus": "unlocked",
        "LeaseState": "available",
        "ServerEncrypted": "true",
    }
    if "copy" in include:
        told |= {name: headers[header] for name, header in _COPY.items() if header in headers}
    xml.add_all(xml.add(element, "Properties"), told)
    return _with_metadata(element, facts, include)


def list_containers(call: BlobCall) -> Response:
    """Lists the containers of an account."""
    request = call.request
    include = _included(request, _OF_CONTAINERS)
    most = request.count("maxresults", PAGE, PAGE)
    found: list[tuple[str, os.stat_result, Facts]] = []
    marker = ""
    for each in _containers(call):
        if len(found) == most:
            marker = mark(found[-1][0])
            break
        found.append(each)
    items = (_container(name, about, facts, include) for name, about, facts in found)
    place = {"ServiceEndpoint": endpoint(request)}
    return xml_response(xml.listing("Containers", items, marker, asked(request.query), place))


def _containers(call: BlobCall) -> Iterator[tuple[str, os.stat_result, Facts]]:
    query, account = call.request.query, call.request.target.account
    try:
        names = names_in(call.disk.account(call.request.target))
    except FileNotFoundError:
        return
    for name in following(names, name_of(query.get("marker", "")), os.fsencode(query.get("prefix", ""))):
        target = Target(account, name, service="blob")
        if is_name(account, name) and stat.S_ISDIR(os.lstat(call.disk.share(target)).st_mode):
            yield name, *share_facts(call.disk, target)


def _container(name: str, about: os.stat_result, facts: Facts, include: list[str]) -> Element:
    element = Element("Container")
    xml.add(element, "Name", name)
    told: Mapping[str, object] = {
        "Last-Modified": http_date(about.st_mtime_ns),
        "Etag": etag(about, facts),
        "LeaseStatus": "unlocked",
        "LeaseState": "available",
        "HasImmutabilityPolicy": "false",
        "HasLegalHold": "false",
        "ImmutableStorageWithVersioningEnabled": "false",
    }
    xml.add_all(xml.add(element, "Properties"), told)
    return _with_metadata(element, facts, include)


def _with_metadata(element: Element, facts: Facts, include: list[str]) -> Element:
    if "metadata" in include:
        xml.add_all(xml.add(element, "Metadata"), xml.elements(facts.get("metadata", {})))
    return element


def _included(request: Request, known: tuple[str, ...]) -> list[str]:
    if "uncommittedblobs" in request.query.get("include", "").lower():
        raise refusal("NotImplemented", "include=uncommittedblobs: use Get Block List for one blob.")
    return included(request.query, known)
