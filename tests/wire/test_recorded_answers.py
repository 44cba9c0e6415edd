"""Answers that recordings of the real service show, where the published examples say nothing or something else.

Source: the recordings of azure-mgmt-batchai's own tests and of the Azure CLI's scenarios, of June 2018.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from batchhvd import Session
from batchhvd.wire.connection import Connection
from tests.support.place import SUBSCRIPTION, Place, connect, ended

MOUNTED = "$AZ_BATCHAI_JOB_MOUNT_ROOT/m"


@pytest.fixture(scope="module")
def place(service: Any) -> Place:
    """One place with a cluster of two nodes, for all the tests."""
    group = "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/recorded"
    service.call("PUT", group, {"location": "eastus"})
    id = f"{group}/providers/Microsoft.Storage/storageAccounts/recordedaccount"
    service.call("PUT", id, {"sku": {"name": "Standard_LRS"}, "kind": "StorageV2", "location": "eastus"})
    key = service.call("POST", f"{id}/listKeys").json()["keys"][0]["value"]
    found = Place(connect(service, polling_interval=0.1), group, ("recordedaccount", key), service.url)
    found.cluster(2)
    return found


def base(place: Place) -> str:
    return f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{place.group}/providers/Microsoft.BatchAI/workspaces/w"


def raw(service: Any, place: Place, job: str) -> Any:
    """Returns a job's properties as they come over the wire, without what clients drop."""
    return service.call("GET", f"{base(place)}/experiments/e/jobs/{job}").json()["properties"]


def names(place: Place, job: str, id: str = "stdouterr") -> list[str]:
    return [file.name for file in place.files(job, id)]


@pytest.mark.parametrize("nodes", [1, 2])
def test_logs_are_named_after_the_nodes_if_there_are_several(place: Place, poll: Any, nodes: int) -> None:
    name = f"logs{nodes}"
    place.run(name, place.document("true", nodes, jobPreparation={"commandLine": "echo prepared"}))
    poll(ended(place, name))
    given = [node.node_id for node in place.client.jobs.list_remote_login_information(place.group, "w", "e", name)]
    ends = [""] if nodes == 1 else [f"-{node}" for node in given]
    own = [f"{kind}{end}.{type}" for end in ends for kind, type in KINDS]
    assert names(place, name) == sorted([*own, "stderr.txt", "stdout.txt"])


KINDS = (("execution", "log"), ("stdout-job_prep", "txt"), ("stderr-job_prep", "txt"))


def test_output_directories_lie_in_a_folder_of_their_own(place: Place, poll: Any) -> None:
    outputs = [{"id": "A", "pathPrefix": MOUNTED, "pathSuffix": "a/b"}, {"id": "BARE", "pathPrefix": MOUNTED}]
    command = 'echo "$AZ_BATCHAI_OUTPUT_A"; echo 1 > "$AZ_BATCHAI_OUTPUT_A/x"; echo 2 > "$AZ_BATCHAI_OUTPUT_BARE/y"'
    place.run("outputs", place.document(command, outputDirectories=outputs))
    segment = poll(ended(place, "outputs")).job_output_directory_path_segment
    assert (names(place, "outputs", "A"), names(place, "outputs", "BARE")) == (["x"], ["a", "y"])
    there = place.share.get_directory_client(f"{segment}/outputs").list_directories_and_files()
    assert sorted(entry.name for entry in there) == ["a", "y"]
    there = place.share.get_directory_client(segment).list_directories_and_files()
    assert sorted(entry.name for entry in there) == ["manifest.json", "outputs", "stdouterr"]


def test_a_setup_task_has_two_logs_on_each_node_in_a_folder_of_the_cluster(place: Place, poll: Any) -> None:
    mount = place.document()["properties"]["mountVolumes"]
    task = {"commandLine": "echo out; echo err >&2", "stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/m"}
    suffixes, scale = [], {"manual": {"targetNodeCount": 2}}
    for _ in range(2):
        body = {
            "properties": {
                "vmSize": "STANDARD_D1",
                "userAccountSettings": {"adminUserName": "me"},
                "scaleSettings": scale,
                "nodeSetup": {"setupTask": task, "mountVolumes": mount},
            }
        }
        place.client.clusters.begin_create(place.group, "w", "setup", body).result()
        poll(lambda: place.client.clusters.get(place.group, "w", "setup").node_state_counts.idle_node_count == 2)
        cluster = place.client.clusters.get(place.group, "w", "setup")
        suffixes.append(cluster.node_setup.setup_task.std_out_err_path_suffix)
        nodes = [
            node.node_id for node in place.client.clusters.list_remote_login_information(place.group, "w", "setup")
        ]
        folder = place.share.get_directory_client(suffixes[-1])
        own = [f"{stream}-{node}.txt" for node in nodes for stream in ("stdout", "stderr")]
        found = {entry.name for entry in folder.list_directories_and_files()}
        assert found == {*own, *(f"execution-{node}.log" for node in nodes)}
        assert folder.get_file_client(f"stdout-{nodes[0]}.txt").download_file().readall() == b"out\n"
        place.client.clusters.begin_delete(place.group, "w", "setup").result()
    assert suffixes[0] != suffixes[1]


@pytest.fixture
def empty(place: Place, poll: Any) -> Any:
    """A document of a job for a cluster that has no nodes and gets none."""
    place.cluster(0, name="none")
    document = place.document("true")
    document["properties"]["cluster"]["id"] = place.client.clusters.get(place.group, "w", "none").id
    return document


def test_a_job_for_a_cluster_without_nodes_is_queued_and_shows_nothing_of_a_run(
    place: Place, service: Any, empty: Any, poll: Any
) -> None:
    assert place.run("waits", empty).execution_state == "queued"
    added = poll(lambda: raw(service, place, "waits").get("batchhvd"))
    assert "executionInfo" not in raw(service, place, "waits")
    assert added["errors"][0]["code"] == "Waiting" and "the cluster has 0" in added["errors"][0]["message"]
    place.client.jobs.begin_terminate(place.group, "w", "e", "waits").result()
    shown = poll(lambda: (found := raw(service, place, "waits"))["executionState"] == "failed" and found)
    info, added = shown["executionInfo"], shown["batchhvd"]
    assert info == {
        "startTime": info["endTime"],
        "endTime": info["endTime"],
        "errors": [{"code": "JobTerminated", "message": "The specified job has been terminated by the user"}],
    }
    assert added["ran"] is False and added["errors"][0]["details"]


def test_a_job_that_never_started_has_both_times(place: Place, service: Any, poll: Any) -> None:
    script = {"pythonScriptFilePath": f"{MOUNTED}/absent.py"}
    place.run("absent", place.document(customToolkitSettings=None, horovodSettings=script))
    poll(ended(place, "absent"))
    shown = raw(service, place, "absent")
    info = shown["executionInfo"]
    assert info["startTime"] == info["endTime"] and "exitCode" not in info and shown["batchhvd"]["ran"] is False
    assert info["errors"][0]["code"] == "ScriptNotFound" and "absent.py" in info["errors"][0]["message"]


def test_a_command_that_fails_is_one_error_and_ours_is_beside_it(place: Place, service: Any, poll: Any) -> None:
    place.run("fails", place.document("echo the reason >&2; exit 3"))
    poll(ended(place, "fails"))
    shown = raw(service, place, "fails")
    assert shown["executionInfo"]["exitCode"] == 3
    message = "Job failed with non-zero exit code"
    assert shown["executionInfo"]["errors"] == [{"code": "JobFailed", "message": message}]
    [own] = shown["batchhvd"]["errors"]
    assert own["code"] == "RankFailed" and {"name": "Tail", "value": "the reason"} in own["details"]


def test_a_job_that_succeeds_has_no_errors_and_nothing_added(place: Place, service: Any, poll: Any) -> None:
    place.run("good", place.document("true"))
    poll(ended(place, "good"))
    shown = raw(service, place, "good")
    assert set(shown["executionInfo"]) == {"startTime", "endTime", "exitCode"} and "batchhvd" not in shown
    assert shown["experimentName"] == "e"


def test_what_is_absent_is_told_as_it_was(place: Place, service: Any) -> None:
    answer = service.call("GET", f"{base(place)}/experiments/e/jobs/job")
    error = answer.json()["error"]
    assert answer.status_code == 404
    assert (error["code"], error["message"]) == ("JobNotFound", "The specified job job is not found")


def test_types_are_paths_of_types(place: Place, service: Any) -> None:
    there = {"": "", "/clusters/c": "/clusters", "/experiments/e": "/experiments"}
    for path, type in there.items():
        assert service.call("GET", base(place) + path).json()["type"] == f"Microsoft.BatchAI/workspaces{type}"


def test_outputs_may_lie_where_nothing_is_mounted_with_a_warning(place: Place, service: Any, poll: Any) -> None:
    outputs = [{"id": "OUT", "pathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/external", "pathSuffix": "x"}]
    command = 'echo 1 > "$AZ_BATCHAI_OUTPUT_OUT/file" && cat "$AZ_BATCHAI_OUTPUT_OUT/file"'
    place.run("apart", place.document(command, outputDirectories=outputs))
    assert poll(ended(place, "apart")).execution_state == "succeeded"
    [warning] = raw(service, place, "apart")["batchhvd"]["warnings"]
    assert "/properties/outputDirectories/0/pathPrefix lies on no mount" in warning
    assert names(place, "apart", "OUT") == []
    [log] = [file for file in place.files("apart") if file.name == "execution.log"]
    assert warning in httpx.get(log.download_url, trust_env=False).text
    document = place.document("true", stdOutErrPathPrefix="$AZ_BATCHAI_MOUNT_ROOT")
    place.run("nowhere", document)
    assert poll(ended(place, "nowhere")).execution_state == "succeeded" and names(place, "nowhere") == []


def test_what_takes_time_is_answered_with_202_and_both_urls(place: Place, service: Any) -> None:
    path = f"{base(place)}/experiments/e/jobs/accepted"
    steps = [("PUT", path, place.document("sleep 60")), ("POST", f"{path}/terminate", None), ("DELETE", path, None)]
    for method, url, body in steps:
        answer = service.call(method, url, body)
        assert (answer.status_code, answer.content) == (202, b"")
        where = {
            name: urlsplit(answer.headers[name]).path.split("/")[-2] for name in ("azure-asyncoperation", "location")
        }
        assert where == {"azure-asyncoperation": "operationresults", "location": "operationstatuses"}
        service.finish(answer)
        done = service.call("GET", answer.headers["azure-asyncoperation"]).json()
        assert done["status"] == "Succeeded" and done["id"] in answer.headers["azure-asyncoperation"]
        assert done["properties"]["resourceId"] == f"{SUBSCRIPTION}${place.group}$w$e$accepted"
        assert service.call("GET", answer.headers["location"]).status_code == 200
    assert service.call("DELETE", path).status_code == 204
    for path, body in ((base(place), {"location": "eastus"}), (f"{base(place)}/experiments/e", None)):
        assert service.call("PUT", path, body).status_code == 200


def test_a_tag_and_a_time_come_with_each_resource(place: Place, service: Any) -> None:
    for path in ("", "/clusters/c", "/experiments/e"):
        answer = service.call("GET", base(place) + path)
        tag = answer.headers["etag"]
        assert tag.startswith('"0x') and answer.headers["last-modified"].endswith("GMT")
        assert service.call("GET", base(place) + path, **{"If-None-Match": tag}).status_code == 304
        assert service.call("GET", base(place) + path, **{"If-Match": '"0x1"'}).status_code == 412
        other = service.call("GET", base(place) + path, **{"If-None-Match": '"0x1"', "If-Match": tag})
        assert other.status_code == 200 and other.content == answer.content


@pytest.mark.parametrize(
    ("method", "path", "header"),
    [
        ("PUT", "/experiments/e", "If-None-Match"),
        ("DELETE", "/clusters/c", "If-Match"),
        ("GET", "/clusters/c", "If-Modified-Since"),
        ("GET", "/clusters", "If-None-Match"),
    ],
)
def test_a_condition_that_cannot_be_heeded_is_refused(
    place: Place, service: Any, method: str, path: str, header: str
) -> None:
    answer = service.call(method, base(place) + path, **{header: "*"})
    assert answer.status_code == 400 and answer.json()["error"]["target"] == header
    assert service.call("GET", base(place) + "/clusters/c").json()["properties"]["provisioningState"] == "succeeded"


def test_a_file_server_tells_a_mount_point_and_its_type(place: Place, service: Any) -> None:
    body = {
        "properties": {
            "vmSize": "STANDARD_D1",
            "sshConfiguration": {"userAccountSettings": {"adminUserName": "me"}},
            "dataDisks": {"diskSizeInGB": 1, "diskCount": 1, "storageAccountType": "Standard_LRS"},
        }
    }
    path = f"{base(place)}/fileServers/nfs"
    assert service.call("PUT", path, body).status_code == 202
    found = service.call("GET", path).json()
    settings = found["properties"]["mountSettings"]
    assert (settings["mountPoint"], settings["fileServerType"]) == ("/data", "nfs")
    assert found["id"].endswith("/workspaces/w/fileservers/nfs")
    assert str(service.root) in found["properties"]["batchhvd"]["folder"]
    assert service.call("DELETE", path).status_code == 202


def test_usages_are_counted_for_each_family(place: Place, service: Any, poll: Any) -> None:
    path = f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.BatchAI/locations/eastus/usages"

    def told() -> dict[str, int]:
        return {entry["name"]["value"]: entry["currentValue"] for entry in service.call("GET", path).json()["value"]}

    before = told()
    assert len(before) == 17 and before["Clusters"] >= 1
    place.cluster(2, name="counted")
    poll(lambda: place.client.clusters.get(place.group, "w", "counted").current_node_count == 2)
    after, family = told(), "Standard NC Family Cluster Dedicated vCPUs"
    assert after[family] - before[family] == 12  # two nodes of six cores
    assert after["Total Cluster LowPriority Regional vCPUs"] == before["Total Cluster LowPriority Regional vCPUs"]


def test_a_link_may_read_and_list(place: Place, service: Any, poll: Any) -> None:
    place.run("links", place.document("echo hi"))
    poll(ended(place, "links"))
    for file in place.files("links"):
        assert parse_qs(urlsplit(file.download_url).query)["sp"] == ["rl"]
        assert httpx.get(file.download_url, trust_env=False).status_code == 200
    above = httpx.URL(file.download_url)
    for other in (above.path.rpartition("/")[0], above.path.split("/stdouterr")[0] + "/manifest.json"):
        asked = {**dict(above.params), "restype": "directory", "comp": "list"}
        assert httpx.get(above.copy_with(path=other, params=asked), trust_env=False).status_code == 403


def test_our_client_reads_what_is_added(place: Place, service: Any, poll: Any) -> None:
    place.run("told", place.document("echo why >&2; exit 4"))
    poll(ended(place, "told"))
    connection = Connection(service.url, SUBSCRIPTION, root=str(service.root))
    experiment = Session(connection).group(place.group).workspace("w").experiment("e")
    job = experiment.job("told").refresh()
    assert (job.errors[0].code, job.errors[0].details["Tail"]) == ("RankFailed", "why")
    listed = next(found for found in experiment.jobs() if found.name == "told")
    assert json.dumps(listed.document) == json.dumps(job.document)
    assert "why" in "\n".join(job.explain().evidence)


def test_what_az_sends_back_to_an_account_is_taken_and_what_secures_it_is_refused(place: Place, service: Any) -> None:
    group = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{place.group}"
    path = f"{group}/providers/Microsoft.Storage/storageAccounts/{place.account}"
    shown = service.call("GET", path).json()
    same = {name: shown["properties"][name] for name in ("encryption", "supportsHttpsTrafficOnly")}
    patched = service.call("PATCH", path, {"tags": {"a": "b"}, "sku": shown["sku"], "properties": same})
    assert (patched.status_code, patched.json()["tags"]) == (200, {"a": "b"})
    for properties, name in (
        ({"supportsHttpsTrafficOnly": True}, "supportsHttpsTrafficOnly"),
        ({"encryption": {"keySource": "Microsoft.Keyvault"}}, "encryption/keySource"),
        ({"networkAcls": {"defaultAction": "Deny"}}, "networkAcls/defaultAction"),
    ):
        refused = service.call("PATCH", path, {"properties": properties})
        assert refused.status_code == 400 and refused.json()["error"]["target"] == f"/properties/{name}"
    assert service.call("PATCH", path, {"identity": {"type": "SystemAssigned"}}).status_code == 400
    for mistyped in ({"identity": 1}, {"properties": {"encryption": 5}}, {"properties": {"networkAcls": "x"}}):
        assert service.call("PATCH", path, mistyped).status_code == 400
    assert service.call("PATCH", path).status_code == 200  # without a body nothing changes
    assert service.call("GET", path).json()["tags"] == {"a": "b"}


def test_the_provider_that_every_recipe_registers_is_there(service: Any) -> None:
    path = f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Batch/register"
    assert service.call("POST", path).json()["registrationState"] == "Registered"


def test_an_image_of_nodes_is_said_to_have_no_effect(place: Place, service: Any) -> None:
    image = {"publisher": "p", "offer": "o", "sku": "s", "virtualMachineImageId": "/subscriptions/x/images/own"}
    settings = {
        "vmSize": "STANDARD_D1",
        "userAccountSettings": {"adminUserName": "me"},
        "virtualMachineConfiguration": {"imageReference": image},
    }
    assert service.call("PUT", f"{base(place)}/clusters/own", {"properties": settings}).status_code == 202
    shown = service.call("GET", f"{base(place)}/clusters/own").json()["properties"]
    assert "virtualMachineImageId has no effect" in shown["batchhvd"]["warnings"][0]
