"""All that the status page shows, in one answer: the service, clusters with their nodes, the queue, jobs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from batchhvd.service.http.exchange import Answer, Document, Here
from batchhvd.service.scheduler import nodes as cluster_life
from batchhvd.service.status import verdict
from batchhvd.service.store.records import Record

ENDED = 50
"""How many jobs that have ended are shown at most, the latest ones."""
_PRIORITIES = ("high", "normal", "low")


def answer(here: Here) -> Answer:
    """Answers the summary.

    Jobs come in the order in which they were made; ``queue`` counts from 1 in the order in which waiting jobs of one
    cluster start, and is None for all others.
    """
    jobs, left_out = _jobs(here)
    using = {node: job.document["name"] for job in jobs for node in _holding(job)}
    service = _service(here)
    body = {
        "service": {**service, "time": here.time()},
        "clusters": [_cluster(record, using) for record in here.store.list("clusters")],
        "jobs": [_job(job, place, service["started"]) for job, place in _queued(jobs)],
        "jobsLeftOut": left_out,
    }
    return Answer(200, body, {"Cache-Control": "no-store"})


def _service(here: Here) -> Document:
    try:
        about = json.loads((here.root / "service.json").read_text(encoding="utf-8"))
    except FileNotFoundError:  # the application runs without a process of its own, or that one is about to end
        about = {}
    return {name: about.get(name, "") for name in ("version", "engine", "started")}


def _jobs(here: Here) -> tuple[list[Record], int]:
    """Returns the active jobs and the latest others in the order of their making, and how many there are besides."""
    active, total = here.store.active(), here.store.count("jobs")
    found = {job.number: job for job in [*here.store.latest("jobs", ENDED + len(active)), *active]}
    ended = [number for number in found if found[number].document["properties"]["executionState"] in _OVER]
    for number in sorted(ended)[:-ENDED]:
        del found[number]
    return [found[number] for number in sorted(found)], total - len(found)


_OVER = ("succeeded", "failed")


def _holding(job: Record) -> Sequence[str]:
    """Returns the nodes that a job has now: one that has ended remembers them, but holds them no more."""
    over = job.document["properties"]["executionState"] in _OVER
    return () if over else job.private.get("nodes", ())


def _queued(jobs: Sequence[Record]) -> Iterable[tuple[Record, int | None]]:
    waiting = [job for job in jobs if job.document["properties"]["executionState"] == "queued"]
    places: dict[int, int] = {}
    lengths: dict[str, int] = {}
    for job in sorted(waiting, key=_turn):
        cluster = job.document["properties"]["cluster"]["id"].lower()
        lengths[cluster] = places[job.number] = lengths.get(cluster, 0) + 1
    return [(job, places.get(job.number)) for job in jobs]


def _turn(job: Record) -> tuple[int, int]:
    return _PRIORITIES.index(job.document["properties"].get("schedulingPriority", "normal")), job.number


def _cluster(record: Record, using: Mapping[str, str]) -> Document:
    properties = record.document["properties"]
    return {
        **_place(record),
        "state": properties["allocationState"],
        "provisioning": properties["provisioningState"],
        "size": properties["vmSize"],
        "priority": properties.get("vmPriority", "dedicated"),
        "scale": _scale(properties["scaleSettings"]),
        "nodes": list(_nodes(record, using)),
        "errors": [error["message"] for error in properties.get("errors") or ()],
    }


def _scale(settings: Mapping[str, Any]) -> str:
    if "manual" in settings:
        return str(settings["manual"]["targetNodeCount"])
    return "{minimumNodeCount} to {maximumNodeCount}".format(**settings["autoScale"])


def _nodes(record: Record, using: Mapping[str, str]) -> Iterable[Document]:
    private = record.private
    reasons = {**private.get("unusable", {}), **private.get("broken", {})}
    for name, state in cluster_life.states(private, set(using)).items():
        yield {"name": name, "state": state, "job": using.get(name, ""), "why": reasons.get(name, "")}


def _job(record: Record, place: int | None, restarted: str) -> Document:
    properties = record.document["properties"]
    info = properties.get("executionInfo") or {}
    return {
        **_place(record),
        "cluster": properties["cluster"]["id"].rpartition("/")[2],
        "state": properties["executionState"],
        "deleting": properties["provisioningState"] == "deleting",
        "queue": place,
        "nodes": properties["nodeCount"],
        "processes": _ranks(properties),
        "on": list(_holding(record)),
        "created": properties["creationTime"],
        "started": info.get("startTime"),
        "ended": info.get("endTime"),
        "exit": info.get("exitCode"),
        "verdict": verdict.of_job(properties, restarted),
    }


def _ranks(properties: Mapping[str, Any]) -> int:
    if properties.get("customToolkitSettings"):
        return 1
    settings: Document = properties.get("horovodSettings") or properties.get("customMpiSettings") or {}
    return settings.get("processCount") or int(properties["nodeCount"])


def _place(record: Record) -> Document:
    """Returns id and name of a resource, and the names of what it lies in."""
    words = record.id.split("/")
    above = {words[at].lower(): words[at + 1] for at in range(1, len(words) - 2, 2)}
    return {
        "id": record.id,
        "name": record.document["name"],
        "group": above.get("resourcegroups", ""),
        "workspace": above.get("workspaces", ""),
        "experiment": above.get("experiments", ""),
    }
