"""Many jobs with one request."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import requests

from batchhvd import BadRequestError, ConflictError, sweeps
from batchhvd.resources.sweep import Sweep
from batchhvd.wire import bulk


@pytest.fixture
def experiment(place: Any) -> Any:
    return place.workspace.create_experiment(f"e{os.urandom(4).hex()}")


def body(place: Any, command: str = "true") -> Any:
    return place.spec(command)._request(place.cluster.id, {place.share.account.name: place.share.account.read_key()})


def _all(experiment: Any, jobs: Any) -> None:
    with experiment._asking("given jobs"):
        bulk.create_jobs(experiment._connection, experiment.id, jobs)


def test_all_are_created_and_a_repetition_creates_what_is_missing(place: Any, experiment: Any) -> None:
    jobs = [(f"j{number}", body(place, f"echo {number}")) for number in range(5)]
    _all(experiment, jobs[:3])
    _all(experiment, jobs)
    assert sorted(job.name for job in experiment.jobs()) == [f"j{number}" for number in range(5)]
    assert "".join(experiment.job("j4").wait(timeout=60).stream()) == "4\n"
    one = experiment.create_job("j1", place.spec("echo 1"), cluster=place.cluster, rerun=True).wait(timeout=60)
    two = experiment.job("j1").wait(timeout=60)
    alike = one.document["properties"].keys() - {"environmentVariables"}  # which tells the two runs apart
    assert alike == two.document["properties"].keys()  # as a PUT would have made it


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda jobs: [*jobs[:4], (jobs[4][0], {"properties": {**jobs[4][1]["properties"], "nodeCount": 99}})], "j4"),
        (lambda jobs: [*jobs, ("a b", jobs[0][1])], "Job 'a b'"),
        (lambda jobs: [*jobs, jobs[0]], "The job 'j0' is there twice"),
        (lambda jobs: [*jobs, ("x", {"properties": {}})], "Job 'x'"),
        (lambda jobs: [("y", {})], "two fields, name and properties"),
    ],
)
def test_what_is_wrong_with_one_is_named_and_none_is_created(
    place: Any, experiment: Any, change: Any, message: str
) -> None:
    jobs = [(f"j{number}", body(place)) for number in range(5)]
    with pytest.raises(BadRequestError, match=message):
        _all(experiment, change(jobs))
    assert list(experiment.jobs()) == []


@pytest.mark.parametrize("count", [0, 1001])
def test_a_request_has_a_number_of_jobs(experiment: Any, count: int) -> None:
    url = f"{experiment._connection.endpoint}{experiment.id}/jobs"
    entries = [{"name": f"k{number}", "properties": {}} for number in range(count)]
    with pytest.raises(BadRequestError, match="a list of 1 to 1000 jobs"), experiment._asking("given jobs"):
        bulk._send(experiment._connection, url, json.dumps({"jobs": entries}))


def test_large_jobs_go_in_several_requests(place: Any, experiment: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    send = bulk._send

    def counted(connection: Any, url: str, body: str) -> None:
        sizes.append(len(json.loads(body)["jobs"]))
        send(connection, url, body)

    monkeypatch.setattr(bulk, "_send", counted)
    large = place.spec("true", environment={"NOTE": "x" * 100_000})._request(
        place.cluster.id, {place.share.account.name: place.share.account.read_key()}
    )
    send_all = [(f"j{number}", large) for number in range(50)]  # 5 MB, more than a request may have
    _all(experiment, send_all)
    assert sum(sizes) == 50 and len(sizes) == 3
    assert len(list(experiment.jobs())) == 50
    experiment.delete()


def test_another_job_of_a_name_is_not_replaced(place: Any, experiment: Any) -> None:
    _all(experiment, [("j", body(place, "echo old"))])
    with pytest.raises(ConflictError, match="Job 'j': The job 'j' exists already with other content"):
        _all(experiment, [("i", body(place)), ("j", body(place, "echo new"))])
    assert [job.name for job in experiment.jobs()] == ["j"]


def test_nobody_creates_jobs_without_the_token(place: Any, experiment: Any) -> None:
    url = f"{experiment._connection.endpoint}{experiment.id}/jobs?api-version=2018-05-01"
    assert requests.post(url, json={"jobs": []}, timeout=30).status_code == 401
    gone = f"{experiment._connection.endpoint}{experiment.id}x/jobs?api-version=2018-05-01"
    headers = {"Authorization": "Bearer " + experiment._connection.credential.get_token("").token}
    assert requests.post(gone, json={"jobs": []}, headers=headers, timeout=30).status_code == 404


def test_a_service_that_does_not_know_it_gets_the_jobs_one_by_one(
    place: Any, experiment: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sweep, "_knows_bulk", lambda self: False)
    monkeypatch.setattr(bulk, "create_jobs", lambda *arguments: pytest.fail("it was asked for many at once"))
    sweep = experiment.sweep("s", place.spec("true {i}"), sweeps.grid(i=range(12)), cluster=place.cluster).submit()
    assert sorted(job.name for job in experiment.jobs()) == [f"s_{number:04}" for number in range(1, 13)]
    assert all(trial.state != "planned" for trial in sweep)


def test_the_next_request_is_prepared_while_the_service_works_on_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    began = threading.Event()
    sent: list[list[str]] = []

    def send(connection: Any, url: str, body: str) -> None:
        if not sent:
            assert began.wait(20), "nothing more was taken from the jobs while this request was under way"
        sent.append([job["name"] for job in json.loads(body)["jobs"]])

    def jobs() -> Iterator[tuple[str, Any]]:
        for number in range(2 * bulk.SLICE):
            if number == bulk.SLICE + 1:  # the first request's jobs, and one more that shows that it is full, are taken
                began.set()
            yield f"j{number}", {"properties": {}}

    monkeypatch.setattr(bulk, "_send", send)
    bulk.create_jobs(SimpleNamespace(endpoint="http://127.0.0.1:1"), "/e", jobs())  # type: ignore[arg-type]
    assert [name for names in sent for name in names] == [f"j{number}" for number in range(2 * bulk.SLICE)]
