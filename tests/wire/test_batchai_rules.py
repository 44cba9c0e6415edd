"""What a job is refused for, beyond what the description says; a dry run refuses the same and writes nothing."""

from __future__ import annotations

import json
import sqlite3
import urllib.request
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError
from azure.mgmt.batchai import models as m

from batchhvd._version import __version__
from tests.support.place import SUBSCRIPTION, Place, connect, ended, error_of

DRY = {"x-batchhvd-dry-run": "true"}

RULES: list[tuple[dict[str, Any], str, str]] = [
    ({"nodeCount": 2}, "/properties/nodeCount", "at most 1"),
    ({"nodeCount": 0}, "/properties/nodeCount", "at least 1"),
    ({"cluster": {"id": "/nowhere"}}, "/properties/cluster/id", "does not exist"),
    ({"horovodSettings": {"pythonScriptFilePath": "x"}}, "/properties", "exactly one of"),
    ({"customToolkitSettings": {}}, "/properties/customToolkitSettings/commandLine", "is missing"),
    (
        {"customToolkitSettings": None, "cntkSettings": {"configFilePath": "x", "pythonScriptFilePath": "y"}},
        "/properties/cntkSettings/pythonScriptFilePath",
        "together with configFilePath",
    ),
    ({"customToolkitSettings": None, "caffeSettings": {}}, "/properties/caffeSettings", "must hold configFilePath or"),
    (
        {"customToolkitSettings": None, "cntkSettings": {"configFilePath": "x", "languageType": "Python"}},
        "/properties/cntkSettings/languageType",
        "must be BrainScript",
    ),
    (
        {"customToolkitSettings": None, "caffeSettings": {"configFilePath": "x", "pythonInterpreterPath": "p"}},
        "/properties/caffeSettings/pythonInterpreterPath",
        "only with pythonScriptFilePath",
    ),
    (
        {
            "customToolkitSettings": None,
            "pyTorchSettings": {"pythonScriptFilePath": "x", "communicationBackend": "smoke"},
        },
        "/properties/pyTorchSettings/communicationBackend",
        "must be TCP, Gloo, MPI or NCCL",
    ),
    (
        {"customToolkitSettings": None, "tensorFlowSettings": {"pythonScriptFilePath": "x", "workerCount": 999}},
        "/properties/tensorFlowSettings/workerCount",
        "times the GPUs of a node",
    ),
    (
        {"customToolkitSettings": None, "tensorFlowSettings": {"pythonScriptFilePath": "x", "parameterServerCount": 2}},
        "/properties/tensorFlowSettings/parameterServerCount",
        "from 0 to nodeCount (1)",
    ),
    (
        {"customToolkitSettings": None, "horovodSettings": {"pythonScriptFilePath": "x", "processCount": 0}},
        "/properties/horovodSettings/processCount",
        "from nodeCount",
    ),
    ({"stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT"}, "/properties/stdOutErrPathPrefix", "lies on no mount"),
    ({"stdOutErrPathPrefix": "/tmp"}, "/properties/stdOutErrPathPrefix", "lies on no mount"),
    (
        {"outputDirectories": [{"id": "A", "pathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/m", "pathSuffix": "../x"}]},
        "/properties/outputDirectories/0/pathSuffix",
        "stay inside",
    ),
    (
        {"outputDirectories": [{"id": "A", "pathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/m", "pathSuffix": "x/${B}"}]},
        "/properties/outputDirectories/0/pathSuffix",
        "no variable, not '${B}'",
    ),
    (
        {"outputDirectories": [{"id": "A", "pathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/m/$USER"}]},
        "/properties/outputDirectories/0/pathPrefix",
        "no other one, not '$USER'",
    ),
    (
        {"stdOutErrPathPrefix": "${AZ_BATCHAI_JOB_MOUNT_ROOT}/m/a$HOME"},
        "/properties/stdOutErrPathPrefix",
        "no other one, not '$HOME'",
    ),
    (
        {"outputDirectories": [{"id": "A B", "pathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/m"}]},
        "/properties/outputDirectories/0/id",
        "letters",
    ),
    (
        {"environmentVariables": [{"name": "A=B", "value": "1"}]},
        "/properties/environmentVariables/0/name",
        "without '='",
    ),
    ({"secrets": [{"name": "A"}]}, "/properties/secrets/0/value", "is missing"),
]


@pytest.fixture(scope="module")
def standing(service: Any) -> Any:
    """One place for all the rules: nothing is created in it."""
    group = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/rules"
    service.call("PUT", group, {"location": "eastus"})
    id = f"{group}/providers/Microsoft.Storage/storageAccounts/rulesaccount"
    service.call("PUT", id, {"sku": {"name": "Standard_LRS"}, "kind": "StorageV2", "location": "eastus"})
    key = service.call("POST", f"{id}/listKeys").json()["keys"][1]["value"]
    place = Place(connect(service), group, ("rulesaccount", key), service.url)
    place.cluster()
    return place


@pytest.mark.parametrize(("changes", "pointer", "text"), RULES)
def test_a_rule_that_the_description_cannot_say(
    standing: Place, service: Any, changes: dict[str, Any], pointer: str, text: str
) -> None:
    with pytest.raises(HttpResponseError) as caught:
        standing.run("x", standing.document(**changes))
    assert caught.value.status_code == 400 and error_of(caught).target == pointer and text in caught.value.message
    assert_refused_alike(service, standing, standing.document(**changes))


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"accountName": "nobody"}, "accountName"),
        ({"azureFileUrl": "https://rulesaccount.file.core.windows.net/noshare"}, "azureFileUrl"),
        ({"azureFileUrl": "https://other.file.core.windows.net/share"}, "azureFileUrl"),
        ({"azureFileUrl": "https://rulesaccount.file.core.windows.net/share/nodirectory"}, "azureFileUrl"),
        ({"credentials": {}}, "credentials/accountKey"),
        ({"credentials": {"accountKey": "eA=="}}, "credentials/accountKey"),
        ({"relativeMountPath": "../m"}, "relativeMountPath"),
        ({"relativeMountPath": "/m"}, "relativeMountPath"),
        ({"relativeMountPath": "."}, "relativeMountPath"),
    ],
)
def test_a_mount_that_cannot_be(standing: Place, service: Any, changes: dict[str, Any], pointer: str) -> None:
    document = json.loads(json.dumps(standing.document()))
    document["properties"]["mountVolumes"]["azureFileShares"][0].update(changes)
    with pytest.raises(HttpResponseError) as caught:
        standing.run("x", document)
    assert error_of(caught).target == f"/properties/mountVolumes/azureFileShares/0/{pointer}"
    assert_refused_alike(service, standing, document)


def test_a_setup_task_logs_onto_a_mount_of_the_cluster(standing: Place, service: Any) -> None:
    share = standing.document()["properties"]["mountVolumes"]["azureFileShares"][0]
    task = {"commandLine": "true", "stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/other"}
    settings = {
        "vmSize": "D1",
        "userAccountSettings": {"adminUserName": "me"},
        "nodeSetup": {"setupTask": task, "mountVolumes": {"azureFileShares": [share]}},
    }
    path = standing.client.clusters.get(standing.group, "w", "c").id.removesuffix("/c") + "/setup"
    wrong = service.call("PUT", path, {"properties": settings})
    assert wrong.json()["error"]["target"] == "/properties/nodeSetup/setupTask/stdOutErrPathPrefix"
    task["stdOutErrPathPrefix"] = "$AZ_BATCHAI_MOUNT_ROOT/m"
    seen = set()
    for _ in range(2):
        assert service.call("PUT", path, {"properties": settings}).status_code == 202
        shown = service.call("GET", path).json()["properties"]["nodeSetup"]["setupTask"]
        seen.add(shown["stdOutErrPathSuffix"])
    (suffix,) = seen
    above, _, last = suffix.rpartition("/")
    assert above == f"{SUBSCRIPTION}/{standing.group}/workspaces/w/clusters/setup" and uuid.UUID(last)


def test_both_forms_of_a_share_url_and_file_servers(standing: Place, service: Any, poll: Any) -> None:
    disks = m.DataDisks(disk_size_in_gb=1, disk_count=1, storage_account_type="Standard_LRS")
    ssh = m.SshConfiguration(user_account_settings=m.UserAccountSettings(admin_user_name="me"))
    parameters = m.FileServerCreateParameters(vm_size="Standard_D1", data_disks=disks, ssh_configuration=ssh)
    server = standing.client.file_servers.begin_create(standing.group, "w", "nfs", parameters).result()
    assert server.mount_settings.file_server_public_ip == "127.0.0.1" and server.data_disks.caching_type == "none"
    document = standing.document("echo on the server", stdOutErrPathPrefix="$AZ_BATCHAI_JOB_MOUNT_ROOT/n")
    volumes = document["properties"]["mountVolumes"]
    volumes["azureFileShares"][0]["azureFileUrl"] = f"{service.url}/rulesaccount/share"
    volumes["fileServers"] = [{"fileServer": {"id": server.id}, "relativeMountPath": "n"}]
    standing.run("nfs-job", document)
    assert poll(ended(standing, "nfs-job")).execution_state == "succeeded"
    [stdout] = [file for file in standing.files("nfs-job") if file.name == "stdout.txt"]
    with urllib.request.urlopen(stdout.download_url) as answer:
        assert answer.read() == b"on the server\n"
    assert service.call("DELETE", server.id).status_code == 202


def job_path(place: Place, name: str) -> str:
    group = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{place.group}"
    return f"{group}/providers/Microsoft.BatchAI/workspaces/w/experiments/e/jobs/{name}"


def assert_refused_alike(service: Any, place: Place, document: Any, name: str = "x") -> None:
    """Sends a document dry and in earnest; both are refused with the same words."""
    dry, real = (service.call("PUT", job_path(place, name), document, **headers) for headers in (DRY, {}))
    assert dry.status_code == real.status_code >= 400
    assert dry.json() == real.json()


def state_of(root: Path) -> tuple[list[str], dict[str, bytes | None]]:
    """Returns all that a service keeps: its store as text, and every file and directory but the log and locks."""
    with closing(sqlite3.connect(root / "state.sqlite")) as connection:
        store = list(connection.iterdump())
    paths = [path for path in root.rglob("*") if path.name not in ("service.log", "state.sqlite-shm")]
    return store, {str(path): path.read_bytes() if path.is_file() else None for path in paths}


@pytest.fixture
def alone(launch: Callable[..., Any]) -> tuple[Any, Place]:
    """A service that nobody else uses, and a place in it."""
    running = launch()
    group = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/dry"
    account = f"{group}/providers/Microsoft.Storage/storageAccounts/dryaccount"
    running.call("PUT", group, {"location": "eastus"})
    running.call("PUT", account, {"sku": {"name": "Standard_LRS"}, "kind": "StorageV2", "location": "eastus"})
    key = running.call("POST", f"{account}/listKeys").json()["keys"][0]["value"]
    place = Place(connect(running), group, ("dryaccount", key), running.url)
    place.cluster()
    return running, place


def test_a_dry_run_answers_what_a_get_would_show_and_writes_nothing(alone: Any, poll: Any) -> None:
    running, place = alone
    poll(lambda: place.client.clusters.get(place.group, "w", "c").allocation_state == "steady")
    document, path = place.document(secrets=[{"name": "S", "value": "hidden"}]), job_path(place, "j")
    before = state_of(running.root)
    for _ in range(2):
        dry = running.call("PUT", path, document, **DRY)
        assert dry.status_code == 200 and dry.json()["properties"]["executionState"] == "queued"
    assert running.call("PUT", path, {"properties": {}}, **DRY).status_code == 400
    assert state_of(running.root) == before
    assert running.call("GET", path).status_code == 404
    assert running.call("PUT", path, document).status_code == 202
    real, dry = running.call("GET", path).json(), dry.json()
    for shown in (real, dry):  # what differs between two creations, and once a job has begun
        for name in list(shown["properties"]):
            if name.endswith("Time") or name.startswith("execution") or name == "batchhvd":
                del shown["properties"][name]
        segment = shown["properties"]["jobOutputDirectoryPathSegment"]
        shown["properties"]["jobOutputDirectoryPathSegment"] = segment.rpartition("/")[0]
    assert json.dumps(dry) == json.dumps(real)


def test_a_dry_run_of_a_job_that_exists(standing: Place, service: Any, poll: Any) -> None:
    document = standing.document("sleep 600", nodes=1)
    real = service.call("PUT", job_path(standing, "once"), document)
    assert real.status_code == 202
    try:
        again = service.call("PUT", job_path(standing, "once"), document, **DRY)
        assert again.status_code == 200 and again.json()["id"].endswith("/jobs/once")
        assert_refused_alike(service, standing, standing.document("other"), "once")
    finally:
        service.finish(service.call("DELETE", job_path(standing, "once")))


def test_a_dry_run_where_no_job_can_be(standing: Place, service: Any) -> None:
    for path in (
        job_path(standing, "x").replace("/experiments/e/", "/experiments/none/"),
        job_path(standing, "x").replace("/workspaces/w/", "/workspaces/none/"),
        job_path(standing, "a b"),
    ):
        dry, real = (service.call("PUT", path, standing.document(), **headers) for headers in (DRY, {}))
        assert dry.status_code == real.status_code in (400, 404) and dry.json() == real.json()


@pytest.mark.parametrize("word", ["yes", "1", ""])
def test_a_word_that_may_mean_a_dry_run_creates_nothing(standing: Place, service: Any, word: str) -> None:
    answer = service.call("PUT", job_path(standing, "x"), standing.document(), **{"x-batchhvd-dry-run": word})
    assert answer.status_code == 400 and answer.json()["error"]["code"] == "InvalidHeaderValue"
    assert service.call("GET", job_path(standing, "x")).status_code == 404


def test_only_a_job_can_be_created_dry(standing: Place, service: Any) -> None:
    group = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/never"
    cluster = job_path(standing, "x").replace("/experiments/e/jobs/x", "/clusters/never")
    for path, body in ((group, {"location": "eastus"}), (cluster, {"properties": {}})):
        answer = service.call("PUT", path, body, **DRY)
        assert answer.status_code == 400 and answer.json()["error"]["code"] == "DryRunNotSupported"
        assert service.call("GET", path).status_code == 404
    assert service.call("DELETE", job_path(standing, "x"), **DRY).status_code == 400


def test_every_answer_says_which_service_gave_it(standing: Place, service: Any) -> None:
    for answer in (
        service.call("GET", "/subscriptions"),
        service.call("GET", job_path(standing, "none")),
        service.call("GET", "/subscriptions", Authorization="Bearer wrong"),
        service.call("GET", f"{service.url}/"),
        service.call("GET", f"{service.url}/rulesaccount/share?restype=share"),
        service.call("GET", "/nowhere"),
    ):
        assert answer.headers["x-batchhvd-service"] == __version__, answer.url
