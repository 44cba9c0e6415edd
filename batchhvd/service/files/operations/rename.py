"""The operation that gives a file or directory another path."""

from __future__ import annotations

import os
import stat

from batchhvd.service.files.disk import tree
from batchhvd.service.files.disk.disk import Disk
from batchhvd.service.files.disk.sidecar import Facts
from batchhvd.service.files.disk.tree import Spot
from batchhvd.service.files.operations.condition import check_write
from batchhvd.service.files.operations.file import existing
from batchhvd.service.files.operations.properties import content, described
from batchhvd.service.files.protocol.refusal import refusal
from batchhvd.service.files.protocol.request import Request
from batchhvd.service.files.protocol.response import Response


def rename(disk: Disk, request: Request) -> Response:
    """Gives a file or directory another path in its share, with all that is noted of it."""
    source, target = request.origin(), request.target
    wants_directory = request.query.get("restype") == "directory"
    if (source.account, source.share) != (target.account, target.share) or not target.names:
        raise refusal("InvalidHeaderValue", "A file or directory can only be renamed within its share.")
    share = disk.share(target)
    with tree.spot(share, source.names) as old, tree.spot(share, target.names) as new:
        if stat.S_ISDIR(old.stat().st_mode) != wants_directory:
            raise refusal("ResourceNotFound" if wants_directory else "ResourceTypeMismatch")
        _check_room(request, old, new)
        os.rename(old.name, new.name, src_dir_fd=old.fd, dst_dir_fd=new.fd)
        disk.move(target, old.path, new.path)
        facts = _renamed(disk, request, new)
        return Response(200, described(new.stat(), facts))


def _check_room(request: Request, old: Spot, new: Spot) -> None:
    if new.names[: len(old.names)] == old.names and new.names != old.names:
        raise refusal("InvalidHeaderValue", "A directory cannot move into itself.")
    there = existing(new)
    check_write(request, there)
    if there is None:
        return
    if stat.S_ISDIR(there.st_mode) or stat.S_ISDIR(old.stat().st_mode):
        raise refusal("ResourceAlreadyExists")
    if request.header("x-ms-file-rename-replace-if-exists").lower() != "true":
        raise refusal(
            "ResourceAlreadyExists",
            "Send x-ms-file-rename-replace-if-exists: true to replace it, or choose another name.",
        )


def _renamed(disk: Disk, request: Request, place: Spot) -> Facts:
    about = place.stat()
    facts = disk.facts(request.target, place.path, about)
    if request.metadata():
        facts["metadata"] = request.metadata()
    if content(request):
        facts["content"] = {**facts.get("content", {}), **content(request)}
    disk.note(request.target, place.path, about, facts)
    return facts
