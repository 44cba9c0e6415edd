"""``POST /job.entrance``, ``/cluster.entrance``: the words before a command line with which it runs in a node.

Only the root's token opens it, and it runs nothing: the words are for a program on this machine, of this user.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from attrs import frozen

from batchhvd.errors import BadRequestError, ConflictError, EngineError, NotFoundError
from batchhvd.service.http.exchange import Answer, Here
from batchhvd.service.login.target import ClosedError
from batchhvd.service.store.cluster import StoredCluster
from batchhvd.service.store.job import StoredJob
from batchhvd.wire.facts.states import ENDED, JobState

Way = Callable[..., list[str]]
PATHS = ("/job.entrance", "/cluster.entrance")


@frozen
class Ways:
    """How nodes are entered.

    Attributes:
        job: the engine's ``entrance``.
        cluster: the same of a node with or without a job; takes the cluster's id, the node's name, and ``terminal``.
    """

    job: Way
    cluster: Way


def answer(here: Here, ways: Ways, path: str, body: bytes) -> Answer:
    """Answers one of the two requests."""
    act = _in_job if path == PATHS[0] else _in_cluster
    return Answer(200, {"words": act(here, ways, body)}, {"Cache-Control": "no-store"})


def _in_cluster(here: Here, ways: Ways, body: bytes) -> list[str]:
    """Returns the words for a node of a cluster.

    Args:
        here: the service.
        ways: how nodes are entered.
        body: ``{"cluster": ID, "node": INDEX, "terminal": BOOLEAN}``.

    Raises:
        BadRequestError: the body is wrong.
        NotFoundError: there is no such cluster, or it has no such node.
        ConflictError: the node cannot be entered now.
    """
    id, index, terminal = _asked(body, "cluster")
    record = here.store.get(id)
    if record is None or record.type != "clusters":
        raise NotFoundError("There is no such cluster.", code="ResourceNotFound", target="cluster")
    names = StoredCluster.of(record).names
    if index >= len(names):
        text = f"The cluster has no node {index}: it has {len(names)}, counted from 0."
        raise NotFoundError(text, code="NodeNotFound", target="node")
    try:
        return ways.cluster(id, names[index], terminal=terminal)
    except ClosedError as error:
        raise ConflictError(f"{error}.", code="NodeClosed", target="node") from error


def _in_job(here: Here, ways: Ways, body: bytes) -> list[str]:
    """Returns the words for a node of a job.

    Args:
        here: the service.
        ways: how nodes are entered.
        body: ``{"job": ID, "node": INDEX, "terminal": BOOLEAN}``.

    Raises:
        BadRequestError: the body is wrong, or the engine's nodes cannot be entered.
        NotFoundError: there is no such job, or it has no such node.
        ConflictError: the job does not run.
    """
    id, index, terminal = _asked(body, "job")
    record = here.store.get(id)
    if record is None or record.type != "jobs":
        raise NotFoundError("There is no such job.", code="ResourceNotFound", target="job")
    job = StoredJob.of(record)
    if job.state != JobState.RUNNING or not job.handle:
        raise ConflictError(_why_closed(job), code="JobNotRunning")
    if index >= job.node_count:
        text = f"The job has no node {index}: it has {job.node_count}, counted from 0."
        raise NotFoundError(text, code="NodeNotFound", target="node")
    try:
        return ways.job(job.handle, index, terminal=terminal)
    except EngineError as error:
        raise BadRequestError(f"{error}.", code="NotSupported") from error


def _why_closed(job: StoredJob) -> str:
    if job.state in ENDED:
        return f"The job has ended ({job.state}); only what it has written is left."
    return f"The job is {job.state}; its nodes can be entered once it runs."


def _asked(body: bytes, kind: str) -> tuple[str, int, bool]:
    try:
        asked = json.loads(body)
        id, index, terminal = asked[kind], asked["node"], asked["terminal"]
    except (ValueError, TypeError, KeyError, RecursionError):
        id, index, terminal = "", -1, False
    if not (isinstance(id, str) and id and type(index) is int and index >= 0 and isinstance(terminal, bool)):
        text = f'The body must be {{"{kind}": ID, "node": INDEX, "terminal": true or false}}.'
        raise BadRequestError(text, code="InvalidRequestContent")
    return id, index, terminal
