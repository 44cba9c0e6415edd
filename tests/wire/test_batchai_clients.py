"""Batch AI through azure-mgmt-batchai 7.0.0, with jobs that really run."""

from __future__ import annotations

import calendar
import time
import urllib.request
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlsplit

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.mgmt.batchai import models as m

from tests.support.place import SECRET, SUBSCRIPTION, Place, connect, ended, error_of


@pytest.fixture
def client(service: Any) -> Any:
    with connect(service, polling_interval=0.1, retry_total=0) as found:
        yield found


@pytest.fixture
def place(client: Any, group: str, account: tuple[str, str], service: Any) -> Place:
    return Place(client, group, account, service.url)


def test_a_job_runs_and_its_files_are_read_through_links(place: Place, poll: Any, service: Any) -> None:
    cluster = place.cluster()
    assert (cluster.allocation_state, cluster.vm_size, cluster.provisioning_state) == (
        "resizing",
        "STANDARD_NC6",
        "succeeded",
    )
    outputs = [{"id": "OUT", "pathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/m", "pathSuffix": "my files"}]
    command = 'echo héllo $S; mkdir "$AZ_BATCHAI_OUTPUT_OUT/sub ü"; echo 1 > "$AZ_BATCHAI_OUTPUT_OUT/sub ü/a+b %.txt"'
    secrets = [{"name": "S", "value": SECRET}]
    job = place.run("j", place.document(command, outputDirectories=outputs, secrets=secrets))
    assert (job.execution_state, job.tool_type, job.scheduling_priority) == ("queued", "custom", "normal")
    assert job.constraints.max_wall_clock_time.days == 7 and job.mount_volumes.azure_file_shares[0].file_mode == "0777"
    job = poll(ended(place, "j"))
    assert (job.execution_state, job.execution_info.exit_code) == ("succeeded", 0)
    assert job.job_output_directory_path_segment.startswith(f"{SUBSCRIPTION}/{place.group}/workspaces/w/experiments/e/")

    [stdout] = [file for file in place.files("j") if file.name == "stdout.txt"]
    assert fetch(stdout.download_url) == f"héllo {SECRET}\n".encode() and stdout.content_length == 33
    assert [(file.name, file.file_type, file.download_url) for file in place.files("j", "OUT")] == [
        ("sub ü", "directory", None)
    ]
    [inner] = place.files("j", "OUT", directory="sub ü")
    assert inner.name == "a+b %.txt" and fetch(inner.download_url) == b"1\n"


def test_a_field_that_is_unknown_is_reported_in_the_jobs_log(place: Place, service: Any, poll: Any) -> None:
    place.cluster()
    outputs = [{"id": "OUT", "pathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/m", "type": "custom"}]
    document = place.document("true", outputDirectories=outputs, toolType="custom")
    base = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{place.group}/providers/Microsoft.BatchAI/workspaces/w"
    answer = service.call("PUT", f"{base}/experiments/e/jobs/j", document)  # the client drops what it does not know
    assert answer.status_code == 202
    shown = service.call("GET", f"{base}/experiments/e/jobs/j").json()["properties"]
    assert "type" not in shown["outputDirectories"][0] and len(shown["batchhvd"]["warnings"]) == 2
    poll(ended(place, "j"))
    [log] = [file for file in place.files("j") if file.name == "execution.log"]
    text = fetch(log.download_url).decode()
    assert text.count("/properties/outputDirectories/0/type") == 1 == text.count("/properties/toolType")


def fetch(url: str) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=10) as answer:
        return bytes(answer.read())


def test_links_end_and_open_nothing_else(place: Place, poll: Any) -> None:
    place.cluster()
    odd = "cd $AZ_BATCHAI_STDOUTERR_DIR; ln -s /etc/passwd out; mkfifo pipe"
    place.run("j", place.document(f"echo 1; {odd}"))
    poll(ended(place, "j"))
    before = time.time()
    files = {file.name: file for file in place.files("j", linkexpiryinminutes=5)}
    assert "stdout.txt" in files and "out" not in files and "pipe" not in files
    url = files["stdout.txt"].download_url
    [expiry] = parse_qs(urlsplit(url).query)["se"]
    assert 270 < calendar.timegm(time.strptime(expiry, "%Y-%m-%dT%H:%M:%SZ")) - before < 330
    for other in (url.replace("stdout.txt", "stderr.txt"), url.replace("sp=r", "sp=rw"), url.partition("?")[0]):
        with pytest.raises(HTTPError) as caught:
            fetch(other)
        assert caught.value.code in (401, 403)


def test_output_files_come_in_pages(place: Place, poll: Any) -> None:
    place.cluster()
    place.run("j", place.document("for i in 1 2 3 4 5 6 7; do echo $i > $AZ_BATCHAI_STDOUTERR_DIR/f$i; done"))
    assert place.files("j") == [] or place.files("j")  # queued or running: a list, never an error
    poll(ended(place, "j"))
    names = [file.name for file in place.files("j", max_results=3)]
    assert names == sorted(names) == [file.name for file in place.files("j")] and len(names) >= 9
    with pytest.raises(HttpResponseError, match="NOPE") as caught:
        place.files("j", "NOPE")
    assert caught.value.status_code == 400
    for directory in ("..", "/etc", "a/../../b"):
        with pytest.raises(HttpResponseError, match="inside"):
            place.files("j", directory=directory)


def test_lists_come_in_pages(client: Any, group: str) -> None:
    name = group.rpartition("/")[2]
    for index in range(5):
        client.workspaces.begin_create(name, f"W{index}", m.WorkspaceCreateParameters(location="eastus")).result()
    two = m.WorkspacesListByResourceGroupOptions(max_results=2)
    pages = client.workspaces.list_by_resource_group(name, two).by_page()
    assert [[w.name for w in page] for page in pages] == [["W0", "W1"], ["W2", "W3"], ["W4"]]
    assert {f"W{index}" for index in range(5)} <= {w.name for w in client.workspaces.list()}


def test_what_is_not_there(client: Any, group: str) -> None:
    name = group.rpartition("/")[2]
    with pytest.raises(ResourceNotFoundError) as caught:
        client.workspaces.get("nogroup", "w")
    assert error_of(caught).code == "ResourceGroupNotFound"
    with pytest.raises(ResourceNotFoundError) as caught:
        client.experiments.begin_create(name, "now", "e")
    assert error_of(caught).code == "ParentResourceNotFound"
    client.workspaces.begin_create(name, "w", m.WorkspaceCreateParameters(location="eastus")).result()
    with pytest.raises(ResourceNotFoundError) as caught:
        client.jobs.get(name, "w", "e", "j")
    assert error_of(caught).code == "ParentResourceNotFound"
    assert client.clusters.begin_delete(name, "w", "c").result() is None  # 204: nothing to delete


def test_repeating_a_create(place: Place) -> None:
    first = place.cluster(nodes=1)
    assert place.cluster(nodes=1).creation_time == first.creation_time
    assert place.cluster(nodes=2).scale_settings.manual.target_node_count == 2
    with pytest.raises(ResourceExistsError, match="vmPriority") as caught:
        place.cluster(nodes=2, vm_priority="lowpriority")
    assert error_of(caught).code == "ClusterAlreadyExists"
    job = place.run("j", place.document("sleep 30"))
    assert place.run("j", place.document("sleep 30")).creation_time == job.creation_time
    with pytest.raises(ResourceExistsError, match="customToolkitSettings"):
        place.run("j", place.document("sleep 31"))


def test_terminating_and_deleting(place: Place, poll: Any) -> None:
    place.cluster()
    place.run("j", place.document("echo begun; sleep 60"))
    poll(lambda: place.job("j").execution_state == "running")
    place.client.jobs.begin_terminate(place.group, "w", "e", "j").result()
    job = place.job("j")
    assert job.execution_state == "failed" and job.execution_info.errors[0].code == "JobTerminated"
    assert place.client.jobs.begin_terminate(place.group, "w", "e", "j").result() is None
    place.client.jobs.begin_delete(place.group, "w", "e", "j").result()
    with pytest.raises(ResourceNotFoundError):
        place.job("j")
    place.run("k", place.document("sleep 60"))
    place.client.workspaces.begin_delete(place.group, "w").result()
    assert list(place.client.workspaces.list_by_resource_group(place.group)) == []


def test_answers_in_between_have_both_urls_and_whole_seconds(place: Place, service: Any, poll: Any) -> None:
    place.cluster()
    place.run("j", place.document("trap '' TERM; echo begun; while true; do sleep 0.1; done"))
    poll(lambda: any(file.name == "stdout.txt" and file.content_length for file in place.files("j")))
    base = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{place.group}/providers/Microsoft.BatchAI/workspaces/w"
    answer = service.call("DELETE", f"{base}/experiments/e/jobs/j")
    assert answer.status_code == 202 and not answer.content
    for url in (answer.headers["Azure-AsyncOperation"], answer.headers["Location"]):
        assert url.startswith(service.url)
        between = service.call("GET", url)
        assert between.headers["Retry-After"] == answer.headers["Retry-After"] == "1"
        assert between.status_code == 202 if "statuses" in url else between.json()["status"] == "InProgress"
    again = service.call("PUT", f"{base}/experiments/e/jobs/j", place.document("true"))
    assert (again.status_code, again.json()["error"]["code"]) == (409, "ResourceBeingDeleted")
    odd = {"x-batchhvd-wait": "0.1", "x-batchhvd-job": urlsplit(answer.headers["Azure-AsyncOperation"]).path}
    assert service.call("GET", f"{base}/clusters/c", **odd).status_code == 200  # no job, but no 500 either
    service.finish(answer)
    for url in (answer.headers["Azure-AsyncOperation"], answer.headers["Location"]):
        end = service.call("GET", url)
        assert end.status_code == 200 and "Retry-After" not in end.headers


def test_a_cluster_that_is_deleted_at_once_stops_nothing(place: Place, service: Any, poll: Any) -> None:
    """The scheduler may never have seen it; whatever it makes of it, other jobs go on."""
    place.cluster()
    base = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{place.group}/providers/Microsoft.BatchAI/workspaces/w"
    settings = {"vmSize": "D1", "userAccountSettings": {"adminUserName": "me"}}
    for index in range(20):
        path = f"{base}/clusters/short{index}"
        service.call("PUT", path, {"properties": settings})
        service.finish(service.call("DELETE", path))
    place.run("j", place.document("true"))
    assert poll(ended(place, "j")).execution_state == "succeeded"
    assert "Traceback" not in service.log()


def test_resizing_and_logging_in(place: Place, poll: Any) -> None:
    place.cluster(nodes=2)
    cluster = poll(lambda: place.client.clusters.get(place.group, "w", "c").allocation_state == "steady")
    nodes = list(place.client.clusters.list_remote_login_information(place.group, "w", "c"))
    assert len(nodes) == 2 and nodes[0].node_id.startswith("tvm-") and nodes[0].ip_address == "127.0.0.1"
    scale = m.ScaleSettings(auto_scale=m.AutoScaleSettings(minimum_node_count=0, maximum_node_count=3))
    cluster = place.client.clusters.update(place.group, "w", "c", m.ClusterUpdateParameters(scale_settings=scale))
    assert cluster.allocation_state == "resizing" and cluster.scale_settings.auto_scale.initial_node_count == 0
    assert place.client.clusters.update(place.group, "w", "c", m.ClusterUpdateParameters()).scale_settings.auto_scale


def test_nothing_shows_a_secret(place: Place, service: Any, poll: Any) -> None:
    place.cluster()
    place.run("j", place.document("true", secrets=[{"name": "S", "value": SECRET}]))
    poll(ended(place, "j"))
    base = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{place.group}/providers/Microsoft.BatchAI/workspaces/w"
    paths = ["", "/clusters/c", "/clusters", "/experiments/e/jobs", "/experiments/e/jobs/j"]
    shown = "".join(service.call("GET", base + path).text for path in paths) + service.log()
    wrong = place.document("true")
    wrong["properties"]["mountVolumes"]["azureFileShares"][0]["credentials"]["accountKey"] = "WRONG-" + place.key
    answer = service.call("PUT", f"{base}/experiments/e/jobs/k", wrong)
    assert answer.status_code == 400 and answer.json()["error"]["target"].endswith("/credentials/accountKey")
    shown += answer.text + service.log()
    assert place.key not in shown and SECRET not in shown and service.token not in shown
