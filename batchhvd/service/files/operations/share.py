"""Operations on shares."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from email.utils import formatdate
from pathlib import Path

from batchhvd.errors import ServiceError
from batchhvd.service.files.disk import names
from batchhvd.service.files.disk.disk import Disk
from batchhvd.service.files.disk.sidecar import Facts
from batchhvd.service.files.operations.properties import etag, metadata, written
from batchhvd.service.files.protocol import xml
from batchhvd.service.files.protocol.listing import PAGE, asked, endpoint, mark, name_of
from batchhvd.service.files.protocol.refusal import refusal
from batchhvd.service.files.protocol.request import Request, Target
from batchhvd.service.files.protocol.response import Response, xml_response

_QUOTA = 5120  # GiB, Azure's default
_MOST_QUOTA = 102400


def list_shares(disk: Disk, request: Request) -> Response:
    """Lists an account's shares in the order of their names."""
    query, account = request.query, disk.account(request.target)
    last, prefix = name_of(query.get("marker", "")), os.fsencode(query.get("prefix", ""))
    most = request.count("maxresults", PAGE, PAGE)
    found = names.after(names.names_in(account) if account.is_dir() else [], last, prefix, most + 1)
    items = [_item(disk, Target(request.target.account, name), query) for name in found[:most]]
    marker = mark(found[most - 1]) if len(found) > most else ""
    return xml_response(xml.listing("Shares", items, marker, asked(query), ServiceEndpoint=endpoint(request)))


def create(disk: Disk, request: Request) -> Response:
    """Creates a share."""
    share, facts = disk.share(request.target), Facts(metadata=request.metadata(), quota=_quota(request))
    share.parent.mkdir(parents=True, exist_ok=True)
    try:
        share.mkdir()
    except FileExistsError:
        raise refusal("ShareAlreadyExists") from None
    about = share.stat()
    disk.note(request.target, "", about, facts)
    return Response(201, written(about))


def properties(disk: Disk, request: Request) -> Response:
    """Returns a share's quota and metadata."""
    about, facts = _share(disk, request.target)
    return Response(200, {**written(about), **metadata(facts), "x-ms-share-quota": _told(facts)})


def set_properties(disk: Disk, request: Request) -> Response:
    """Sets a share's quota."""
    about, facts = _share(disk, request.target)
    disk.note(request.target, "", about, {**facts, "quota": _quota(request) or facts.get("quota")})
    return Response(200, written(about))


def set_metadata(disk: Disk, request: Request) -> Response:
    """Replaces a share's metadata."""
    about, facts = _share(disk, request.target)
    disk.note(request.target, "", about, {**facts, "metadata": request.metadata()})
    return Response(200, written(about))


def delete(disk: Disk, request: Request) -> Response:
    """Deletes a share with all that is in it."""
    disk.remove_share(request.target)
    return Response(202)


def stats(disk: Disk, request: Request) -> Response:
    """Returns how much disk space a share takes."""
    about, _ = _share(disk, request.target)
    return xml_response(xml.share_stats(_usage(disk.share(request.target))), written(about))


def _share(disk: Disk, target: Target) -> tuple[os.stat_result, Facts]:
    try:
        about = os.lstat(disk.share(target))
    except FileNotFoundError:
        raise refusal("ShareNotFound") from None
    if not stat.S_ISDIR(about.st_mode):
        raise refusal("ShareNotFound")
    return about, disk.facts(target, "", about)


def _item(disk: Disk, target: Target, query: Mapping[str, str]) -> str:
    try:
        about, facts = _share(disk, target)
    except ServiceError:  # deleted since the names were read
        return ""
    told = {"Last-Modified": formatdate(about.st_mtime, usegmt=True), "Etag": etag(about), "Quota": _told(facts)}
    return xml.share(target.share, told, facts.get("metadata", {}) if "metadata" in query.get("include", "") else {})


def _told(facts: Facts) -> str:
    return str(facts.get("quota", _QUOTA))


def _quota(request: Request) -> int | None:
    """Returns the quota that a request sets, in GiB, or None if it sets none."""
    given = "x-ms-share-quota" in request.headers
    return request.number("x-ms-share-quota", least=1, most=_MOST_QUOTA) if given else None


def _usage(folder: Path) -> int:
    """Returns how many bytes a tree takes on the disk; links are not followed."""
    size = 0
    for _, _, files, fd in os.fwalk(folder):
        for name in files:
            with suppress(FileNotFoundError):  # a job has deleted it meanwhile
                size += os.stat(name, dir_fd=fd, follow_symlinks=False).st_blocks * 512
    return size
