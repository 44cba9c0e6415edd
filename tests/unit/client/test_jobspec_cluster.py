"""Cluster files, and durations."""

from datetime import timedelta
from pathlib import Path

import pytest

from batchhvd.errors import SpecError
from batchhvd.spec.job import AutoScale, ClusterSpec
from batchhvd.spec.reading import duration_seconds
from batchhvd.wire.facts.times import write_duration

CLUSTERS = Path(__file__).parents[2] / "data" / "clusters"


@pytest.mark.filterwarnings("ignore:.*older API version")
def test_the_smallest_published_file_comes_back() -> None:
    spec = ClusterSpec.read(CLUSTERS / "simple.json")
    assert (spec.vm_size, spec.nodes, spec.location) == ("STANDARD_D1", 1, "eastus")
    assert spec.to_document() == {
        "location": "eastus",
        "properties": {"vmSize": "STANDARD_D1", "scaleSettings": {"manual": {"targetNodeCount": 1}}},
    }
    assert "location" not in spec._request({})


def test_a_file_with_one_field_is_merged_with_what_is_given() -> None:
    path = CLUSTERS / "only-priority-2018-03-01.json"
    spec = ClusterSpec.read(path, vm_size="Standard_D1", nodes=AutoScale(0, 3), user="me", password=None)
    assert spec == ClusterSpec(vm_size="Standard_D1", nodes=AutoScale(0, 3), user="me", priority="lowpriority")
    assert ClusterSpec.from_document(spec.to_document()) == spec


def test_without_a_size_it_says_that_the_size_is_missing() -> None:
    with pytest.raises(SpecError, match="vmSize is missing.*--vm-size") as caught:
        ClusterSpec.read(CLUSTERS / "only-priority-2018-03-01.json", nodes=AutoScale(0, 3))
    assert caught.value.line == 3


def test_all_that_a_cluster_can_be_told_comes_back(tmp_path: Path) -> None:
    share = {"azureFileUrl": "https://acc.file.core.windows.net/s", "accountName": "acc", "relativeMountPath": "s"}
    document = {
        "properties": {
            "vmSize": "STANDARD_NC6",
            "vmPriority": "lowpriority",
            "scaleSettings": {"manual": {"targetNodeCount": 3, "nodeDeallocationOption": "terminate"}},
            "userAccountSettings": {"adminUserName": "me", "adminUserSshPublicKey": "ssh-rsa A"},
            "nodeSetup": {
                "setupTask": {"commandLine": "true", "stdOutErrPathPrefix": "/l"},
                "mountVolumes": {"azureFileShares": [share]},
            },
        }
    }
    spec = ClusterSpec.from_document(document)
    assert spec.to_document() == document
    spec.write(tmp_path / "clüster.json")
    assert ClusterSpec.read(tmp_path / "clüster.json") == spec
    assert spec._accounts() == ("acc",)
    mounted = spec._request({"acc": "K"})["properties"]["nodeSetup"]["mountVolumes"]["azureFileShares"][0]
    assert mounted["credentials"] == {"accountKey": "K"}


def test_a_password_is_sent_and_never_shown() -> None:
    spec = ClusterSpec(vm_size="x", user="me", password="S3CRET")
    assert "S3CRET" not in repr(spec) + str(spec.to_document())
    assert spec._request({})["properties"]["userAccountSettings"]["adminUserPassword"] == "S3CRET"


def test_two_ways_to_scale_are_refused() -> None:
    both = {"manual": {"targetNodeCount": 1}, "autoScale": {"minimumNodeCount": 0, "maximumNodeCount": 1}}
    with pytest.raises(SpecError, match="both manual and autoScale") as caught:
        ClusterSpec.from_document({"properties": {"vmSize": "x", "scaleSettings": both}})
    assert caught.value.pointer == "/properties/scaleSettings"


@pytest.mark.parametrize("counts", [(2, 1), (0, 1, 2), (-1, 1)])
def test_counts_that_cannot_be(counts: tuple[int, ...]) -> None:
    with pytest.raises(SpecError):
        AutoScale(*counts)


def test_autoscale_begins_with_the_minimum() -> None:
    assert AutoScale(1, 4).initial == 1
    assert AutoScale(1, 4, 2).to_document() == {"minimumNodeCount": 1, "maximumNodeCount": 4, "initialNodeCount": 2}


@pytest.mark.parametrize(
    ("text", "seconds", "canonical"),
    [
        ("7.00:00:00", 604800, "P7D"),
        ("01:30:00", 5400, "PT1H30M"),
        ("0.00:00:01.5", 1.5, "PT1.5S"),
        ("P1W", 604800, "P7D"),
        ("P1DT2H3M4S", 93784, "P1DT2H3M4S"),
        ("PT3600S", 3600, "PT1H"),
        ("PT0S", 0, "PT0S"),
    ],
)
def test_durations_are_read_in_both_spellings_and_written_in_one(text: str, seconds: float, canonical: str) -> None:
    assert duration_seconds(text) == seconds
    assert write_duration(timedelta(seconds=seconds)) == canonical
    assert duration_seconds(canonical) == seconds


@pytest.mark.parametrize("text", ["", "P", "PT", "3h", "-PT1S", "1:2"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(SpecError, match="not a duration"):
        duration_seconds(text)
