"""Long-running operations: requested now, carried out by the scheduler a moment later.

An operation has no state of its own. It names its target, and its status follows from the state of the target, so a
restart loses nothing and no two places can disagree.
"""

from __future__ import annotations

import uuid

from batchhvd.errors import NotFoundError
from batchhvd.service.http.exchange import Answer, Ask, Here
from batchhvd.service.store.job import StoredJob
from batchhvd.service.store.records import Record
from batchhvd.wire.facts.identity import SUBSCRIPTION

# Seconds that clients sleep between two polls. It must be a whole number above zero: 0 means "not given" to
# azure-core, and azure-cli 2.0.60 fails on a fraction.
RETRY_AFTER = "1"
_KEPT, _FORGOTTEN = 86400.0, 3


def begin(here: Here, ask: Ask, kind: str, target: Record, location: str = "local") -> Answer:
    """Records an operation (``"delete"`` or ``"terminate"``) and returns 202 with the two URLs to poll.

    The answer carries ``later``: if the scheduler finishes within moments, the client is spared its first sleep.
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
    body = {name: record.document[name] for name in ("id", "name", "startTime")} | {"status": state}
    if state == "InProgress":
        return Answer(200, body, {"Retry-After": RETRY_AFTER}, lambda: _later(here, ask, record))
    return Answer(200, body)


def _later(here: Here, ask: Ask, record: Record) -> Answer | None:
    return status(here, ask) if _done(here, record) else None


def result(here: Here, ask: Ask) -> Answer:
    """Answers for the Location URL: 202 until it is done, then 200."""
    record = _find(here, ask)
    if not _done(here, record):
        return _pending(here, ask, record)
    return Answer(200)


def _pending(here: Here, ask: Ask, record: Record) -> Answer:
    url, version = ask.base + record.id, f"?api-version={ask.query['api-version']}"
    headers = {
        "Azure-AsyncOperation": url + version,
        "Location": url.replace("/operations/", "/operationresults/") + version,
        "Retry-After": RETRY_AFTER,
    }
    return Answer(202, None, headers, lambda: Answer(200) if _done(here, record) else None)


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
    if target is None or target.number != record.document["number"]:
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
