"""The operation that gives a file or directory another path."""

from __future__ import annotations

import os
import stat

from batchhvd.service.files.operations.file import existing
from batchhvd.service.files.operations.lease import check_lease
from batchhvd.service.files.operations.properties import content, described
from batchhvd.service.files.operations.smb import is_read_only, note_smb, said_change, written_at
from batchhvd.service.storage.condition import check_write
from batchhvd.service.storage.disk import tree
from batchhvd.service.storage.disk.content import stamp
from batchhvd.service.storage.disk.disk import Disk
from batchhvd.service.storage.disk.sidecar import Facts
from batchhvd.service.storage.disk.tree import Spot
from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.request import Request
from batchhvd.service.storage.protocol.response import Response

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def rename(disk: Disk, request: Request) -> Response:
    """Gives a file or directory another path in its share, with all that is noted of it."""
    source, target = request.origin(), request.target
    wants_directory = request.query.get("restype") == "directory"
    if (source.account, source.share) != (target.account, target.share) or not target.names or source.snapshot:
        raise refusal("InvalidHeaderValue", "A file or directory can only be renamed within its share.")
    share = disk.share(target)
    with tree.spot(share, source.names) as old, tree.spot(share, target.names) as new, disk.noting():
        about = old.stat()
        if stat.S_ISDIR(about.st_mode) != wants_directory:
            raise refusal("ResourceNotFound" if wants_directory else "ResourceTypeMismatch")
        facts = disk.facts(target, old.path, about)
        check_lease(request, facts, disk.now(), needed=True, header="x-ms-source-lease-id")
        _check_free(disk, request, old, new)
        _note(disk, request, facts)
        _put(old, new, wants_directory)
        disk.move(target, old.path, new.path)
        return Response(200, _described(disk, request, new, facts))


def _check_free(disk: Disk, request: Request, old: Spot, new: Spot) -> None:
    if new.names[: len(old.names)] == old.names and new.names != old.names:
        raise refusal("InvalidHeaderValue", "A directory cannot move into itself.")
    there = existing(new)
    check_write(request, there)
    if there is None:
        return
    if stat.S_ISDIR(there.st_mode):
        raise refusal("ResourceAlreadyExists")
    if request.header("x-ms-file-rename-replace-if-exists").lower() != "true":
        raise refusal(
            "ResourceAlreadyExists",
            "Send x-ms-file-rename-replace-if-exists: true to replace it, or choose another name.",
        )
    facts = disk.facts(request.target, new.path, there)
    check_lease(request, facts, disk.now(), needed=True, header="x-ms-destination-lease-id")
    if is_read_only(facts) and request.header("x-ms-file-rename-ignore-readonly").lower() != "true":
        raise refusal("ReadOnlyAttribute", "Send x-ms-file-rename-ignore-readonly: true to replace it all the same.")


def _put(old: Spot, new: Spot, is_directory: bool) -> None:
    there = existing(new)
    if is_directory and there is not None and not stat.S_ISDIR(there.st_mode):
        os.unlink(new.name, dir_fd=new.fd)  # a directory can replace a file only when that is gone
    os.rename(old.name, new.name, src_dir_fd=old.fd, dst_dir_fd=new.fd)


def _note(disk: Disk, request: Request, facts: Facts) -> None:
    """Notes what the request says in place of what was noted; the lease stays with the old path."""
    facts["lease"] = None
    said = request.metadata()
    if said:
        facts["metadata"] = said
    if content(request):
        facts["content"] = {**facts.get("content", {}), **content(request)}
    note_smb(disk, request, facts)


def _described(disk: Disk, request: Request, place: Spot, facts: Facts) -> dict[str, str]:
    about = place.stat()
    if request.header("x-ms-file-last-write-time") and not stat.S_ISLNK(about.st_mode):
        fd = os.open(place.name, _OPEN, dir_fd=place.fd)
        try:
            stamp(fd, written_at(request, about.st_mtime_ns, "preserve"))
        finally:
            os.close(fd)
        about = place.stat()
    facts["changed"] = said_change(request, about)
    disk.note(request.target, place.path, about, facts)
    return described(about, facts, place.parent_id())
