"""Containers as mounts of jobs and clusters, and as resources of Python: one directory for clients and jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from attrs import define

import batchhvd
from batchhvd import (
    ClusterSpec,
    Container,
    CustomToolkit,
    Experiment,
    JobSpec,
    OutputDirectory,
    StorageAccount,
    Workspace,
)
from batchhvd.errors import NotFoundError, ServiceError, SpecError
from batchhvd.spec.mounts import Volume

ROOT, CLUSTER_ROOT = "$AZ_BATCHAI_JOB_MOUNT_ROOT", "$AZ_BATCHAI_MOUNT_ROOT"


@define
class Blobs:
    """A service with a container, and what a job needs."""

    service: Any
    account: StorageAccount
    container: Container
    workspace: Workspace
    experiment: Experiment

    def spec(self, command: str, volume: Volume, **more: Any) -> JobSpec:
        return JobSpec(task=CustomToolkit(command), nodes=1, logs=str(volume), volumes=[volume], **more)


@pytest.fixture
def place(launch: Callable[..., Any]) -> Iterator[Blobs]:
    service = launch()
    with batchhvd.local(service.root) as session:
        group = session.create_group("g")
        account = group.create_storage_account("speicher")
        workspace = group.create_workspace("w")
        workspace.create_cluster("c", vm_size="Standard_NC6", nodes=1).wait(timeout=30)
        yield Blobs(service, account, account.create_container("data"), workspace, workspace.create_experiment("e"))


def test_files_go_to_a_container_and_come_back(place: Blobs, tmp_path: Path) -> None:
    source = tmp_path / "quelle ü"
    (source / "deep").mkdir(parents=True)
    (source / "one.bin").write_bytes(b"1" * 5000)
    (source / "deep" / "two.txt").write_text("two")
    first = place.container.upload(source, to="in")
    assert (first.files, first.unchanged) == (2, 0)
    assert [entry.path for entry in place.container.files()] == ["in/quelle ü/deep/two.txt", "in/quelle ü/one.bin"]
    assert place.container.upload(source, to="in").unchanged == 2
    place.container.upload(source / "one.bin", to="model.bin")
    found = place.container.download("in", tmp_path / "back")
    assert found.files == 2
    assert (tmp_path / "back" / "in" / "quelle ü" / "deep" / "two.txt").read_text() == "two"
    assert place.container.download("in", tmp_path / "back").unchanged == 2
    place.container.download("**/*.bin", tmp_path / "some")
    assert sorted(path.name for path in (tmp_path / "some").rglob("*.bin")) == ["model.bin", "one.bin"]
    with pytest.raises(NotFoundError, match="has no blob at 'absent'"):
        place.container.download("absent", tmp_path / "none")
    with pytest.raises(SpecError):
        place.container.upload(tmp_path / "absent")
    assert not list(tmp_path.rglob("*.part"))
    place.container.delete_file("model.bin")
    assert not place.container.file_exists("model.bin")
    assert (
        [each.name for each in place.account.containers()]
        == ["data"]
        == [each.name for each in place.account.contents()]
    )
    _gone(place)


def test_a_job_reads_and_writes_a_container(place: Blobs, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("from the container\n")
    place.container.upload(tmp_path / "in.txt", to="in.txt")
    mount = place.container.mount("blobs")
    command = (
        f'cat "{ROOT}/blobs/in.txt"; echo 1 > "{ROOT}/blobs/written"; echo model > "$AZ_BATCHAI_OUTPUT_MODEL/m.h5"'
    )
    spec = place.spec(command, mount, outputs=[OutputDirectory("MODEL", str(mount), "models")])
    assert any(
        "blobfuse" in text
        for text in place.experiment.plan_job("j", spec, cluster=place.workspace.cluster("c")).warnings
    )
    job = place.experiment.create_job("j", spec, cluster=place.workspace.cluster("c")).wait(timeout=30)
    assert "".join(job.stream("stdout.txt")) == "from the container\n"
    assert [entry.path for entry in job.files("MODEL")] == ["m.h5"]
    assert next(iter(job.files("MODEL"))).read() == b"model\n"
    assert place.container.file_exists("written")
    key = place.account.read_key()
    assert key not in str(job.refresh().document)
    assert key not in (place.service.root / "service.log").read_text()


def test_a_cluster_mounts_a_container_too(place: Blobs) -> None:
    volume = {**place.container.mount("daten").to_document(), "credentials": {"accountKey": place.account.read_key()}}
    setup = {"nodeSetup": {"mountVolumes": {"azureBlobFileSystems": [volume]}}}
    described = ClusterSpec(vm_size="Standard_NC6", nodes=1, extra=setup)
    cluster = place.workspace.create_cluster("mounts", described).wait(timeout=30)
    spec = place.spec(f'echo seen > "{CLUSTER_ROOT}/daten/from-cluster"', place.container.mount())
    place.experiment.create_job("j", spec, cluster=cluster).wait(timeout=30)
    assert place.container.file_exists("from-cluster")
    assert place.account.read_key() not in str(cluster.refresh().document)


def test_what_cannot_be_mounted_is_refused_by_name(place: Blobs) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"containerName": "absent"}, "the container 'absent', which does not exist"),
        ({"accountName": "nobody1"}, "the storage account 'nobody1', which does not exist"),
        ({"credentials": {"accountKey": "AAAA"}}, "is not a key of the storage account"),
        ({"mountOptions": "-o ro,allow_other"}, "cannot be written"),
    ]
    key = {"credentials": {"accountKey": place.account.read_key()}}
    for settings, told in wrong:
        volume = Volume("azureBlobFileSystems", "b", {**dict(place.container.mount().settings), **key, **settings})
        with pytest.raises((ServiceError, NotFoundError), match=told):
            place.experiment.create_job("j", place.spec("true", volume), cluster=place.workspace.cluster("c"))
    assert not list(place.experiment.jobs())


def test_the_blob_port_answers_for_this_machine_only(place: Blobs) -> None:
    url = (place.service.root / "endpoint-blobs").read_text().strip()
    with httpx.Client(trust_env=False, base_url=url, timeout=20) as web:
        refused = web.get("/speicher/data/x", headers={"Host": "evil.example"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "HostNotAllowed")
        assert web.get("/speicher/data/x").status_code == 403
        assert web.get("/speicher/data/x", headers={"Host": "speicher.blob.core.windows.net"}).status_code == 403
    by_host = httpx.get(
        f"{place.service.url}/data/x", headers={"Host": "speicher.blob.core.windows.net"}, trust_env=False, timeout=20
    )
    assert by_host.headers["x-ms-error-code"] == "AuthenticationFailed"


def _gone(place: Blobs) -> None:
    """An account that was deleted has left nothing to the next one of its name."""
    place.account.delete(timeout=30)
    assert not (place.service.root / "containers" / "speicher").exists()
    again = place.account.group.create_storage_account("speicher")
    assert not list(again.containers())
