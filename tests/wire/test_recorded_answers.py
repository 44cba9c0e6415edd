"""Answers that recordings of the real service show, where the published examples say nothing or something else.

Source: the recordings of azure-mgmt-batchai's own tests and of the Azure CLI's scenarios, of June 2018.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.place import Place, connect, ended

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
