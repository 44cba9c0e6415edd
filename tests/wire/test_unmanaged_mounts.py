"""Directories of the machine as mounts of jobs and clusters: only where the owner of the service allows them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import define

import batchhvd
from batchhvd import ClusterSpec, CustomToolkit, Experiment, JobSpec, Mount, Workspace
from batchhvd.errors import ServiceError
from batchhvd.spec.mounts import Volume
from batchhvd.wire.facts.causes import Cause

ROOT, CLUSTER_ROOT = "$AZ_BATCHAI_JOB_MOUNT_ROOT", "$AZ_BATCHAI_MOUNT_ROOT"


@define
class Place:
    """A service that allows one directory, and what a job needs."""

    data: Path
    service: Any
    launch: Callable[..., Any]
    workspace: Workspace
    experiment: Experiment
    mount: Mount

    def volume(self, directory: Path | str, path: str = "daten", flag: str = "--bind") -> Volume:
        command = f"mount {flag} {shlex.quote(str(directory))}"
        return Volume("unmanagedFileSystems", path, {"mountCommand": command})

    def spec(self, command: str, *volumes: Volume, **more: Any) -> JobSpec:
        found = {"nodes": 1, "mounts": [self.mount], "logs": str(self.mount), "volumes": volumes, **more}
        return JobSpec(task=CustomToolkit(command), **found)


@pytest.fixture
def place(tmp_path: Path, launch: Callable[..., Any]) -> Iterator[Place]:
    data = tmp_path / "daten ü"
    (data / "below").mkdir(parents=True)
    (data / "below" / "file").write_text("from the machine")
    service = launch("--allow-directory", str(data))
    with batchhvd.local(service.root) as session:
        group = session.create_group("g")
        share = group.create_storage_account("speicher").create_share("ablage")
        workspace = group.create_workspace("w")
        workspace.create_cluster("c", vm_size="Standard_NC6", nodes=1).wait(timeout=30)
        yield Place(data, service, launch, workspace, workspace.create_experiment("e"), share.mount("ablage"))


def test_a_job_reads_and_writes_an_allowed_directory(place: Place) -> None:
    command = f'cat "{ROOT}/daten/file"; echo back > "{ROOT}/daten/written"; cat "{ROOT}/all/below/written"'
    spec = place.spec(command, place.volume(place.data / "below"), place.volume(place.data, "all", "-o bind"))
    job = place.experiment.create_job("j", spec, cluster=place.workspace.cluster("c")).wait(timeout=30)
    assert "".join(job.stream("stdout.txt")) == "from the machineback\n"
    assert (place.data / "below" / "written").read_text() == "back\n"
    job.delete(timeout=30)
    assert (place.data / "below" / "file").exists()


def test_a_cluster_mounts_one_too(place: Place) -> None:
    setup = {"nodeSetup": {"mountVolumes": {"unmanagedFileSystems": [place.volume(place.data).to_document()]}}}
    described = ClusterSpec(vm_size="Standard_NC6", nodes=1, extra=setup)
    cluster = place.workspace.create_cluster("mounts", described).wait(timeout=30)
    spec = place.spec(f'cat "{CLUSTER_ROOT}/daten/below/file"')
    job = place.experiment.create_job("j", spec, cluster=cluster).wait(timeout=30)
    assert "".join(job.stream("stdout.txt")) == "from the machine"


def test_all_others_are_refused_with_option_and_path(place: Place, tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (place.data / "out").symlink_to(tmp_path / "secret")
    for directory in (tmp_path, tmp_path / "secret", f"{place.data}/../secret", place.data / "out", "/"):
        error = refused(place, place.volume(directory))
        assert error.target == "/properties/mountVolumes/unmanagedFileSystems/0/mountCommand"
        assert f"--allow-directory '{Path(directory).resolve()}'" in str(error)
    (place.data / "loop").symlink_to("loop")
    for name in ("none", "x" * 300, "loop", "below/file"):
        assert "does not exist" in str(refused(place, place.volume(place.data / name)))


def test_commands_are_not_run_and_mounts_keep_the_rules(place: Place) -> None:
    other = ["mount -t nfs 10.0.0.4:/data", "mount --bind relative", "mount --bind", "touch /x; mount --bind /", "'"]
    for command in other:
        error = refused(place, Volume("unmanagedFileSystems", "daten", {"mountCommand": command}))
        assert "mount --bind DIRECTORY" in str(error)
    assert "overlaps" in str(refused(place, place.volume(place.data, "ablage/below")))
    error = refused(place, place.volume(place.data), logs=f"{ROOT}/daten/logs")
    assert error.target == "/properties/stdOutErrPathPrefix" and "file service does not show" in str(error)


def test_a_directory_that_is_allowed_no_more(place: Place) -> None:
    cluster = place.workspace.cluster("c")
    place.experiment.create_job("blocker", place.spec("sleep 60"), cluster=cluster).wait("running", timeout=30)
    job = place.experiment.create_job("j", place.spec("true", place.volume(place.data)), cluster=cluster)
    place.service.stop()
    place.launch(root=place.service.root)
    place.experiment.job("blocker").terminate()
    verdict = job.wait("ended", timeout=30).explain()
    assert verdict.cause is Cause.MOUNT_FAILED and "--allow-directory" in verdict.why


def refused(place: Place, *volumes: Volume, **more: Any) -> ServiceError:
    """Returns why a job is refused."""
    with pytest.raises(ServiceError) as found:
        place.experiment.create_job("j", place.spec("true", *volumes, **more), cluster=place.workspace.cluster("c"))
    assert found.value.status == 400
    return found.value


def test_an_option_that_names_no_directory(launch: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="is not a directory"):  # which is how the tests' start says that it ended
        launch("--allow-directory", str(tmp_path / "none"))
