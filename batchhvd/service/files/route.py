"""Finds the operation that a request asks for, and the permission that it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attrs import evolve, field, frozen

from batchhvd.service.files.operations import (
    access,
    copy,
    directory,
    file,
    handles,
    lease,
    listing,
    range,
    read,
    rename,
    restore,
    service,
    share,
    snapshot,
)
from batchhvd.service.files.protocol import headers
from batchhvd.service.storage.disk.disk import Disk
from batchhvd.service.storage.protocol.gate import Gate
from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.request import Request, Target
from batchhvd.service.storage.protocol.response import Response
from batchhvd.service.storage.protocol.sas import Grant


@frozen
class Action:
    """One operation.

    Attributes:
        name: its name in Azure's reference; its headers stand in ``protocol.headers``.
        run: does it, blocking, and returns the answer.
        level: what it is done to: ``s`` an account, ``c`` a share or a listing, ``d`` a directory, ``o`` a file.
        letters: a link must permit one of these.
        manages: whether only a key or an account's link may do it.
        brief: whether it is over in a moment unless it has a large body or raises ``TakesLong``.
        reads: whether it can be done to a snapshot.
    """

    name: str
    run: Callable[[Disk, Request], Response]
    level: str
    letters: str
    manages: bool = field(default=False, kw_only=True)
    brief: bool = field(default=False, kw_only=True)
    reads: bool = field(default=False, kw_only=True)

    def check(self, grant: Grant) -> None:
        """Refuses a request that the link does not permit."""
        if grant.letters is None:
            return
        if self.level not in grant.levels:
            raise refusal("AuthorizationResourceTypeMismatch")
        if (self.manages and not grant.manages) or not set(self.letters) & set(grant.letters):
            raise refusal("AuthorizationPermissionMismatch")

    def check_request(self, request: Request) -> None:
        """Refuses headers that the operation does not take, and a change of a snapshot."""
        headers.TABLE.check(self.name, request.headers)
        if request.target.snapshot and not self.reads:
            raise refusal("ShareSnapshotOperationNotSupported", f"{self.name} is not done to a snapshot.")


@frozen
class Permit:
    """What a request may do.

    Attributes:
        action: the operation.
        source: what a copy or rename takes, or None.
        may_replace: whether a file that exists may be replaced.
    """

    action: Action
    source: Target | None
    may_replace: bool

    def complete(self, request: Request, body: tuple[bytes, ...]) -> Request:
        """Returns a request with its body and with what it may use."""
        hurried = self.action.brief and sum(map(len, body)) <= _BRIEF
        return evolve(request, body=body, source=self.source, may_replace=self.may_replace, hurried=hurried)


_BRIEF = 1 << 16  # bytes of a body that are written while others wait: handing them to a thread takes longer
_Key = tuple[str, str, str]  # method, restype, comp

_ACCOUNT: dict[_Key, Action] = {
    ("GET", "", "list"): Action("List Shares", listing.list_shares, "s", "l"),
    ("GET", "service", "properties"): Action("Get File Service Properties", service.properties, "s", "r"),
    ("PUT", "service", "properties"): Action(
        "Set File Service Properties", service.set_properties, "s", "w", manages=True
    ),
}
_SHARE_PROPERTIES = Action("Get Share Properties", share.properties, "c", "r", reads=True)
_SHARE_METADATA = Action("Get Share Metadata", share.read_metadata, "c", "r", reads=True)
_SHARE: dict[_Key, Action] = {
    ("PUT", "share", ""): Action("Create Share", share.create, "c", "cw", manages=True),
    ("GET", "share", ""): _SHARE_PROPERTIES,
    ("HEAD", "share", ""): _SHARE_PROPERTIES,
    ("DELETE", "share", ""): Action("Delete Share", share.delete, "c", "d", manages=True, reads=True),
    ("GET", "share", "metadata"): _SHARE_METADATA,
    ("HEAD", "share", "metadata"): _SHARE_METADATA,
    ("PUT", "share", "metadata"): Action("Set Share Metadata", share.set_metadata, "c", "w", manages=True),
    ("PUT", "share", "properties"): Action("Set Share Properties", share.set_properties, "c", "w", manages=True),
    ("GET", "share", "stats"): Action("Get Share Stats", share.stats, "c", "r"),
    ("PUT", "share", "snapshot"): Action("Snapshot Share", snapshot.create, "c", "cw", manages=True),
    ("PUT", "share", "lease"): Action("Lease Share", lease.lease_share, "c", "wd", manages=True, reads=True),
    ("PUT", "share", "undelete"): Action("Restore Share", restore.restore, "c", "w", manages=True),
    ("GET", "share", "acl"): Action("Get Share ACL", access.get_policies, "c", "r", manages=True),
    ("HEAD", "share", "acl"): Action("Get Share ACL", access.get_policies, "c", "r", manages=True),
    ("PUT", "share", "acl"): Action("Set Share ACL", access.set_policies, "c", "w", manages=True),
    ("PUT", "share", "filepermission"): Action("Create Permission", access.create_permission, "c", "cw"),
    ("GET", "share", "filepermission"): Action("Get Permission", access.get_permission, "c", "r", reads=True),
}
_DIRECTORY_PROPERTIES = Action("Get Directory Properties", directory.properties, "d", "r", reads=True)
_DIRECTORY_METADATA = Action("Get Directory Metadata", directory.read_metadata, "d", "r", reads=True)
_LIST_HANDLES = Action("List Handles", handles.list_handles, "c", "l", reads=True)
_CLOSE_HANDLES = Action("Force Close Handles", handles.close_handles, "o", "w", reads=True)
_DIRECTORY: dict[_Key, Action] = {
    ("PUT", "directory", ""): Action("Create Directory", directory.create, "d", "cw"),
    ("GET", "directory", ""): _DIRECTORY_PROPERTIES,
    ("HEAD", "directory", ""): _DIRECTORY_PROPERTIES,
    ("DELETE", "directory", ""): Action("Delete Directory", directory.delete, "d", "d"),
    ("GET", "directory", "metadata"): _DIRECTORY_METADATA,
    ("HEAD", "directory", "metadata"): _DIRECTORY_METADATA,
    ("PUT", "directory", "metadata"): Action("Set Directory Metadata", directory.set_metadata, "d", "w"),
    ("PUT", "directory", "properties"): Action("Set Directory Properties", directory.set_properties, "d", "w"),
    ("GET", "directory", "list"): Action("List Directories and Files", listing.list_entries, "c", "l", reads=True),
    ("PUT", "directory", "rename"): Action("Rename Directory", rename.rename, "d", "cw"),
    ("GET", "", "listhandles"): _LIST_HANDLES,
    ("GET", "directory", "listhandles"): _LIST_HANDLES,
    ("PUT", "", "forceclosehandles"): _CLOSE_HANDLES,
    ("PUT", "directory", "forceclosehandles"): _CLOSE_HANDLES,
}
_FILE_METADATA = Action("Get File Metadata", read.read_metadata, "o", "r", reads=True)
_FILE: dict[_Key, Action] = {
    ("PUT", "", ""): Action("Create File", file.create, "o", "cw", brief=True),
    ("GET", "", ""): Action("Get File", read.read, "o", "r", reads=True),
    ("HEAD", "", ""): Action("Get File Properties", read.properties, "o", "r", brief=True, reads=True),
    ("DELETE", "", ""): Action("Delete File", file.delete, "o", "d"),
    ("GET", "", "metadata"): _FILE_METADATA,
    ("HEAD", "", "metadata"): _FILE_METADATA,
    ("PUT", "", "metadata"): Action("Set File Metadata", file.set_metadata, "o", "w"),
    ("PUT", "", "properties"): Action("Set File Properties", file.set_properties, "o", "w"),
    ("PUT", "", "range"): Action("Put Range", range.put, "o", "w", brief=True),
    ("GET", "", "rangelist"): Action("List Ranges", range.list_ranges, "o", "r", reads=True),
    ("PUT", "", "rename"): Action("Rename File", rename.rename, "o", "cw"),
    ("PUT", "", "copy"): Action("Abort Copy File", copy.abort, "o", "w"),
    ("PUT", "", "lease"): Action("Lease File", lease.lease_file, "o", "w"),
}
_COPY = Action("Copy File", copy.copy, "o", "cw")
_RANGE_FROM_URL = Action("Put Range From URL", copy.put_from_url, "o", "w")


def admit(gate: Gate, request: Request) -> Permit:
    """Returns the operation that a request asks for and what it may use; refuses a request that may not do it."""
    grant = gate.grant(request)
    action = find(request)
    action.check(grant)
    action.check_request(request)
    return Permit(action, gate.source(request, grant), grant.letters is None or "w" in grant.letters)


def find(request: Request) -> Action:
    """Returns the operation that a request asks for; refuses the request if there is none."""
    key = request.method, request.query.get("restype", "").lower(), request.query.get("comp", "").lower()
    if (
        request.target.names
        and "x-ms-copy-source" in request.headers
        and key in (("PUT", "", ""), ("PUT", "", "range"))
    ):
        return _RANGE_FROM_URL if key[2] else _COPY
    for table in _tables(request):
        if key in table:
            return table[key]
    raise refusal("UnsupportedHttpVerb" if not key[1] and not key[2] else "NotImplemented")


def actions() -> Iterator[tuple[_Key, Action]]:
    """Yields all operations with their methods and queries."""
    for level, table in (("", _ACCOUNT), ("/share", _SHARE), ("/share/directory", _DIRECTORY), ("/share/file", _FILE)):
        for (method, restype, comp), action in table.items():
            query = "&".join(f"{name}={value}" for name, value in (("restype", restype), ("comp", comp)) if value)
            yield (method, level, query), action
    yield ("PUT", "/share/file", "x-ms-copy-source"), _COPY
    yield ("PUT", "/share/file", "comp=range, x-ms-copy-source"), _RANGE_FROM_URL


def _tables(request: Request) -> tuple[dict[_Key, Action], ...]:
    if not request.target.share:
        return (_ACCOUNT,)
    return (_SHARE, _DIRECTORY) if not request.target.names else (_DIRECTORY, _FILE)
