"""Jobs that wait for other jobs, from the client to the service and back."""

from __future__ import annotations

import os
from typing import Any

import pytest

from batchhvd import BadRequestError, Cause, SpecError
from batchhvd.cli import main as cli


def name() -> str:
    return f"o{os.urandom(4).hex()}"


def test_preparation_training_evaluation(place: Any) -> None:
    first, second, third = name(), name(), name()
    experiment, cluster = place.experiment, place.cluster
    one = experiment.create_job(first, place.spec("sleep 1; date +%s.%N"), cluster=cluster)
    two = experiment.create_job(second, place.spec("date +%s.%N"), cluster=cluster, after=[one])
    three = experiment.create_job(third, place.spec("date +%s.%N"), cluster=cluster, after=[first], after_ended=[two])
    verdict = two.explain()
    while two.refresh().state == "queued" and not two.errors:
        verdict = two.explain()
    if two.refresh().state == "queued":  # it may be quicker
        assert verdict.cause is Cause.WAITING_FOR_JOBS
        assert f"waits until {first} has succeeded" in str(verdict)
    three.wait(timeout=60)
    times = [float("".join(job.wait().stream())) for job in (one, two, three)]
    assert times == sorted(times)
    assert one.ended <= two.started and two.ended <= three.started
    assert two.spec.environment == {"BATCHHVD_AFTER": first}


def test_a_failure_is_told_to_what_waits_for_it(place: Any) -> None:
    bad = place.run("exit 3")
    waits = place.experiment.create_job(name(), place.spec("true"), cluster=place.cluster, after=[bad])
    anyhow = place.experiment.create_job(name(), place.spec("true"), cluster=place.cluster, after_ended=[bad])
    assert waits.wait("ended", timeout=60).state == "failed"
    verdict = waits.explain()
    assert verdict.cause is Cause.EARLIER_JOB_FAILED
    assert f"The job '{bad.name}', after which this one was to run, failed" in verdict.why
    assert anyhow.wait(timeout=60).state == "succeeded"


def test_what_is_not_there_is_refused_before_anything_happens(place: Any) -> None:
    with pytest.raises(BadRequestError, match="names the job 'nothere', which is not in this experiment"):
        place.experiment.create_job(name(), place.spec("true"), cluster=place.cluster, after=["nothere"])
    itself = name()
    with pytest.raises(BadRequestError, match=f"names the job '{itself}'"):
        place.experiment.create_job(itself, place.spec("true"), cluster=place.cluster, after=[itself])
    with pytest.raises(BadRequestError, match="must be names of jobs"):
        place.experiment.create_job(name(), place.spec("true"), cluster=place.cluster, after=["a b"])
    other = place.workspace.create_experiment(name()).job("x")
    with pytest.raises(SpecError, match="is in another experiment"):
        place.experiment.create_job(name(), place.spec("true"), cluster=place.cluster, after=[other])
    plan = place.experiment.plan_job(
        name(), place.spec("true", environment={"BATCHHVD_AFTER": "nothere"}), cluster=place.cluster
    )
    assert not plan.good


def test_the_command_line(place: Any, service: Any, tmp_path: Any, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setenv("BATCHHVD_ROOT", str(service.root))
    first = place.run("sleep 0.2")
    place.spec("true").write(tmp_path / "then.json")
    where = ["-g", place.group.name, "-w", "work", "-e", "tries", "-c", "nodes"]
    assert (
        cli.run(["job", "submit", str(tmp_path / "then.json"), "-n", name(), "--after", first.name, "--follow", *where])
        == 0
    )
    assert cli.run(["job", "submit", str(tmp_path / "then.json"), "-n", name(), "--after", "nope", *where]) == 1
    assert "names the job 'nope', which is not in this experiment" in capsys.readouterr().err
