"""Submitting a job again: never an old result as if it were the new one."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from batchhvd import ConflictError, CustomToolkit, Experiment, FileShare, Job, JobSpec, SpecError
from batchhvd.cli import main as cli
from batchhvd.resources import runs
from batchhvd.resources.job import Job as JobType


@pytest.fixture
def experiment(place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    monkeypatch.chdir(tmp_path)
    made: Experiment = place.workspace.create_experiment(f"e{os.urandom(4).hex()}")
    return made


@pytest.fixture
def share(place: Any) -> FileShare:
    found: FileShare = place.share
    return found


def script(share: FileShare, text: str, seconds: float = 0) -> JobSpec:
    """A job of one uploaded script."""
    Path("own.sh").write_text(f"echo {text}; sleep {seconds}\n")
    share.upload("own.sh")
    mount = share.mount("data")
    task = CustomToolkit(f"sh {mount / 'own.sh'}")
    return JobSpec(nodes=1, task=task, mounts=[mount], logs=mount / "logs", environment={"A": "b"})


def output(job: Job) -> str:
    return "".join(job.wait(timeout=60).stream())


def test_a_new_script_under_an_old_name_is_not_passed_off_as_run(experiment: Experiment, place: Any) -> None:
    spec = script(place.share, "version 1")
    assert output(experiment.create_job("again", spec, cluster=place.cluster)) == "version 1\n"
    with pytest.raises(
        ConflictError, match=r"has ended \(succeeded\) at 20.* UTC, with the same specification\. Nothing"
    ):
        experiment.create_job("again", spec, cluster=place.cluster)
    spec = script(place.share, "version 2")
    with pytest.raises(ConflictError, match=r"since then data/own\.sh has changed\. Nothing was started: .*rerun=True"):
        experiment.create_job("again", spec, cluster=place.cluster)
    assert [job.name for job in experiment.jobs()] == ["again"]
    second = experiment.create_job("again", spec, cluster=place.cluster, rerun=True)
    assert (second.name, output(second)) == ("again-0002", "version 2\n")
    assert output(experiment.job("again")) == "version 1\n"
    third = experiment.create_job("again-0002", spec, cluster=place.cluster, rerun=True)
    assert third.name == "again-0003"
    fresh = experiment.create_job("again", spec, cluster=place.cluster, replace=True)
    assert (fresh.name, output(fresh)) == ("again", "version 2\n")
    with pytest.raises(ConflictError, match="another specification"):
        experiment.create_job("again", place.spec("true"), cluster=place.cluster)


def test_a_job_that_has_not_ended_is_returned_if_it_is_the_same(experiment: Experiment, place: Any) -> None:
    spec = script(place.share, "slow", seconds=300)
    for rerun in (False, True):
        job = experiment.create_job("slow", spec, cluster=place.cluster, rerun=rerun)
        with pytest.warns(UserWarning, match=rf"job '{job.name}' is (queued|running) already; nothing was started"):
            same = experiment.create_job(job.name, spec, cluster=place.cluster)
        assert same == job and same.spec == spec and place.cluster
        assert experiment.plan_job(job.name, spec, cluster=place.cluster).good
        job.terminate()
    job = experiment.create_job("other", spec, cluster=place.cluster)
    changed = script(place.share, "changed", seconds=300)
    with pytest.raises(ConflictError, match=r"with an earlier version of data/own\.sh\. Nothing was started"):
        experiment.create_job("other", changed, cluster=place.cluster)
    assert (
        output(experiment.create_job("other", script(place.share, "new"), cluster=place.cluster, replace=True))
        == "new\n"
    )


def test_names_are_generated(experiment: Experiment, place: Any) -> None:
    spec = place.spec("true")
    made = [experiment.create_job(None, spec, cluster=place.cluster).name for _ in range(2)]
    assert made == [f"{experiment.name}-0001", f"{experiment.name}-0002"]
    assert experiment.next_name("x") == "x-0001"
    with pytest.raises(SpecError, match="either kept or replaced"):
        experiment.create_job("x", spec, cluster=place.cluster, rerun=True, replace=True)


@pytest.mark.parametrize(
    ("name", "taken", "expected"),
    [
        ("a", [], "a-0001"),
        ("a", ["A"], "a-0002"),
        ("a", ["a", "a-0002", "a-2", "b-0009"], "a-0003"),
        ("a-0002", ["a", "a-0009", "A-0012"], "a-0013"),
        ("a", ["a-9999"], "a-10000"),
        ("a-10000", ["a-10000"], "a-10001"),
    ],
)
def test_the_next_name(name: str, taken: list[str], expected: str) -> None:
    assert runs.next_name(name, taken) == expected


def test_two_programs_never_share_a_run(experiment: Experiment, place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, next_name = place.spec("true"), Experiment.next_name
    experiment.create_job("x", spec, cluster=place.cluster)
    experiment.create_job("x", spec, cluster=place.cluster, rerun=True)
    late = ["x-0002"]  # what the other program has taken since

    def behind(self: Experiment, name: str) -> str:
        return late.pop() if late else next_name(self, name)

    monkeypatch.setattr(Experiment, "next_name", behind)
    assert experiment.create_job("x", spec, cluster=place.cluster, rerun=True).name == "x-0003"


def test_what_is_noted_is_not_shown(experiment: Experiment, place: Any) -> None:
    spec = script(place.share, "noted")
    job = experiment.create_job("noted", spec, cluster=place.cluster, rerun=True).wait(timeout=60)
    found = JobType(experiment, "noted").refresh().spec
    assert found and found == spec and re.fullmatch("[0-9a-f]{12}", found.content["data/own.sh"])
    assert "BATCHHVD" not in str(found.to_document()) and job.name == "noted"


def test_the_command_line(
    experiment: Experiment,
    place: Any,
    service: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in (
        ("ROOT", service.root),
        ("GROUP", place.group.name),
        ("WORKSPACE", place.workspace.name),
        ("EXPERIMENT", experiment.name),
        ("CLUSTER", place.cluster.name),
    ):
        monkeypatch.setenv(f"BATCHHVD_{name}", str(value))

    def line(*words: str, code: int = 0) -> tuple[str, str]:
        assert cli.run(["job", *words]) == code, capsys.readouterr()
        found = capsys.readouterr()
        return found.out, found.err

    script(place.share, "one").write("job.json")
    assert line("submit", "job.json", "--name", "own", "--follow")[0] == "one\n"
    script(place.share, "two").write("job.json")
    _, said = line("submit", "job.json", "--name", "own", "--follow", code=1)
    assert "data/own.sh has changed" in said and "--rerun" in said and "--replace" in said
    assert "rerun=True" not in said and "Traceback" not in said
    out, said = line("submit", "job.json", "--name", "own", "--rerun", "--follow")
    assert out == "two\n" and "job own exists; this run of it is job own-0002" in said
    assert line("submit", "job.json", "--name", "own", "--replace", "--follow")[0] == "two\n"
    line("submit", "job.json", "--name", "own", "--replace", "--rerun", code=2)
    assert [line("submit", "job.json", "--follow")[0] for _ in range(2)] == [
        "two\n",
        "two\n",
    ]  # without a name: a new run
    assert {job.name for job in experiment.jobs()} == {"own", "own-0002", "job", "job-0002"}
    assert cli.run(["plan", "job.json"]) == 0
    assert cli.run(["plan", "job.json", "-n", "own"]) == 1 and "--rerun" in capsys.readouterr().out
