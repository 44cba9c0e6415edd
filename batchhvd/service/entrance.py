"""``POST /job.entrance``: the words before a command line with which it runs in a node of a running job.

Only the root's token opens it, and it runs nothing: the words are for a program on this machine, of this user.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from batchhvd.errors import BadRequestError, ConflictError, EngineError, NotFoundError
from batchhvd.service.http.exchange import Answer, Here
from batchhvd.service.store.job import StoredJob
from batchhvd.wire.facts.states import JobState

Way = Callable[..., list[str]]


def answer(here: Here, way: Way, body: bytes) -> Answer:
    """Answers with the words.

    Args:
        here: the service.
        way: the engine's ``entrance``.
        body: ``{"job": ID, "node": INDEX, "terminal": BOOLEAN}``.

    Raises:
        BadRequestError: the body is wrong, or the engine's nodes cannot be entered.
        NotFoundError: there is no such job, or it has no such node.
        ConflictError: the job does not run.
    """
    id, index, terminal = _asked(body)
    record = here.store.get(id)
    if record is None or record.type != "jobs":
        raise NotFoundError("There is no such job.", code="ResourceNotFound", target="job")
    job = StoredJob.of(record)
    if job.state != JobState.RUNNING or not job.handle:
        raise ConflictError(
            f"The job is {job.state}; only nodes of a running job can be entered.", code="JobNotRunning"
        )
    if index >= job.node_count:
        text = f"The job has no node {index}: it has {job.node_count}, counted from 0."
        raise NotFoundError(text, code="NodeNotFound", target="node")
    try:
        return Answer(200, {"words": way(job.handle, index, terminal=terminal)}, {"Cache-Control": "no-store"})
    except EngineError as error:
        raise BadRequestError(f"{error}.", code="NotSupported") from error


def _asked(body: bytes) -> tuple[str, int, bool]:
    try:
        asked = json.loads(body)
        id, index, terminal = asked["job"], asked["node"], asked["terminal"]
    except (ValueError, TypeError, KeyError, RecursionError):
        id, index, terminal = "", -1, False
    if not (isinstance(id, str) and id and type(index) is int and index >= 0 and isinstance(terminal, bool)):
        text = 'The body must be {"job": ID, "node": INDEX, "terminal": true or false}.'
        raise BadRequestError(text, code="InvalidRequestContent")
    return id, index, terminal
