"""Long-running operations: requested now, carried out by the scheduler a moment later.

An operation has no state of its own. It names its target, and its status follows from the state of the target (what
is created is there at once), so a restart loses nothing and no two places can disagree.
"""

from __future__ import annotations

import uuid

from attrs import evolve

from batchhvd.errors import NotFoundError
from batchhvd.service.http.exchange import Answer, Ask, Here
from batchhvd.service.store.job import StoredJob
from batchhvd.service.store.records import Document, Record
from batchhvd.wire.facts.identity import SUBSCRIPTION

# Seconds that clients sleep between two polls. It must be a whole number above zero: 0 means "not given" to
# azure-core, and azure-cli 2.0.60 fails on a fraction.
RETRY_AFTER = "1"
_KEPT, _FORGOTTEN = 86400.0, 3


def begin(here: Here, ask: Ask, kind: str, target: Record, location: str = "local") -> Answer:
    """Records an operation (``"create"``, ``"delete"`` or ``"terminate"``) and returns 202 with the two URLs to poll.

    Source of both URLs: the recordings of azure-mgmt-batchai's tests.
    """
    name = str(uuid.uuid4())
    id = f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.BatchAI/locations/{location}/operations/{name}"
    document = {"id": id, "name": name, "kind": kind, "target": target.id, "number": target.number}
    _forget(here)
    record = here.store.put(id, "operations", "", {**document, "startTime": here.time(), "started": here.now()})
    return _pending(here, ask, record)


def status(here: Here, ask: Ask) -> Answer:
    """Answers for the Azure-AsyncOperation URL: a body with ``status``."""
    record = _find(here, ask)
    state = _state(here, record)
    url, name = ask.base + _shown(record.id, "operationresults"), record.document["name"]
    body = {"id": url, "name": name, "status": state, "startTime": record.document["startTime"]}
    if state == "InProgress":
        return Answer(200, body, {"Retry-After": RETRY_AFTER}, lambda: _later(here, ask, record))
    return Answer(200, {**body, **_target(record)})


def _target(record: Record) -> Document:
    """Returns what a finished operation tells of its target: the names on its path, joined by dollar signs."""
    words = record.document["target"].strip("/").split("/")
    names = [word for at, word in enumerate(words) if at % 2 and words[at - 1] != "providers"]
    return {"properties": {"resourceId": "$".join(names)}}


def _shown(id: str, place: str) -> str:
    return id.replace("/operations/", f"/{place}/")


def _later(here: Here, ask: Ask, record: Record) -> Answer | None:
    return status(here, ask) if _done(here, record) else None


def result(here: Here, ask: Ask) -> Answer:
    """Answers for the Location URL: 202 until it is done, then 200."""
    record = _find(here, ask)
    if not _done(here, record):
        pending = _pending(here, ask, record)
        return evolve(pending, later=lambda: Answer(200) if _done(here, record) else None)
    return Answer(200)


def _pending(here: Here, ask: Ask, record: Record) -> Answer:
    version = f"?api-version={ask.query['api-version']}"
    headers = {
        "Azure-AsyncOperation": ask.base + _shown(record.id, "operationresults") + version,
        "Location": ask.base + _shown(record.id, "operationstatuses") + version,
        "Retry-After": RETRY_AFTER,
    }
    return Answer(202, None, headers)


def _find(here: Here, ask: Ask) -> Record:
    provider = "/providers/Microsoft.BatchAI/locations/"
    id = f"/subscriptions/{SUBSCRIPTION}{provider}{ask.names['location']}/operations/{ask.names['operation']}"
    record = here.store.get(id)
    if record is None:
        raise NotFoundError(f"There is no operation {ask.names['operation']}.", code="OperationNotFound")
    return record


def _done(here: Here, record: Record) -> bool:
    return _state(here, record) != "InProgress"


def _state(here: Here, record: Record) -> str:
    target = here.store.get(record.document["target"])
    # A new target of the same name has another number.
    if record.document["kind"] == "create" or target is None or target.number != record.document["number"]:
        return "Succeeded"
    if record.document["kind"] == "terminate" and StoredJob.of(target).has_ended:
        return "Succeeded"
    return "InProgress"


def _forget(here: Here) -> None:
    """Forgets a few old operations: more than one new one brings."""
    for record in here.store.list("operations", most=_FORGOTTEN):
        if record.document["started"] > here.now() - _KEPT:
            break
        here.store.delete(record.id)
