"""Jobs of Batch AI: requests check and queue them, and the scheduler runs them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import cast

from attrs import frozen

from batchhvd.errors import ConflictError
from batchhvd.service.arm import operations
from batchhvd.service.batchai import images, job_order, redact
from batchhvd.service.batchai.clusters import BY_NODE, logins
from batchhvd.service.batchai.kinds import alive, find, fresh, name_of, named, open_parent
from batchhvd.service.description.reader import Problem, refuse
from batchhvd.service.http import paging
from batchhvd.service.http.exchange import Answer, Ask, Here
from batchhvd.service.mounts import model as mounts
from batchhvd.service.mounts import rules as mount_rules
from batchhvd.service.store.cluster import StoredCluster
from batchhvd.service.store.documents import JobProperties
from batchhvd.service.store.glance import Glance
from batchhvd.service.store.job import PrivateJobFields, StoredJob
from batchhvd.service.store.records import Document, Record
from batchhvd.wire.facts import additions, toolkits, vm_sizes
from batchhvd.wire.facts.containers import HEADER
from batchhvd.wire.facts.states import JobState, ProvisioningState
from batchhvd.wire.facts.toolkits import TOOL_TYPES, WITHOUT_PROCESS_COUNT

MOST_RANKS = 10_000
_WEEK = {"maxWallClockTime": "P7D"}


def create(here: Here, ask: Ask) -> Answer:
    """Checks a job and queues it; repeating the same request changes nothing.

    A dry run stops before the job is written and answers with the document that a GET would show.
    """
    parent, name = open_parent(here, ask, "jobs"), name_of(ask, "jobs")
    checked = check(here, parent, name, ask.body["properties"], ask.warnings)
    if ask.dry_run:
        return Answer(200, _advised(here, checked.document), {HEADER: here.containers.to_header()})
    return operations.begin(here, ask, "create", keep(here, parent, checked))


@frozen
class CheckedJob:
    """A job that may be created.

    Attributes:
        document: what a GET would show.
        private: what is kept beside it; None if the job is there already and is the same.
    """

    document: Document
    private: PrivateJobFields | None


def check(here: Here, parent: Record, name: str, asked: Document, warnings: Sequence[str]) -> CheckedJob:
    """Checks a job that is asked for, and writes nothing.

    Args:
        here: where.
        parent: its experiment.
        name: its name.
        asked: its ``properties``, read by the description.
        warnings: the fields that have no effect.

    Raises:
        BadRequestError: it breaks a rule.
        ConflictError: there is another job of this name.
    """
    refuse(_toolkit_problems(asked))
    properties = _complete(asked)
    old = find(here, parent, "jobs", name)
    if old is not None:
        again = _asked(redact.visible(properties), properties)
        return CheckedJob(_repeated(StoredJob.of(alive(old)), again).document, None)
    cluster = _cluster(here, properties["cluster"]["id"])
    refuse([*_problems(here, properties, cluster), *job_order.problems(here, parent, properties)])
    return CheckedJob(*_made(here, parent, name, properties, cluster, [*warnings, *_warnings(properties, cluster)]))


def keep(here: Here, parent: Record, checked: CheckedJob) -> Record:
    """Writes a checked job, unless it is there already.

    Raises:
        ConflictError: another job of this name has come meanwhile.
    """
    with here.store.transaction():
        old = here.store.get(checked.document["id"])
        if old is None and checked.private is not None:
            return here.store.put(checked.document["id"], "jobs", parent.id, checked.document, {**checked.private})
        if old is None:
            raise ConflictError(f"The job '{checked.document['name']}' was deleted meanwhile; send the request again.")
        return old if checked.private is None else _repeated(StoredJob.of(alive(old)), checked.private["asked"])


def keep_all(here: Here, parent: Record, checked: Sequence[CheckedJob]) -> None:
    """Writes checked jobs, unless they are there already.

    Raises:
        ConflictError: another job of one of the names has come meanwhile.
    """
    with here.store.transaction():
        there = Glance(here.store)
        there.expect([job.document["id"] for job in checked])
        new = [job for job in checked if job.private is not None and there.get(job.document["id"]) is None]
        rows = [(job.document["id"], job.document, {**job.private}) for job in new if job.private is not None]
        here.store.add("jobs", parent.id, rows)
        for job in checked:
            if job.private is None or there.get(job.document["id"]) is not None:
                keep(here, parent, job)


def _advised(here: Here, document: Document) -> Document:
    """Adds where its preparation would run to the document of a job that is only checked."""
    where = here.preparation() if document["properties"].get("jobPreparation") else ""
    if "containerSettings" in document["properties"] and here.containers.engine and "--prepare skip" not in where:
        where = where and f"in the job's container on each node ({here.containers.engine})"
    if where:
        added = document["properties"].get(additions.FIELD) or {}
        document["properties"][additions.FIELD] = {**added, additions.PREPARATION: where}
    return document


def _made(
    here: Here,
    parent: Record,
    name: str,
    properties: JobProperties,
    cluster: StoredCluster | None,
    warnings: Sequence[str],
) -> tuple[Document, PrivateJobFields]:
    """Returns the document of a new job and what is kept beside it."""
    wanted, unique = redact.visible(properties), str(uuid.uuid4())
    document = fresh(here, parent, "jobs", name, {"experimentName": parent.document["name"], **wanted, **_queued(here)})
    document["properties"]["cluster"] = {"id": cluster.id if cluster else ""}
    document["properties"]["jobOutputDirectoryPathSegment"] = mounts.segment(document["id"], unique)
    if warnings:
        document["properties"][additions.FIELD] = {additions.WARNINGS: list(warnings)}
    private: PrivateJobFields = {
        "uuid": unique,
        "keys": redact.account_keys(properties.get("mountVolumes", {})),
        "secrets": redact.secrets(properties.get("secrets", ())),
        "registry": redact.registry_password(properties),
        "asked": _asked(wanted, properties),
        "warnings": list(warnings),
        "queued": here.now(),
        "outputs": mounts.OUTPUTS,
    }
    return document, private


def _cluster(here: Here, id: str) -> StoredCluster | None:
    record = here.store.get(id)
    return StoredCluster.of(record) if record is not None and record.type == "clusters" else None


def _complete(properties: Document) -> JobProperties:
    kind = next(name for name in TOOL_TYPES if name in properties)
    toolkit = dict(properties[kind])
    if kind not in WITHOUT_PROCESS_COUNT:
        toolkit.setdefault("processCount", properties["nodeCount"])
    constraints = {**_WEEK, **properties.get("constraints", {})}
    completed = {**properties, kind: toolkit, "toolType": TOOL_TYPES[kind], "constraints": constraints}
    return cast(JobProperties, completed)


def _asked(shown: Document, properties: JobProperties) -> Document:
    """Returns what a repeated request is compared with: without secrets, and with the cluster's id in lower case."""
    return {**shown, "cluster": {"id": properties["cluster"]["id"].lower()}}


def _queued(here: Here) -> Document:
    return {"executionState": JobState.QUEUED, "executionStateTransitionTime": here.time()}


def _repeated(old: StoredJob, wanted: Document) -> Record:
    before = old.asked
    differ = sorted(name for name in {*before, *wanted} if before.get(name) != wanted.get(name))
    if differ:
        raise ConflictError(
            f"The job '{old.name}' exists already with other content ({', '.join(differ)}); "
            "use another name, or delete it first.",
            code="JobAlreadyExists",
            target=f"/properties/{differ[0]}",
        )
    return old.record


def _toolkit_problems(properties: Document) -> list[Problem]:
    given = [name for name in TOOL_TYPES if name in properties]
    if len(given) != 1:
        names = ", ".join(given) or "none"
        return [Problem("/properties", f"must hold exactly one of {', '.join(TOOL_TYPES)}; it holds: {names}")]
    return _count_problems(properties, given[0]) or _block_problems(properties, given[0])


def _block_problems(properties: Document, kind: str, gpus: int | None = None) -> list[Problem]:
    found = toolkits.faults(kind, properties[kind], properties["nodeCount"], gpus)
    return [Problem(f"/properties/{kind}/{name}".rstrip("/"), text) for name, text in found]


def _count_problems(properties: Document, kind: str) -> list[Problem]:
    nodes = properties["nodeCount"]
    ranks = properties[kind].get("processCount", max(nodes, 1))
    if nodes < 1:
        return [Problem("/properties/nodeCount", f"must be at least 1, not {nodes}")]
    if not nodes <= ranks <= MOST_RANKS:
        text = f"must be from nodeCount ({nodes}) to {MOST_RANKS}, not {ranks}"
        return [Problem(f"/properties/{kind}/processCount", text)]
    return []


def _problems(here: Here, properties: JobProperties, cluster: StoredCluster | None) -> list[Problem]:
    found = _cluster_problems(properties, cluster)
    volumes = mount_rules.problems(here, properties.get("mountVolumes", {}), "/properties/mountVolumes")
    found += volumes + mount_rules.variable_problems(properties, "/properties")
    if not found and cluster is not None:
        known = mounts.every(properties, cluster.properties)
        found += _worker_problems(properties, cluster)
        found += mount_rules.directory_problems(properties, known, "/properties")
        found += images.problems(properties, known) if here.containers.engine else []
    return found


def _worker_problems(properties: JobProperties, cluster: StoredCluster) -> list[Problem]:
    """Returns what the size of the cluster's nodes forbids."""
    gpus = vm_sizes.size(cluster.properties["vmSize"]).gpus
    return _block_problems({**properties}, toolkits.kind_of({**properties}), gpus)


def _warnings(properties: JobProperties, cluster: StoredCluster | None) -> Iterator[str]:
    known = mounts.every(properties, cluster.properties if cluster else {})
    return mount_rules.unmounted_warnings(properties, known)


def _cluster_problems(properties: JobProperties, cluster: StoredCluster | None) -> list[Problem]:
    id, nodes = properties["cluster"]["id"], properties["nodeCount"]
    if cluster is None:
        return [Problem("/properties/cluster/id", f"names the cluster {id}, which does not exist")]
    most = cluster.most_nodes
    if cluster.provisioning != ProvisioningState.SUCCEEDED:
        return [Problem("/properties/cluster/id", f"names a cluster that is {cluster.provisioning}: {id}")]
    if nodes > most > 0:  # Batch AI queued a job for a cluster of no nodes: it waits for a resize
        text = f"must be at most {most}, the most nodes that the cluster's scale allows, not {nodes}; resize it first"
        return [Problem("/properties/nodeCount", text)]
    return []


def terminate(here: Here, ask: Ask) -> Answer:
    """Asks for the end of a job; one that has ended stays as it is."""
    old, time = StoredJob.of(named(here, ask, "jobs")), here.time()
    job = here.store.revise(old, lambda job: _terminating(job, time))
    if job is None or job.has_ended:
        return Answer(200)
    return operations.begin(here, ask, "terminate", job.record)


def _terminating(job: StoredJob, time: str) -> StoredJob:
    going = job.state in (JobState.QUEUED, JobState.RUNNING)
    return job.in_state(JobState.TERMINATING, time) if going else job


def list_logins(here: Here, ask: Ask) -> Answer:
    """Lists the nodes that a job runs or ran on, with the address and the port at which each can be entered."""
    job = StoredJob.of(named(here, ask, "jobs"))
    return paging.page(ask, logins(here, _cluster(here, job.cluster), job.nodes), *BY_NODE)
