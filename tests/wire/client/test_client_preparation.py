"""What a job's preparation prints is seen while it runs, and the job says that it prepares."""

from __future__ import annotations

import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from batchhvd import Job
from batchhvd.cli import job as verbs
from batchhvd.cli import main as cli
from batchhvd.service.status import verdict
from batchhvd.service.store.job import StoredJob
from batchhvd.service.store.records import Store
from tests.support.waiting import until

if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0:
    pytest.skip("a preparation runs in an overlay, which needs root and mounts", allow_module_level=True)

SLOW = "echo begin; echo aside >&2; while [ ! -e $AZ_BATCHAI_JOB_MOUNT_ROOT/data/go{0} ]; do sleep 0.1; done; echo end"


@pytest.fixture
def go(place: Any, tmp_path: Any) -> Any:
    """A preparation that waits, and a call that lets it end."""
    name = os.urandom(4).hex()

    def release() -> None:
        (tmp_path / f"go{name}").write_text("x")
        place.share.upload(tmp_path / f"go{name}")

    return SLOW.format(name), release


def summary(place: Any) -> Any:
    """What the status page shows, once the service has noted that the node prepares."""
    store = Store(Path(place.group._connection.root, "state.sqlite"))
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        jobs = [StoredJob.of(record) for record in store.active()]
        if any(job.is_preparing for job in jobs):
            return [verdict.of_job(job.properties, preparing=job.preparation) for job in jobs if job.is_preparing]
        time.sleep(0.1)
    return []


def test_a_preparation_is_seen_while_it_runs(place: Any, go: Any) -> None:
    command, release = go
    job: Job = place.run("echo run; sleep 1", preparation=command).wait("running", timeout=30)
    told: list[str] = []
    pieces, found = job.stream_preparation(report=told.append), ""
    while "begin\n" not in found or "aside\n" not in found:
        found += next(pieces)
    assert "end" not in found and job.state == "running"
    assert job.describe() == f"running, preparing: {command[:60]} …"
    assert f"and is preparing: {command[:60]}" in job.explain().why
    shown = {one.name: one for one in place.experiment.jobs()}[job.name]
    shown._repr_html_()
    assert "preparing: echo begin" in shown._repr_html_() and "preparing" in repr(shown)
    assert "It is being prepared: echo begin" in str(summary(place))
    with ThreadPoolExecutor(1) as reader:
        rest = reader.submit("".join, pieces)
        until(lambda: any("preparing: echo begin" in line for line in told))  # while it waits for more
        release()
        assert found + rest.result(60) in ("begin\naside\nend\n", "aside\nbegin\nend\n")
    deadline = time.monotonic() + 30
    while job.refresh().describe() == "running" and time.monotonic() < deadline:
        time.sleep(0.1)
    assert "".join(job.stream()) == "run\n" and "preparing" not in job.describe()
    assert "".join(job.stream_preparation()).count("begin") == 1  # also afterwards
    assert "preparing" not in job.explain().why


def test_a_stream_tells_that_the_job_prepares(place: Any, go: Any) -> None:
    command, release = go
    told: list[str] = []

    def report(line: str) -> None:
        told.append(line)
        if "preparing: echo begin" in line:
            release()

    job = place.run("echo run", preparation=command)
    assert "".join(job.stream(report=report, timeout=60)) == "run\n"
    assert any("preparing: echo begin" in line for line in told), told


def test_a_preparation_that_fails_or_is_not_there(place: Any) -> None:
    job = place.run("echo run", preparation="echo broken; exit 3")
    assert "".join(job.stream_preparation()) == "broken\n"
    assert job.wait("ended", timeout=30).state == "failed"
    assert list(place.run("true").stream_preparation()) == []


def test_follow_shows_a_preparation_beside_the_log(
    place: Any, go: Any, service: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    command, release = go
    monkeypatch.setenv("BATCHHVD_ROOT", str(service.root))
    comes = verbs._comes
    monkeypatch.setattr(verbs, "_comes", lambda found: (comes(found), release())[0])
    job = place.run("echo run", preparation=command).wait("running", timeout=30)
    while not job.describe().startswith("running, preparing"):
        time.sleep(0.1)
    where = ["-g", place.group.name, "-w", place.workspace.name, "-e", place.experiment.name]
    assert cli.run(["job", "logs", job.name, *where]) == 0
    out, err = capfd.readouterr()
    assert out == "run\n" and sorted(err.splitlines()) == ["aside", "begin", "end", f"preparation: {command}"]
    assert cli.run(["job", "logs", job.name, *where]) == 0  # afterwards the log alone
    assert capfd.readouterr() == ("run\n", "")
