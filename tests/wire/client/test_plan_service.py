"""A plan is good exactly if the service takes the job: what it would reject, it says itself, in a dry run."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import responses
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import batchhvd
from batchhvd import (
    BadRequestError,
    ConflictError,
    CustomMpi,
    CustomToolkit,
    Horovod,
    InputDirectory,
    JobSpec,
    Mount,
    NotFoundError,
    OutputDirectory,
    Volume,
)
from batchhvd.spec.mounts import ROOT

JOBS = sorted((Path(__file__).parents[2] / "data" / "jobs").glob("*.json"))
NUMBERS = itertools.count()

words = st.sampled_from(["a", "b c", "A_1", "", "A=B", "ü"])
paths = st.sampled_from(["data", "data/inner", "x", "$HOME", "y/z", "."])
below = st.sampled_from(["data/logs", "data", "x", "elsewhere", "data/../..", ""])
places = below.map(lambda path: f"{ROOT}/{path}") | st.sampled_from(["/tmp", "$AZ_BATCHAI_MOUNT_ROOT/data", "logs"])
counts = st.none() | st.sampled_from([1, 2, 3, 10_000, 10_001, 20_000])
tasks = st.one_of(
    st.builds(Horovod, st.just("/train.py"), processes=counts),
    st.builds(CustomMpi, st.sampled_from(["true", "hostname"]), processes=counts),
    st.builds(CustomToolkit, st.sampled_from(["true", "", "sleep 0"])),
)
directories = st.builds(OutputDirectory, st.sampled_from(["A", "B_2"]), places, st.none() | words)
secrets = st.dictionaries(words, st.sampled_from(["v", {"secretUrl": "u", "sourceVault": {"id": "/v"}}]), max_size=1)


@st.composite
def specs(draw: Any, account: str) -> JobSpec:
    """Jobs that are right, but for at most two things that may be wrong."""
    fine = Mount(account, "files", "data")
    shares = st.sampled_from(["files", "files", "nosuchshare"])
    more = st.builds(Mount, st.sampled_from([account, account, "nosuchaccount"]), shares, paths)
    volume = st.builds(Volume, st.just("unmanagedFileSystems"), st.just("m"), st.just({"mountCommand": "mount -t x"}))
    changes: dict[str, Any] = {
        "nodes": st.sampled_from([1, 3]),
        "task": tasks,
        "logs": places.filter(str.strip),
        "mounts": more.filter(lambda mount: mount.path != "data").map(lambda mount: [fine, mount]),
        "volumes": volume.map(lambda volume: [volume]),
        "environment": st.dictionaries(words, words, max_size=2),
        "secrets": secrets,
        "inputs": st.builds(InputDirectory, st.just("I"), places).map(lambda one: [one]),
        "outputs": st.lists(directories, max_size=2, unique_by=lambda one: one.id),
        "max_seconds": st.sampled_from([0.5, 60.0]),
    }
    chosen = draw(st.lists(st.sampled_from(sorted(changes)), max_size=2, unique=True))
    right: dict[str, Any] = {"nodes": 2, "task": CustomToolkit("true"), "logs": fine / "logs", "mounts": [fine]}
    return JobSpec(**{**right, **{name: draw(changes[name]) for name in chosen}})


def accepted(place: Any, name: str, spec: JobSpec) -> bool:
    try:
        place.experiment.create_job(name, spec, cluster=place.cluster).delete()
    except (BadRequestError, ConflictError, NotFoundError):
        return False
    return True


def test_a_plan_is_good_exactly_if_the_job_is_accepted(place: Any) -> None:
    @settings(
        max_examples=80,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(specs(place.share.account.name))
    def check(spec: JobSpec) -> None:
        name = f"p{next(NUMBERS)}"
        found = place.experiment.plan_job(name, spec, cluster=place.cluster)
        good = accepted(place, name, spec)
        assert (found.good, found.checked) == (good, True), (found.problems, spec)
        seen.append(good)

    seen: list[bool] = []
    check()
    assert 10 < sum(seen) < len(seen) - 10  # the jobs are of both kinds


def wrong(place: Any) -> dict[str, JobSpec]:
    fine, mount = place.spec("true", nodes=2), place.share.mount("data")
    inner = place.share.mount("data/inner")
    return {
        "/properties/horovodSettings/processCount": evolve(fine, task=Horovod("/a.py", processes=1)),
        "/properties/customToolkitSettings/commandLine": evolve(fine, task=CustomToolkit("")),
        "/properties/mountVolumes/azureFileShares/1/relativeMountPath": evolve(fine, mounts=[mount, inner]),
        "/properties/environmentVariables/0/name": evolve(fine, environment={"A=B": "c"}),
        "/properties/customMpiSettings/processCount": evolve(fine, task=CustomMpi("true", processes=20_000)),
        "/properties/stdOutErrPathPrefix": evolve(fine, logs=f"{ROOT}/elsewhere"),
        "/properties/secrets/0/valueSecretReference": evolve(
            fine, secrets={"KEY": {"secretUrl": "u", "sourceVault": {"id": "/v"}}}
        ),
        "/properties/mountVolumes/unmanagedFileSystems/0/mountCommand": evolve(
            fine, volumes=[Volume("unmanagedFileSystems", "m", {"mountCommand": "mount --bind /etc"})]
        ),
        "/properties/nodeCount": evolve(fine, nodes=3),
    }


def test_what_the_service_rejects_is_a_problem_of_the_plan(place: Any) -> None:
    assert place.experiment.plan_job("fine", place.spec("true", nodes=2), cluster=place.cluster).good
    for pointer, spec in wrong(place).items():
        found = place.experiment.plan_job("wrong", spec, cluster=place.cluster)
        assert not found.good and found.problems[0].startswith(pointer), (pointer, found.problems)
        assert not accepted(place, "wrong", spec)
    assert "--allow-directory" in str(
        place.experiment.plan_job("m", list(wrong(place).values())[-2], cluster=place.cluster)
    )


def test_a_plan_for_a_name_that_is_taken(place: Any) -> None:
    place.run("sleep 30", "planned-twice").wait("running", timeout=30)
    same = place.experiment.plan_job("planned-twice", place.spec("sleep 30"), cluster=place.cluster)
    other = place.experiment.plan_job("planned-twice", place.spec("sleep 31"), cluster=place.cluster)
    assert same.good and "exists already with other content" in other.problems[0]
    place.experiment.job("planned-twice").terminate()


# Written for this service: accepted if another test has made their share. Published ones ask for what is not there.
# The one of 2017 names directories below the mounts of its cluster, which Batch AI took unseen; here with a warning.
OF_TODAY = ("preparation-writes-working-directory", "two-slashes-in-prefix", "cntk-brainscript-2017")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_published_files(place: Any, path: Path) -> None:
    spec = JobSpec.read(path, account=place.share.account.name)
    found = place.experiment.plan_job(f"old-{path.stem}", spec, cluster=place.cluster)
    good = accepted(place, f"old-{path.stem}", spec)
    assert found.checked and found.good == good and bool(found.problems) is not good
    assert not good or path.stem in OF_TODAY


ARM = "https://arm.example"
CLUSTER = {"name": "c", "properties": {"vmSize": "STANDARD_D2", "scaleSettings": {"manual": {"targetNodeCount": 2}}}}


@pytest.fixture
def other() -> Iterator[responses.RequestsMock]:
    """A service that gives the answers of Batch AI; it would create a job, whatever the headers say."""
    with responses.RequestsMock(assert_all_requests_are_fired=False) as mock:
        mock.get(re.compile(".*/clusters/c"), json=CLUSTER)
        mock.put(re.compile(".*/jobs/.*"), json={"name": "j", "properties": {}})
        yield mock


class _Credential:
    def get_token(self, *_: str, **__: object) -> Any:
        from azure.core.credentials import AccessToken

        return AccessToken("t", 4_000_000_000)


def test_another_service_is_not_asked_for_a_dry_run(other: responses.RequestsMock) -> None:
    workspace = batchhvd.connect(ARM, _Credential(), subscription="s").group("g").workspace("w")
    spec = JobSpec(nodes=1, task=CustomToolkit(""), logs="/logs")
    found = workspace.experiment("e").plan_job("j", spec, cluster=workspace.cluster("c"))
    assert not found.checked and any("cannot check a job" in text for text in found.warnings)
    assert [call.request.method for call in other.calls] == ["GET"]


def test_a_service_of_batchhvd_is_asked_with_the_header(other: responses.RequestsMock) -> None:
    other.replace(
        responses.GET, re.compile(".*/clusters/c"), json=CLUSTER, headers={"x-batchhvd-service": batchhvd.__version__}
    )
    workspace = batchhvd.connect(ARM, _Credential(), subscription="s").group("g").workspace("w")
    spec = JobSpec(nodes=1, task=CustomToolkit("true"), logs="/logs")
    assert workspace.experiment("e").plan_job("j", spec, cluster=workspace.cluster("c")).checked
    put = other.calls[-1].request
    assert (put.method, put.headers["x-batchhvd-dry-run"]) == ("PUT", "true")
    body: Any = put.body
    assert json.loads(body)["properties"]["nodeCount"] == 1
