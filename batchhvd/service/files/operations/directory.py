"""Operations on directories."""

from __future__ import annotations

import os
import stat
from email.utils import formatdate

from batchhvd.service.files.disk import names, tree
from batchhvd.service.files.disk.disk import Disk
from batchhvd.service.files.disk.sidecar import Facts
from batchhvd.service.files.disk.tree import Spot
from batchhvd.service.files.operations.properties import (
    attributes,
    described,
    etag,
    metadata,
    time_in,
    timestamps,
    written,
)
from batchhvd.service.files.protocol import xml
from batchhvd.service.files.protocol.listing import PAGE, asked, endpoint, mark, name_of
from batchhvd.service.files.protocol.refusal import refusal
from batchhvd.service.files.protocol.request import Request
from batchhvd.service.files.protocol.response import Response, xml_response


def create(disk: Disk, request: Request) -> Response:
    """Creates one directory; its parent must exist."""
    if not request.target.names:
        raise refusal("ResourceAlreadyExists", "Every share has its root.")
    facts = Facts(metadata=request.metadata(), created=time_in(request, "x-ms-file-creation-time"))
    with tree.spot(disk.share(request.target), request.target.names) as place:
        os.mkdir(place.name, dir_fd=place.fd)
        about = place.stat()
        disk.note(request.target, place.path, about, facts)
    return Response(201, described(about, facts))


def properties(disk: Disk, request: Request) -> Response:
    """Returns a directory's times and metadata."""
    with tree.directory(disk.share(request.target), request.target.names) as place:
        about = place.stat()
        facts = disk.facts(request.target, place.path, about)
    return Response(200, {**described(about, facts), **metadata(facts)})


def set_properties(disk: Disk, request: Request) -> Response:
    """Sets a directory's times."""
    with tree.directory(disk.share(request.target), request.target.names) as place:
        about = place.stat()
        made, changed = time_in(request, "x-ms-file-creation-time"), time_in(request, "x-ms-file-last-write-time")
        facts = disk.facts(request.target, place.path, about)
        if made is not None:
            facts["created"] = made
            disk.note(request.target, place.path, about, facts)
        if changed is not None:
            os.utime(place.fd, ns=(about.st_atime_ns, changed))
        about = place.stat()
    return Response(200, described(about, facts))


def set_metadata(disk: Disk, request: Request) -> Response:
    """Replaces a directory's metadata."""
    with tree.directory(disk.share(request.target), request.target.names) as place:
        about = place.stat()
        facts = disk.facts(request.target, place.path, about)
        disk.note(request.target, place.path, about, {**facts, "metadata": request.metadata()})
    return Response(200, written(about))


def delete(disk: Disk, request: Request) -> Response:
    """Deletes an empty directory."""
    if not request.target.names:
        raise refusal("ResourceTypeMismatch", "The root goes with its share.")
    with tree.spot(disk.share(request.target), request.target.names) as place:
        if not stat.S_ISDIR(place.stat().st_mode):
            raise refusal("ResourceNotFound", "There is a file of this name.")
        os.rmdir(place.name, dir_fd=place.fd)
        disk.forget(request.target, place.path)
    return Response(202)


def list_entries(disk: Disk, request: Request) -> Response:
    """Lists what is directly in a directory."""
    query, most = request.query, request.count("maxresults", PAGE, PAGE)
    with tree.directory(disk.share(request.target), request.target.names) as place:
        last, prefix = name_of(query.get("marker", "")), os.fsencode(query.get("prefix", ""))
        found = names.after(names.names_in(place.fd), last, prefix, most + 1)
        items = [_item(disk, request, place, name) for name in found[:most]]
    marker = mark(found[most - 1]) if len(found) > most else ""
    return xml_response(xml.listing("Entries", items, marker, asked(query), **_place(request)))


def _item(disk: Disk, request: Request, place: Spot, name: str) -> str:
    """Returns an entry's element, or "" if it is neither a file nor a directory.

    A link shows as the file that it leads to. One that leads to a directory is left out: otherwise a client that copies
    or deletes a tree would walk in circles, or empty the directory that the link names.
    """
    about, is_link = tree.look(disk.share(request.target), place, name)
    if about is None or (stat.S_ISDIR(about.st_mode) and is_link):
        return ""
    include = request.query.get("include", "").lower().split(",")
    kind = "Directory" if stat.S_ISDIR(about.st_mode) else "File"
    told: dict[str, object] = {"Content-Length": about.st_size} if kind == "File" else {}
    if "timestamps" in include:
        facts = disk.facts(request.target, "/".join([*place.names, name]), about)
        told |= {**timestamps(about, facts), "Last-Modified": formatdate(about.st_mtime, usegmt=True)}
    if "etag" in include:
        told["Etag"] = etag(about)
    return xml.entry(kind, name, about.st_ino, told, attributes(about) if "attributes" in include else "")


def _place(request: Request) -> dict[str, str]:
    target = request.target
    return {"ServiceEndpoint": endpoint(request), "ShareName": target.share, "DirectoryPath": target.path}
