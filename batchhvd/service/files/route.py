"""Finds the operation that a request asks for, and the permission that it takes."""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve, frozen

from batchhvd.service.files.disk.disk import Disk
from batchhvd.service.files.operations import copy, directory, file, range, rename, service, share
from batchhvd.service.files.protocol.gate import Gate
from batchhvd.service.files.protocol.refusal import refusal
from batchhvd.service.files.protocol.request import Request, Target
from batchhvd.service.files.protocol.response import Response
from batchhvd.service.files.protocol.sas import Grant


@frozen
class Action:
    """One operation.

    Attributes:
        run: does it, blocking, and returns the answer.
        level: what it is done to: ``s`` an account, ``c`` a share or a listing, ``d`` a directory, ``o`` a file.
        letters: a link must permit one of these.
        manages: whether only a key or an account's link may do it.
        brief: whether it is over in a moment unless it has a large body or raises ``TakesLong``.
    """

    run: Callable[[Disk, Request], Response]
    level: str
    letters: str
    manages: bool = False
    brief: bool = False

    def check(self, grant: Grant) -> None:
        """Refuses a request that the link does not permit."""
        if grant.letters is None:
            return
        if self.level not in grant.levels:
            raise refusal("AuthorizationResourceTypeMismatch")
        if (self.manages and not grant.manages) or not set(self.letters) & set(grant.letters):
            raise refusal("AuthorizationPermissionMismatch")


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
    ("GET", "", "list"): Action(share.list_shares, "s", "l"),
    ("GET", "service", "properties"): Action(service.properties, "s", "r"),
}
_SHARE: dict[_Key, Action] = {
    ("PUT", "share", ""): Action(share.create, "c", "cw", manages=True),
    ("GET", "share", ""): Action(share.properties, "c", "r"),
    ("HEAD", "share", ""): Action(share.properties, "c", "r"),
    ("DELETE", "share", ""): Action(share.delete, "c", "d", manages=True),
    ("GET", "share", "metadata"): Action(share.properties, "c", "r"),
    ("PUT", "share", "metadata"): Action(share.set_metadata, "c", "w", manages=True),
    ("PUT", "share", "properties"): Action(share.set_properties, "c", "w", manages=True),
    ("GET", "share", "stats"): Action(share.stats, "c", "r"),
}
_DIRECTORY: dict[_Key, Action] = {
    ("PUT", "directory", ""): Action(directory.create, "d", "cw"),
    ("GET", "directory", ""): Action(directory.properties, "d", "r"),
    ("HEAD", "directory", ""): Action(directory.properties, "d", "r"),
    ("DELETE", "directory", ""): Action(directory.delete, "d", "d"),
    ("GET", "directory", "metadata"): Action(directory.properties, "d", "r"),
    ("PUT", "directory", "metadata"): Action(directory.set_metadata, "d", "w"),
    ("PUT", "directory", "properties"): Action(directory.set_properties, "d", "w"),
    ("GET", "directory", "list"): Action(directory.list_entries, "c", "l"),
    ("PUT", "directory", "rename"): Action(rename.rename, "d", "cw"),
}
_FILE: dict[_Key, Action] = {
    ("PUT", "", ""): Action(file.create, "o", "cw", brief=True),
    ("GET", "", ""): Action(file.read, "o", "r"),
    ("HEAD", "", ""): Action(file.properties, "o", "r", brief=True),
    ("DELETE", "", ""): Action(file.delete, "o", "d"),
    ("GET", "", "metadata"): Action(file.read_metadata, "o", "r"),
    ("HEAD", "", "metadata"): Action(file.read_metadata, "o", "r"),
    ("PUT", "", "metadata"): Action(file.set_metadata, "o", "w"),
    ("PUT", "", "properties"): Action(file.set_properties, "o", "w"),
    ("PUT", "", "range"): Action(range.put, "o", "w", brief=True),
    ("GET", "", "rangelist"): Action(range.list_ranges, "o", "r"),
    ("PUT", "", "rename"): Action(rename.rename, "o", "cw"),
    ("PUT", "", "copy"): Action(copy.abort, "o", "w"),
    ("GET", "", "listhandles"): Action(service.list_handles, "c", "l"),
    ("PUT", "", "forceclosehandles"): Action(service.close_handles, "o", "w"),
}
_COPY = Action(copy.copy, "o", "cw")
_RANGE_FROM_URL = Action(copy.put_from_url, "o", "w")


def admit(gate: Gate, request: Request) -> Permit:
    """Returns the operation that a request asks for and what it may use; refuses a request that may not do it."""
    grant = gate.grant(request)
    action = find(request)
    action.check(grant)
    return Permit(action, gate.source(request, grant), grant.letters is None or "w" in grant.letters)


def find(request: Request) -> Action:
    """Returns the operation that a request asks for; refuses the request if there is none."""
    _refuse_unsupported(request)
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


def _tables(request: Request) -> tuple[dict[_Key, Action], ...]:
    if not request.target.share:
        return (_ACCOUNT,)
    return (_SHARE, _DIRECTORY) if not request.target.names else (_DIRECTORY, _FILE)


def _refuse_unsupported(request: Request) -> None:
    if request.query.get("sharesnapshot") or request.query.get("prevsharesnapshot"):
        raise refusal("ShareSnapshotNotFound")
    if "x-ms-structured-body" in request.headers:
        raise refusal("NotImplemented", "Structured bodies (CRC64) are not supported; use MD5.")
