"""What the service keeps of jobs and clusters as values: they are read and written without loss."""

from __future__ import annotations

import json
from typing import Any

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from batchhvd.service.store import documents
from batchhvd.service.store.cluster import StoredCluster
from batchhvd.service.store.job import Execution, StoredJob
from batchhvd.service.store.records import Record
from batchhvd.wire.facts.states import JobState

TEXT = st.text(max_size=8)
ERROR = st.builds(lambda code, text: documents.error(code, text, Node="n"), TEXT, TEXT)
EXECUTION = st.builds(
    Execution,
    TEXT.filter(bool),
    TEXT,
    st.none() | st.integers(0, 255),
    st.lists(ERROR, max_size=2).map(tuple),
    st.booleans(),
)
PAST = st.fixed_dictionaries({"attempt": st.integers(1, 9), "ended": st.floats(0, 2e9), "error": ERROR})
NAMES = st.lists(TEXT, max_size=3).map(tuple)
REASONS = st.dictionaries(TEXT, TEXT, max_size=3)

JOB: dict[str, Any] = {
    "cluster": {"id": "/C"},
    "nodeCount": 2,
    "executionState": "queued",
    "executionStateTransitionTime": "then",
    "creationTime": "2027-01-15T08:00:00.000Z",
    "provisioningState": "succeeded",
}
CLUSTER: dict[str, Any] = {
    "scaleSettings": {"manual": {"targetNodeCount": 0}},
    "allocationState": "resizing",
    "allocationStateTransitionTime": "then",
    "currentNodeCount": 0,
    "nodeStateCounts": {"idleNodeCount": 0},
    "provisioningState": "succeeded",
}


WAITS = {"code": "Waiting", "message": "The job waits.", "details": []}


def record(properties: dict[str, Any], **private: Any) -> Record:
    return Record("/Id", "type", "/", {"id": "/Id", "name": "n", "properties": properties}, private, 7)


def through_the_disk(written: Record) -> Record:
    return evolve(
        written, document=json.loads(json.dumps(written.document)), private=json.loads(json.dumps(written.private))
    )


@given(
    state=st.sampled_from(list(JobState)),
    execution=st.none() | EXECUTION,
    nodes=NAMES,
    attempt=st.integers(0, 5),
    handle=TEXT,
    history=st.lists(PAST, max_size=2).map(tuple),
    ending=st.sampled_from(["", "requeue", "terminate"]),
)
def test_a_job_survives_the_disk(**fields: Any) -> None:
    if fields["state"] == JobState.QUEUED and fields["execution"]:  # which has not begun, and may tell why it waits
        errors = fields["execution"].errors
        fields["execution"] = Execution(errors=errors) if errors else None
    job = evolve(StoredJob.of(record(JOB, uuid="u", queued=1.0)), **fields)
    again = StoredJob.of(through_the_disk(job.to_record()))
    assert again == job
    assert (again.uuid, again.waiting_since, again.cluster, again.key) == ("u", 1.0, "/c", "/id")
    properties = again.record.document["properties"]
    assert list(properties)[: len(JOB)] == list(JOB)  # the order of what was there stays


@given(
    names=NAMES,
    leaving=NAMES,
    preparing=REASONS,
    unusable=REASONS,
    broken=REASONS,
    idle=st.dictionaries(TEXT, st.floats(0, 2e9), max_size=2),
    target=st.none() | st.integers(0, 9),
    next=st.integers(1, 99),
    errors=st.none() | st.lists(ERROR, max_size=2).map(tuple),
)
def test_a_cluster_survives_the_disk(**fields: Any) -> None:
    cluster = evolve(StoredCluster.of(record(CLUSTER, names=[])), **fields)
    again = StoredCluster.of(through_the_disk(cluster.to_record()))
    assert again == cluster
    properties = again.record.document["properties"]
    assert list(properties)[: len(CLUSTER)] == list(CLUSTER)
    assert properties["currentNodeCount"] == len(cluster.names)


def test_a_record_without_news_is_written_as_it_was() -> None:
    for value in (
        StoredJob.of(record({**JOB, "batchhvd": {"errors": [WAITS]}}, uuid="u", terminate=False, nodes=[])),
        StoredJob.of(record(JOB, uuid="u")),
        StoredCluster.of(record({**CLUSTER, "errors": []}, names=[], target=0, next=1)),
    ):
        assert value.to_record() == value.record


def test_a_handle_that_is_gone_leaves_nothing_behind() -> None:
    job = evolve(StoredJob.of(record(JOB, handle="h")), handle="")
    assert "handle" not in job.to_record().private
