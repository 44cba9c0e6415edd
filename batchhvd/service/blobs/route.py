"""Finds the operation that a request asks for, and the permission that it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attrs import evolve, field, frozen

from batchhvd.service.blobs import blob, block_list, container, copy, from_url, headers, listing
from batchhvd.service.blobs.block_list import LIST_BYTES
from batchhvd.service.blobs.call import BlobCall
from batchhvd.service.storage.protocol.gate import Gate
from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.request import Request
from batchhvd.service.storage.protocol.response import Response
from batchhvd.service.storage.protocol.sas import Grant

_MIB = 1 << 20
# Parameters of every request: what it asks for, and those of links.
_EVERY = frozenset(
    ("restype", "comp", "timeout", "sv", "ss", "srt", "sr", "sp", "st", "se", "sip", "spr", "si", "sig", "ses",
     "rscc", "rscd", "rsce", "rscl", "rsct")
)  # fmt: skip
_ABSENT = {"snapshot": "snapshots", "versionid": "versions", "prevsnapshot": "snapshots", "upn": "directories"}


@frozen
class BlobAction:
    """One operation.

    Attributes:
        name: its name in Azure's reference; its headers stand in ``headers``.
        run: does it, blocking, and returns the answer.
        level: what it is done to: ``s`` an account, ``c`` a container or a listing, ``o`` a blob.
        letters: a link must permit one of these.
        manages: whether only a key or an account's link may do it.
        query: the parameters that it takes, beyond those of every request.
        body: how many bytes of a body it takes at most.
        uploads: whether the body is a blob's content, which is received into a file.
    """

    name: str
    run: Callable[[BlobCall], Response]
    level: str
    letters: str
    manages: bool = field(default=False, kw_only=True)
    query: str = field(default="", kw_only=True)
    body: int = field(default=0, kw_only=True)
    uploads: bool = field(default=False, kw_only=True)

    def check(self, grant: Grant) -> None:
        """Refuses a request that the link does not permit."""
        if grant.letters is None:
            return
        if not set(self.level) & set(grant.levels):
            raise refusal("AuthorizationResourceTypeMismatch")
        if (self.manages and not grant.manages) or not set(self.letters) & set(grant.letters):
            raise refusal("AuthorizationPermissionMismatch")

    def check_request(self, request: Request) -> None:
        """Refuses headers and parameters that the operation does not take: they may change what it means."""
        headers.TABLE.check(self.name, request.headers)
        for name in request.query:
            if name in _ABSENT:
                raise refusal("NotImplemented", f"There are no {_ABSENT[name]} of blobs here.")
            if name not in _EVERY and name not in self.query.split():
                raise refusal("UnsupportedQueryParameter", f"{self.name} takes no {name[:60]!r}.")


@frozen
class BlobPermit:
    """What a request may do.

    Attributes:
        action: the operation.
        request: the request, with what it may use.
    """

    action: BlobAction
    request: Request


_Key = tuple[str, str, str]  # method, restype, comp

_INFORMATION = BlobAction("Get Account Information", container.account, "sco", "rlcwd")
_ACCOUNT: dict[_Key, BlobAction] = {
    ("GET", "", "list"): BlobAction(
        "List Containers", listing.list_containers, "s", "l", query="prefix marker maxresults include"
    ),
    ("GET", "account", "properties"): _INFORMATION,
    ("HEAD", "account", "properties"): _INFORMATION,
}
_PROPERTIES = BlobAction("Get Container Properties", container.properties, "c", "r", manages=True)
_METADATA = BlobAction("Get Container Metadata", container.read_metadata, "c", "r", manages=True)
_ACL = BlobAction("Get Container ACL", container.get_policies, "c", "r", manages=True)
_CONTAINER: dict[_Key, BlobAction] = {
    ("PUT", "container", ""): BlobAction("Create Container", container.create, "c", "cw", manages=True),
    ("GET", "container", ""): _PROPERTIES,
    ("HEAD", "container", ""): _PROPERTIES,
    ("GET", "container", "metadata"): _METADATA,
    ("HEAD", "container", "metadata"): _METADATA,
    ("PUT", "container", "metadata"): BlobAction(
        "Set Container Metadata", container.set_metadata, "c", "w", manages=True
    ),
    ("GET", "container", "acl"): _ACL,
    ("HEAD", "container", "acl"): _ACL,
    ("PUT", "container", "acl"): BlobAction(
        "Set Container ACL", container.set_policies, "c", "w", manages=True, body=1 << 16
    ),
    ("DELETE", "container", ""): BlobAction("Delete Container", container.delete, "c", "d", manages=True),
    ("GET", "container", "list"): BlobAction(
        "List Blobs", listing.list_blobs, "c", "l", query="prefix delimiter marker maxresults include"
    ),
    ("GET", "account", "properties"): _INFORMATION,
    ("HEAD", "account", "properties"): _INFORMATION,
}
_BLOB_METADATA = BlobAction("Get Blob Metadata", blob.read_metadata, "o", "r")
_BLOB: dict[_Key, BlobAction] = {
    ("PUT", "", ""): BlobAction("Put Blob", blob.put, "o", "cw", body=5000 * _MIB, uploads=True),
    ("GET", "", ""): BlobAction("Get Blob", blob.read, "o", "r"),
    ("HEAD", "", ""): BlobAction("Get Blob Properties", blob.properties, "o", "r"),
    ("GET", "", "metadata"): _BLOB_METADATA,
    ("HEAD", "", "metadata"): _BLOB_METADATA,
    ("PUT", "", "metadata"): BlobAction("Set Blob Metadata", blob.set_metadata, "o", "w"),
    ("PUT", "", "properties"): BlobAction("Set Blob Properties", blob.set_properties, "o", "w"),
    ("DELETE", "", ""): BlobAction("Delete Blob", blob.delete, "o", "d"),
    ("PUT", "", "block"): BlobAction(
        "Put Block", block_list.put_block, "o", "cw", query="blockid", body=4000 * _MIB, uploads=True
    ),
    ("PUT", "", "blocklist"): BlobAction("Put Block List", block_list.put_list, "o", "cw", body=LIST_BYTES),
    ("GET", "", "blocklist"): BlobAction("Get Block List", block_list.show_list, "o", "r", query="blocklisttype"),
    ("PUT", "", "copy"): BlobAction("Abort Copy Blob", copy.abort, "o", "w", query="copyid"),
    ("GET", "account", "properties"): _INFORMATION,
    ("HEAD", "account", "properties"): _INFORMATION,
}
# These have the header x-ms-copy-source.
_COPY = BlobAction("Copy Blob", copy.copy, "o", "cw")
_BLOB_FROM_URL = BlobAction("Put Blob From URL", from_url.put_blob, "o", "cw")
_BLOCK_FROM_URL = BlobAction("Put Block From URL", from_url.put_block, "o", "cw", query="blockid")
# What Azure has and this service does not, by ``comp``; everything else is told without a name.
_NOT_HERE = {
    "lease": "Leases",
    "snapshot": "Snapshots",
    "appendblock": "Append blobs",
    "seal": "Append blobs",
    "page": "Page blobs",
    "pagelist": "Page blobs",
    "incrementalcopy": "Page blobs",
    "tier": "Tiers",
    "tags": "Tags",
    "blobs": "Tags",
    "batch": "Batches of requests",
    "query": "Queries",
    "undelete": "Deleted blobs and containers",
    "rename": "Renaming containers",
    "userdelegationkey": "OAuth and user delegation keys",
    "stats": "Geo-replication",
    "properties": "Settings of the service",
    "legalhold": "Legal holds",
    "immutabilitypolicies": "Immutability policies",
    "expiry": "Expiry",
}


def admit(gate: Gate, request: Request) -> BlobPermit:
    """Returns the operation that a request asks for and what it may use; refuses a request that may not do it."""
    grant = gate.grant(request)
    action = find(request)
    action.check(grant)
    action.check_request(request)
    may_replace = grant.letters is None or "w" in grant.letters
    return BlobPermit(action, evolve(request, source=gate.source(request, grant), may_replace=may_replace))


def find(request: Request) -> BlobAction:
    """Returns the operation that a request asks for; refuses the request if there is none."""
    target, comp = request.target, request.query.get("comp", "").lower()
    key = request.method, request.query.get("restype", "").lower(), comp
    table = _BLOB if target.names else _CONTAINER if target.share else _ACCOUNT
    if target.names and request.method == "PUT" and "x-ms-copy-source" in request.headers:
        return _copying(request, comp)
    if key in table:
        return table[key]
    if comp in _NOT_HERE:
        raise refusal("NotImplemented", f"{_NOT_HERE[comp]}: not in this blob service.")
    raise refusal("UnsupportedHttpVerb" if not key[1] and not comp else "NotImplemented")


def _copying(request: Request, comp: str) -> BlobAction:
    if comp and comp != "block":
        raise refusal("NotImplemented", f"{_NOT_HERE.get(comp, comp[:60])} from a URL: not in this blob service.")
    if comp:
        return _BLOCK_FROM_URL
    return _BLOB_FROM_URL if "x-ms-blob-type" in request.headers else _COPY


def actions() -> Iterator[tuple[_Key, BlobAction]]:
    """Yields all operations with their methods and queries."""
    for level, table in (("", _ACCOUNT), ("/container", _CONTAINER), ("/container/blob", _BLOB)):
        for (method, restype, comp), action in table.items():
            query = "&".join(f"{name}={value}" for name, value in (("restype", restype), ("comp", comp)) if value)
            yield (method, level, query), action
    yield ("PUT", "/container/blob", "x-ms-copy-source"), _COPY
    yield ("PUT", "/container/blob", "x-ms-copy-source, x-ms-blob-type"), _BLOB_FROM_URL
    yield ("PUT", "/container/blob", "comp=block, x-ms-copy-source"), _BLOCK_FROM_URL
