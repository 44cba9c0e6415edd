"""What becomes of ``containerSettings``: problems, the task's container, the sentence that says that it is not run."""

from __future__ import annotations

from typing import Any

import pytest

from batchhvd.service.batchai import images, redact
from batchhvd.service.mounts.model import MountPoint
from batchhvd.service.scheduler.task import Site
from batchhvd.wire.facts.containers import Containers
from batchhvd.wire.facts.mount_roots import JOB_ROOT
from tests.unit.service.test_environment_task import plan

PODMAN = Site(python="/opt/py/bin/python3", containers=Containers("podman"))
SHARE = MountPoint(JOB_ROOT, "ext", "acc", "share")
ARCHIVE = f"oci-archive:${JOB_ROOT}/ext/image.tar"


def settings(image: str = "small:1", **source: Any) -> dict[str, Any]:
    return {"imageSourceRegistry": {"image": image, **source}}


def problems(block: dict[str, Any]) -> list[str]:
    found = images.problems({"containerSettings": block}, [SHARE])
    return [f"{problem.pointer.removeprefix('/properties/containerSettings')} {problem.text}" for problem in found]


@pytest.mark.parametrize(
    "image",
    [
        *("ubuntu", "tensorflow/tensorflow:1.8.0-gpu", "localhost:5000/a/b:1", "Registry.example.org/x_y/z.w:V1"),
        *("ubuntu@sha256:" + "0" * 64, ARCHIVE, f"docker-archive:${{{JOB_ROOT}}}/ext/a b.tar"),
    ],
)
def test_names_and_archives_that_are_good(image: str) -> None:
    assert problems(settings(image, serverUrl="https://registry.example.org/")) == []


@pytest.mark.parametrize(
    "image",
    [
        *("-v/:/host", "--privileged", "", "a b", "a;b", "a\n", "$X", "dir:/etc", "docker-daemon:x:y"),
        *("oci-archive:/etc/image.tar", "oci-archive:", f"oci-archive:${JOB_ROOT}/other/x", f"{ARCHIVE}/../../../x"),
    ],
)
def test_names_that_are_options_or_lead_elsewhere_are_refused(image: str) -> None:
    (problem,) = problems(settings(image))
    assert problem.startswith("/imageSourceRegistry/image must ")


def test_registries_and_sizes_that_are_none_are_refused() -> None:
    bad = {**settings(serverUrl="-x", credentials={"username": "u", "passwordSecretReference": {}}), "shmSize": "-1"}
    assert [text.partition(" ")[0] for text in problems(bad)] == [
        "/imageSourceRegistry/serverUrl",
        "/imageSourceRegistry/credentials/passwordSecretReference",
        "/shmSize",
    ]
    assert problems(settings(credentials={"username": "u"})) == ["/imageSourceRegistry/credentials/password is missing"]
    assert problems({**settings(), "shmSize": "2g"}) == []


def test_the_task_has_a_container_with_the_password_and_shows_it_nowhere() -> None:
    source: dict[str, Any] = {"serverUrl": "https://r.example.org/", "credentials": {"username": "u"}}
    block = {**settings(**source), "shmSize": "1g"}
    task = plan(PODMAN, containerSettings=block, private={"outputs": "outputs", "registry": "hunter2"}).task
    assert task.container == {
        **{"engine": "podman", "image": "small:1", "server": "r.example.org", "username": "u"},
        **{"password": "hunter2", "shm": "1g"},
    }
    assert "hunter2" not in repr(task) and not any("image" in notice for notice in task.notices)
    secret = {**settings(credentials={"username": "u", "password": "hunter2"})}
    assert redact.registry_password({"containerSettings": secret}) == "hunter2"
    assert "hunter2" not in str(redact.visible({"containerSettings": secret}))


def test_in_an_image_path_and_python_are_the_images_own() -> None:
    horovod = {"pythonScriptFilePath": f"${JOB_ROOT}/ext/a.py"}
    task = plan(PODMAN, containerSettings=settings(), horovodSettings=horovod).task
    assert "/opt/py" not in task.command + str(task.environment) and "PATH" not in task.environment
    assert "command -v python" in task.command
    without = plan(PODMAN, horovodSettings=horovod).task
    assert "/opt/py/bin/python3" in without.command and without.container is None
    own = plan(PODMAN, containerSettings=settings(), horovodSettings={**horovod, "pythonInterpreterPath": "/x/py"}).task
    assert own.command.startswith('"/x/py" ')


@pytest.mark.parametrize("url", ["", "https://index.docker.io/v1/", "docker.io", "registry-1.docker.io"])
def test_docker_hub_needs_no_server(url: str) -> None:
    task = plan(PODMAN, containerSettings=settings(serverUrl=url)).task
    assert task.container is not None and task.container["server"] == ""


def test_without_an_engine_the_reason_is_said() -> None:
    site = Site(python="/p", containers=Containers(why="podman is not installed"))
    task = plan(site, containerSettings=settings()).task
    told = "the container image small:1 is not run here: the job runs on the machine itself (podman is not installed)"
    assert task.container is None and told in task.notices


@pytest.mark.parametrize("containers", [Containers("podman"), Containers(why="none is installed"), Containers()])
def test_the_header_says_it_again(containers: Containers) -> None:
    assert Containers.of_header(containers.to_header()) == containers
