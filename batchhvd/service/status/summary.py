"""Everything that the status page shows, in one answer: service, clusters with their nodes, queue, jobs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from batchhvd.service.http.exchange import Answer, Here
from batchhvd.service.scheduler import nodes, queue, task
from batchhvd.service.status import verdict
from batchhvd.service.store import trouble
from batchhvd.service.store.cluster import StoredCluster
from batchhvd.service.store.documents import ScaleSettings
from batchhvd.service.store.job import Execution, StoredJob
from batchhvd.service.store.records import Document, Record
from batchhvd.wire.facts import job_variables
from batchhvd.wire.facts.states import JobState, VmPriority

ENDED = 50
"""How many jobs that have ended are shown at most, the latest ones."""


def answer(here: Here) -> Answer:
    """Answers the summary.

    Jobs come in the order of their creation; ``queue`` counts from 1 in the order in which waiting jobs of one
    cluster start, and is None for all others.
    """
    jobs, left_out = _jobs(here)
    using = {node: job.name for job in jobs for node in _holding(job)}
    service = _service(here)
    problem = trouble.disk_problem(here.root)
    clusters = [_cluster(StoredCluster.of(record), using) for record in here.store.list("clusters")]
    for cluster in clusters if problem else ():
        cluster["errors"].insert(0, problem)
    body = {
        "service": {**service, "time": here.time(), "problem": problem},
        "clusters": clusters,
        "jobs": [_job(job, place, service["started"]) for job, place in _queued(jobs)],
        "jobsLeftOut": left_out,
    }
    return Answer(200, body, {"Cache-Control": "no-store"})


def _service(here: Here) -> dict[str, str]:
    try:
        about = json.loads((here.root / "service.json").read_text(encoding="utf-8"))
    except FileNotFoundError:  # the application runs without a service process, or the process is about to end
        about = {}
    return {name: about.get(name, "") for name in ("version", "engine", "started")}


def _jobs(here: Here) -> tuple[list[StoredJob], int]:
    """Returns the active jobs and the latest others in the order of their creation, and how many are left out."""
    active, total = here.store.active(), here.store.count("jobs")
    records = [*here.store.latest("jobs", ENDED + len(active)), *active]
    found = {record.number: StoredJob.of(record) for record in records}
    ended = [number for number in found if found[number].has_ended]
    for number in sorted(ended)[:-ENDED]:
        del found[number]
    return [found[number] for number in sorted(found)], total - len(found)


def _holding(job: StoredJob) -> Sequence[str]:
    """Returns the nodes that a job has now: one that has ended remembers them, but does not hold them any more."""
    return () if job.has_ended else job.nodes


def _queued(jobs: Sequence[StoredJob]) -> Iterable[tuple[StoredJob, int | None]]:
    waiting = [job for job in jobs if job.state == JobState.QUEUED]
    places: dict[int, int] = {}
    lengths: dict[str, int] = {}
    for job in sorted(waiting, key=_turn):
        lengths[job.cluster] = places[job.number] = lengths.get(job.cluster, 0) + 1
    return [(job, places.get(job.number)) for job in jobs]


def _turn(job: StoredJob) -> tuple[int, int]:
    return queue.ORDER[job.priority], job.number


def _cluster(cluster: StoredCluster, using: Mapping[str, str]) -> Document:
    return {
        **_place(cluster.record),
        "state": cluster.allocation,
        "provisioning": cluster.provisioning,
        "size": cluster.properties["vmSize"],
        "priority": cluster.properties.get("vmPriority", VmPriority.DEDICATED),
        "scale": _scale(cluster.scale),
        "nodes": list(_nodes(cluster, using)),
        "errors": [error["message"] for error in cluster.errors or ()],
    }


def _scale(settings: ScaleSettings) -> str:
    if "manual" in settings:
        return str(settings["manual"]["targetNodeCount"])
    return "{minimumNodeCount} to {maximumNodeCount}".format(**settings["autoScale"])


def _nodes(cluster: StoredCluster, using: Mapping[str, str]) -> Iterable[Document]:
    reasons = {**cluster.unusable, **cluster.broken}
    for name, state in nodes.states(cluster, set(using)).items():
        yield {"name": name, "state": state, "job": using.get(name, ""), "why": reasons.get(name, "")}


def _job(job: StoredJob, place: int | None, restarted: str) -> Document:
    execution = job.execution or Execution()
    return {
        **_place(job.record),
        "cluster": job.properties["cluster"]["id"].rpartition("/")[2],
        "state": job.state,
        "deleting": job.is_deleting,
        "queue": place,
        "nodes": job.node_count,
        "processes": task.process_count(job.properties),
        "on": list(_holding(job)),
        "created": job.properties["creationTime"],
        "started": execution.start if execution.ran and execution.start else None,
        "ended": execution.end or None,
        "exit": execution.exit_code,
        "sweep": _trial(job),
        "verdict": verdict.of_job(
            job.properties, restarted, name=job.record.document["name"], preparing=_preparing(job)
        ),
    }


def _trial(job: StoredJob) -> Document | None:
    """Returns the sweep that a job belongs to, and what it tries; None of a job of no sweep."""
    entries = job.properties.get("environmentVariables", ())
    found = job_variables.trial({entry["name"]: entry.get("value", "") for entry in entries})
    return None if found is None else dict(zip(("place", "number", "point"), found, strict=True))


def _preparing(job: StoredJob) -> str:
    return job.preparation if job.is_preparing and job.state == JobState.RUNNING else ""


def _place(record: Record) -> Document:
    """Returns id and name of a resource, and the names of the resources above it."""
    words = record.id.split("/")
    above = {words[at].lower(): words[at + 1] for at in range(1, len(words) - 2, 2)}
    return {
        "id": record.id,
        "name": record.document["name"],
        "group": above.get("resourcegroups", ""),
        "workspace": above.get("workspaces", ""),
        "experiment": above.get("experiments", ""),
    }
