"""Jobs that people have tried, as they wrote them (tests/data/jobs): what each must do."""

from __future__ import annotations

from pathlib import Path

from attrs import evolve

from batchhvd import Job, JobSpec
from tests.wire.client.conftest import Place

JOBS = Path(__file__).parents[2] / "data" / "jobs"


def spec_of(place: Place, name: str) -> JobSpec:
    """Reads a job whose share is this place's."""
    account = place.share.account
    if "logs" not in [share.name for share in account.shares()]:
        account.create_share("logs")
    return JobSpec.read(JOBS / f"{name}.json", account=account)


def submit(place: Place, spec: JobSpec, name: str) -> Job:
    return place.experiment.create_job(name, spec, cluster=place.cluster).wait(timeout=60)


def text(job: Job, name: str = "stdout.txt") -> str:
    (found,) = [file for file in job.files() if file.name == name]
    return str(found.text())


def test_a_preparation_writes_into_the_working_directory(place: Place) -> None:
    spec = spec_of(place, "preparation-writes-working-directory")
    for number, nodes in enumerate((1, 1, 2)):
        job = submit(place, evolve(spec, nodes=nodes), f"prepared{number}")
        assert (job.state, text(job)) == ("succeeded", "hello\n"), job.explain()


def test_two_slashes_in_a_prefix_are_one(place: Place) -> None:
    spec = spec_of(place, "two-slashes-in-prefix")
    once = evolve(spec, logs=spec.logs.replace("//", "/"))
    for name, each in (("twice", spec), ("once", once)):
        assert text(submit(place, each, f"slashes{name}")) == "hi\n"
