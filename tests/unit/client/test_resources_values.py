"""Small values on the way from the wire: times, counts, reasons, names of files."""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from batchhvd import AutoScale, Cluster, NodeCounts, SpecError
from batchhvd.resources.session import Session
from batchhvd.resources.values.file_entry import FileEntry
from batchhvd.resources.values.listing import Listing, files
from batchhvd.transfer.selection import fixed_folder, matches, target_here
from batchhvd.views.notebook import table
from batchhvd.wire.connection import Connection
from batchhvd.wire.facts.states import AllocationState, ProvisioningState
from batchhvd.wire.models import moment
from batchhvd.wire.reasons import reasons

UTC = timezone.utc


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-27T12:00:01Z", datetime(2026, 11, 27, 12, 0, 1, tzinfo=UTC)),
        ("2026-11-27T12:00:01.5Z", datetime(2026, 11, 27, 12, 0, 1, 500_000, tzinfo=UTC)),
        ("2026-11-27T12:00:01.123Z", datetime(2026, 11, 27, 12, 0, 1, 123_000, tzinfo=UTC)),
        ("2026-11-27T12:00:01.1234567Z", datetime(2026, 11, 27, 12, 0, 1, 123_456, tzinfo=UTC)),
        ("2026-11-27T12:00:01.123456+02:00", datetime(2026, 11, 27, 10, 0, 1, 123_456, tzinfo=UTC)),
        ("", None),
        (None, None),
    ],
)
def test_times_of_the_wire(text: str | None, expected: datetime | None) -> None:
    found = moment(text)
    assert found == expected
    assert found is None or found.utcoffset() in (timedelta(0), timedelta(hours=2))


def cluster(**properties: object) -> Cluster:
    group = Session(Connection("https://arm.example", "s")).group("g")
    return group.workspace("w").cluster("c")._load({"name": "c", "properties": properties})


def test_a_cluster_from_its_document() -> None:
    counts = {"idleNodeCount": 1, "runningNodeCount": 2, "preparingNodeCount": 0, "unusableNodeCount": 1}
    errors = [{"code": "X", "message": "It broke.", "details": [{"name": "Node", "value": "n1"}]}]
    found = cluster(vmSize="standard_nc6", allocationState="steady", nodeStateCounts=counts, errors=errors)
    assert found.vm_size == "STANDARD_NC6"
    assert found.nodes == NodeCounts(idle=1, running=2, unusable=1) and found.nodes.total == 4
    assert str(found.nodes) == "1 idle, 2 running, 1 unusable"
    assert str(found.errors[0]) == "It broke." and found.errors[0].details == {"Node": "n1"}


@pytest.mark.parametrize(
    ("scale", "target"),
    [
        ({"manual": {"targetNodeCount": 3}}, 3),
        ({"autoScale": {"minimumNodeCount": 1, "maximumNodeCount": 4}}, AutoScale(1, 4)),
        ({"autoScale": {"minimumNodeCount": 1, "maximumNodeCount": 4, "initialNodeCount": 9}}, AutoScale(1, 4, 4)),
        ({}, 0),
    ],
)
def test_what_a_cluster_was_asked_for(scale: dict[str, object], target: object) -> None:
    assert cluster(scaleSettings=scale).target == target


def test_reasons_that_say_little() -> None:
    assert [str(reason) for reason in reasons([{"code": "OnlyCode"}, {}])] == ["OnlyCode", ""]


def test_ids_are_resource_managers() -> None:
    workspace = "/subscriptions/s/resourceGroups/g/providers/Microsoft.BatchAI/workspaces/w"
    assert cluster().id == f"{workspace}/clusters/c"
    assert cluster().workspace.experiment("e").job("j").id == f"{workspace}/experiments/e/jobs/j"


@pytest.mark.parametrize(
    ("path", "pattern", "fits"),
    [
        ("a/b.h5", "a/*.h5", True),
        ("a/b/c.h5", "a/*.h5", False),
        ("a/b/c.h5", "a/**/*.h5", True),
        ("a/c.h5", "a/**/*.h5", True),
        ("a/b/c.txt", "**/*.h5", False),
        ("a/b/c.h5", "**", True),
        ("A/b.h5", "a/*.h5", False),
        ("a/b1.h5", "a/b[0-9].h5", True),
    ],
)
def test_patterns(path: str, pattern: str, fits: bool) -> None:
    assert matches(path, pattern) is fits
    assert path.startswith(fixed_folder(pattern)) or not fits


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/passwd", "a//b", "", "a/.", "a\0b"])
def test_a_name_that_leads_out_is_not_written(name: str) -> None:
    with pytest.raises(SpecError, match="leads out of"):
        target_here("folder", name)
    assert target_here("folder", "a/b ü.txt") == Path("folder/a/b ü.txt")


def test_states_are_words_that_know_what_they_mean() -> None:
    found = cluster(allocationState="steady", vmPriority="LowPriority", provisioningState="Succeeded")
    assert (found.state, found.priority, found.provisioning) == ("steady", "lowpriority", "succeeded")
    assert found.state is AllocationState.STEADY and found.provisioning is ProvisioningState.SUCCEEDED
    assert repr(found).startswith("Cluster('c', state='steady', ") and f"{found.state}" == "steady"
    assert json.dumps(found.state) == '"steady"'
    assert cluster(allocationState="halted").state == "halted"  # a word of a later service passes through


def test_a_listing_prints_has_a_length_and_places_and_is_read_once_for_a_list() -> None:
    read: list[str] = []
    group = Session(Connection("https://arm.example", "s")).group("g")

    def found() -> Iterator[Cluster]:
        for name in ("a", "b", "c"):
            read.append(name)
            yield group.workspace("w").cluster(name)

    listing = Listing(found, table)
    assert [found.name for found in list(listing)] == ["a", "b", "c"]
    assert read == ["a", "b", "c"]  # list() asks for the length too: still one reading
    read.clear()
    assert listing[0].name == "a" and read == ["a"]
    read.clear()
    assert [found.name for found in listing[:1]] == ["a"] and read == ["a"]
    assert bool(listing) and len(listing) == 3 and listing[-1].name == "c"
    assert [found.name for found in listing[1:]] == ["b", "c"]
    assert repr(listing).startswith("[Cluster('a', not read yet), Cluster('b'") and repr(listing).endswith(")]")
    with pytest.raises(IndexError):
        listing[3]
    reading = iter(listing)
    assert next(reading).name == "a" and len(listing) == 3 and next(reading).name == "b"
    assert not Listing(lambda: iter(()), table)


def test_a_listing_of_a_million_files_prints_its_first_ones_and_says_that_there_are_more() -> None:
    read: list[int] = []

    def found() -> Iterator[FileEntry]:
        for number in range(1_000_000):
            read.append(number)
            yield FileEntry(f"<{number}>.png", 1_000 + number)

    listing = files(found)
    assert repr(listing).count("FileEntry(path='<") == 20 and repr(listing).endswith(", …] and more: len() counts them")
    assert max(read) == 20
    page = listing._repr_html_()
    assert page.count("<tr>") == 101 and "&lt;99&gt;.png" in page and "1,099" in page and "and more" in page
    assert max(read) == 100
    assert listing[999].size == 1_999 and max(read) == 999
    assert "none" in files(lambda: iter(()))._repr_html_() and repr(files(lambda: iter(()))) == "[]"
