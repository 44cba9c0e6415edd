"""Operations that list: an account's shares, and what is directly in a directory."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree.ElementTree import Element

from attrs import frozen

from batchhvd.errors import ServiceError
from batchhvd.service.files.operations.lease import lease_words
from batchhvd.service.files.operations.offer import ELEMENTS, QUOTA, tier, told
from batchhvd.service.files.operations.properties import attributes, timestamps
from batchhvd.service.files.operations.restore import Grave, graves
from batchhvd.service.files.operations.snapshot import snapshots_of
from batchhvd.service.files.protocol.permission import DEFAULT_KEY
from batchhvd.service.storage.disk import names, tree
from batchhvd.service.storage.disk.disk import Disk
from batchhvd.service.storage.disk.sidecar import Facts, Rows, same_inode, stored
from batchhvd.service.storage.disk.tag import etag, file_id
from batchhvd.service.storage.disk.tree import Spot
from batchhvd.service.storage.protocol import xml
from batchhvd.service.storage.protocol.listing import PAGE, asked, endpoint, included, mark, name_of
from batchhvd.service.storage.protocol.request import Request, Target
from batchhvd.service.storage.protocol.response import Response, xml_response
from batchhvd.service.storage.shown_headers import http_date
from batchhvd.service.storage.whole import share_facts

_OF_SHARES = ("metadata", "snapshots", "deleted")
_OF_ENTRIES = ("timestamps", "etag", "attributes", "permissionkey")

Make = Callable[[str], Element | None]
"""Returns the element of a name of a listing, or None if there is nothing to show."""


def list_shares(disk: Disk, request: Request) -> Response:
    """Lists an account's shares in the order of their names, each with its snapshots if they are wanted."""
    account, include = disk.account(request.target), included(request.query, _OF_SHARES)
    found: dict[str, Target | Grave] = {}
    for name in os.listdir(account) if account.is_dir() else []:
        target = found[name] = Target(request.target.account, name)
        if "snapshots" in include:
            # A name's snapshots follow it, and none comes before a name that is longer.
            found |= {f"{name}\0{each.snapshot}": each for each in snapshots_of(disk, target)}
    if "deleted" in include:
        found |= {f"{grave.target.share}\1{grave.version}": grave for grave in graves(disk, request.target.account)}
    ordered = names.in_order([os.fsencode(name) for name in found])
    page, marker = _page(request, ordered, lambda name: _share_of(disk, found[name], include))
    place = {"ServiceEndpoint": endpoint(request)}
    return xml_response(xml.listing("Shares", page, marker, asked(request.query), place))


def list_entries(disk: Disk, request: Request) -> Response:
    """Lists what is directly in a directory."""
    include = included(request.query, _OF_ENTRIES)
    with tree.directory(disk.share(request.target), request.target.names) as place:
        wants_notes = include or request.target.snapshot
        notes = disk.sidecar.children(disk.key(request.target), place.path) if wants_notes else {}
        shown = _Shown(disk.share(request.target), place, include, notes)
        page, marker = _page(request, names.names_in(place.fd), shown.element)
        where = {"ServiceEndpoint": endpoint(request), "ShareName": request.target.share}
        where["DirectoryPath"] = request.target.path
        if request.target.snapshot:
            where["ShareSnapshot"] = request.target.snapshot
        directory = {"DirectoryId": place.stat().st_ino}
    return xml_response(xml.listing("Entries", page, marker, asked(request.query), where, directory))


def _page(request: Request, ordered: Sequence[bytes], make: Make) -> tuple[list[Element], str]:
    """Returns one page of elements and where the next one begins.

    What went away meanwhile, and what is not shown at all, takes no place on a page, so that none with a next one is
    empty.
    """
    most = request.count("maxresults", PAGE, PAGE)
    page: list[Element] = []
    last = ""
    begin, prefix = name_of(request.query.get("marker", "")), os.fsencode(request.query.get("prefix", ""))
    for name in names.following(ordered, begin, prefix):
        element = make(name)
        if element is None:
            continue
        if len(page) == most:
            return page, mark(last)
        page.append(element)
        last = name
    return page, ""


def _share_of(disk: Disk, found: Target | Grave, include: Sequence[str]) -> Element | None:
    if isinstance(found, Grave):
        more = {
            "DeletedTime": http_date(int(found.facts.get("deleted", 0.0) * 1e9)),
            "RemainingRetentionDays": found.days_left(disk),
        }
        head = {"Deleted": "true", "Version": found.version}
        return _share(disk, found.target, head, found.about, found.facts, include, more)
    try:
        about, facts = share_facts(disk, found)
    except ServiceError:  # deleted since the names were read
        return None
    head = {"Snapshot": found.snapshot} if found.snapshot else {}
    return _share(disk, found, head, about, facts, include, {})


def _share(
    disk: Disk,
    target: Target,
    head: dict[str, str],
    about: os.stat_result,
    facts: Facts,
    include: Sequence[str],
    more: dict[str, object],
) -> Element:
    shown: dict[str, object] = {
        "Last-Modified": http_date(about.st_mtime_ns),
        "Etag": etag(about, facts),
        "Quota": facts.get("quota") or QUOTA,
        "AccessTier": tier(disk, target.account, facts),
        "AccessTierChangeTime": http_date(int((facts.get("tiered") or about.st_mtime) * 1e9)),
        **{f"Lease{word.capitalize()}": value for word, value in lease_words(facts, disk.now()).items()},
        **{ELEMENTS[name]: value for name, value in told(disk, target.account, facts, about.st_mtime).items()},
        **more,
    }
    metadata = xml.elements(facts.get("metadata", {}))
    return xml.share(target.share, head, shown, {"Metadata": metadata} if "metadata" in include and metadata else {})


@frozen
class _Shown:
    """How the entries of one directory are shown."""

    share: Path
    place: Spot
    include: Sequence[str]
    notes: Rows

    def element(self, name: str) -> Element | None:
        """Returns an entry's element, or None if it is neither a file nor a directory.

        A link shows as the file that it leads to. One that leads to a directory is left out: otherwise a client that
        copies or deletes a tree would walk in circles, or empty the directory that the link names.
        """
        about, is_link = tree.look(self.share, self.place, name)
        if about is None or (stat.S_ISDIR(about.st_mode) and is_link):
            return None
        facts = self._facts(name, about)
        kind = "Directory" if stat.S_ISDIR(about.st_mode) else "File"
        told: dict[str, object] = {"Content-Length": about.st_size} if kind == "File" else {}
        if "timestamps" in self.include:
            told |= {**timestamps(about, facts), "Last-Modified": http_date(about.st_mtime_ns)}
        if "etag" in self.include:
            told["Etag"] = etag(about, facts)
        return xml.entry(kind, name, file_id(about, facts), told, self._rest(about, facts))

    def _rest(self, about: os.stat_result, facts: Facts) -> dict[str, object]:
        rest: dict[str, object] = {}
        if "attributes" in self.include:
            rest["Attributes"] = attributes(about, facts)
        if "permissionkey" in self.include:
            rest["PermissionKey"] = facts.get("permission") or DEFAULT_KEY
        return rest

    def _facts(self, name: str, about: os.stat_result) -> Facts:
        noted = self.notes.get(stored("/".join([*self.place.names, name]))) if self.notes else None
        return noted[1] if noted and same_inode(noted[0], about.st_ino) else Facts()
