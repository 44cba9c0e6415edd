"""File servers of Batch AI: on one machine, each is a directory that is served like a share."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterator

from batchhvd.errors import ConflictError
from batchhvd.service.arm import operations
from batchhvd.service.batchai import redact
from batchhvd.service.batchai.kinds import alive, find, fresh, name_of, open_parent, parent_of
from batchhvd.service.description.reader import Problem, refuse
from batchhvd.service.http.exchange import Answer, Ask, Here
from batchhvd.service.store import accounts, trash
from batchhvd.service.store.cluster import StoredCluster
from batchhvd.service.store.documents import MountVolumes
from batchhvd.service.store.job import StoredJob
from batchhvd.service.store.records import Document, Record
from batchhvd.wire.facts import additions

SHARE = "data"


def create(here: Here, ask: Ask) -> Answer:
    """Creates a file server, which is a directory; repeating the same request changes nothing."""
    parent, name = open_parent(here, ask, "fileServers"), name_of(ask, "fileServers")
    properties = ask.body["properties"]
    refuse(_problems(properties))
    wanted = redact.visible({**properties, "vmSize": properties["vmSize"].upper()})
    old = find(here, parent, "fileServers", name)
    if old is not None:
        return operations.begin(here, ask, "create", _repeated(alive(old), wanted))
    return operations.begin(here, ask, "create", _put(here, parent, name, wanted, ask.warnings))


def _put(here: Here, parent: Record, name: str, wanted: Document, warnings: tuple[str, ...]) -> Record:
    # Random and as long as an account's name may be, so that no user's account has the same name.
    private = {
        "account": f"nfs{secrets.token_hex(10)}",
        "share": SHARE,
        "keys": [base64.b64encode(secrets.token_bytes(64)).decode()],
        "asked": wanted,
        "warnings": list(warnings),
    }
    folder = here.root / "shares" / str(private["account"]) / SHARE
    folder.mkdir(parents=True)
    address = {"fileServerPublicIP": "127.0.0.1", "fileServerInternalIP": "127.0.0.1"}
    settings = {**wanted, "mountSettings": {"mountPoint": "/data", **address, "fileServerType": "nfs"}}
    settings[additions.FIELD] = {additions.FOLDER: str(folder)}
    document = fresh(here, parent, "fileServers", name, settings)
    return here.store.put(document["id"], "fileServers", parent.id, document, private)


def _problems(properties: Document) -> list[Problem]:
    disks, at = properties["dataDisks"], "/properties/dataDisks"
    return [
        Problem(f"{at}/{name}", f"must be at least 1, not {disks[name]}")
        for name in ("diskSizeInGB", "diskCount")
        if disks[name] < 1
    ]


def _repeated(old: Record, wanted: Document) -> Record:
    if old.private["asked"] != wanted:
        name = old.document["name"]
        raise ConflictError(
            f"The file server '{name}' exists already with other settings; delete it first, or use another name.",
            code="FileServerAlreadyExists",
        )
    return old


def delete(here: Here, ask: Ask) -> Answer:
    """Deletes a file server and its files at once; answers 204 when it does not exist."""
    record = find(here, parent_of(here, ask, "fileServers"), "fileServers", name_of(ask, "fileServers"))
    if record is None:
        return Answer(204)
    _refuse_in_use(here, record)
    here.store.delete(record.id)
    trash.discard(here.root, here.root / "shares" / accounts.share_of(record)[0])
    return operations.begin(here, ask, "delete", record)


def _refuse_in_use(here: Here, record: Record) -> None:
    for id, volumes in _mounting(here, record):
        ids = {entry["fileServer"]["id"].lower() for entry in volumes.get("fileServers", ())}
        if record.id.lower() in ids:
            raise ConflictError(
                f"The file server '{record.document['name']}' is mounted by {id}; delete or end that first.",
                code="FileServerInUse",
            )


def _mounting(here: Here, server: Record) -> Iterator[tuple[str, MountVolumes]]:
    """Yields the ids of all clusters and active jobs that may mount a file server, and what they mount."""
    for record in accounts.may_mount(here.store, server):
        if record.type == "clusters":
            yield record.id, StoredCluster.of(record).properties.get("nodeSetup", {}).get("mountVolumes", {})
        else:
            yield record.id, StoredJob.of(record).properties.get("mountVolumes", {})
