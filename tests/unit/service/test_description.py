"""The description decides: every operation is routed and acted on, and every wrong field is met with its pointer."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from batchhvd.errors import BadRequestError, NotFoundError, ServiceError
from batchhvd.service.batchai.handlers import handlers
from batchhvd.service.description.published import Description
from batchhvd.service.dispatch import routes
from batchhvd.service.http.routes import Routes
from batchhvd.wire.facts.times import read_duration, write_duration

DESCRIPTION = Description.published()
ROUTES = routes(DESCRIPTION)
OPERATIONS = {operation.id: operation for operation in DESCRIPTION.operations}
GROUP = "/subscriptions/S/resourceGroups/G/providers/Microsoft.BatchAI"


def test_no_operation_is_forgotten() -> None:
    assert len(OPERATIONS) == 29
    assert handlers(DESCRIPTION).keys() == OPERATIONS.keys()


@pytest.mark.parametrize("id", OPERATIONS)
def test_each_operation_is_found_by_its_path(id: str) -> None:
    operation = OPERATIONS[id]
    path = operation.template.replace("{", "my-").replace("}", "_X")
    found = ROUTES.match(operation.method, path)
    assert found.target is operation
    assert all(value == f"my-{name}_X" for name, value in found.names.items())


def test_paths_compare_without_case_and_names_keep_theirs() -> None:
    found = ROUTES.match("GET", f"{GROUP}/workspaces/MyWork".upper().replace("MYWORK", "MyWork") + "/")
    assert found.target is OPERATIONS["Workspaces_Get"] and found.names["workspaceName"] == "MyWork"


@pytest.mark.parametrize(
    ("method", "path", "error", "status"),
    [
        ("GET", f"{GROUP}/nothing", NotFoundError, 404),
        ("GET", "/", NotFoundError, 404),
        ("POST", f"{GROUP}/workspaces/w", BadRequestError, 405),
        ("GET", f"{GROUP}/workspaces/%FF", BadRequestError, 400),
    ],
)
def test_other_paths_are_refused(method: str, path: str, error: type[ServiceError], status: int) -> None:
    with pytest.raises(error) as caught:
        ROUTES.match(method, path)
    assert caught.value.status == status


def test_a_literal_wins_and_an_encoded_slash_is_no_separator() -> None:
    table: Routes[str] = Routes()
    table.add("GET", "/a/{any}/c", "parameter")
    table.add("GET", "/a/b/d", "literal")
    assert table.match("GET", "/a/b/d").target == "literal"
    assert table.match("GET", "/a/b/c").target == "parameter"
    assert table.match("GET", "/a/x%2Fy%20z/c").names == {"any": "x/y z"}


@pytest.mark.parametrize("name", ["", "a b", "a/b", "é", "a" * 65, "..", "a\n"])
def test_names_follow_their_pattern(name: str) -> None:
    operation = OPERATIONS["Workspaces_Get"]
    names = {"subscriptionId": "S", "resourceGroupName": "g.1", "workspaceName": name}
    with pytest.raises(BadRequestError, match="workspaceName"):
        DESCRIPTION.check_names(operation, names)
    DESCRIPTION.check_names(operation, {**names, "workspaceName": "a-B_1"})


def job(**changes: Any) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "cluster": {"id": "c"},
        "nodeCount": 2,
        "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/x",
        "horovodSettings": {"pythonScriptFilePath": "x.py"},
    }
    return {"properties": {**properties, **changes}}


WRONG: list[tuple[Any, str, str]] = [
    ({}, "/properties", "is missing"),
    ([], "", "must be an object"),
    ({"properties": None}, "/properties", "is missing"),
    (job(nodeCount="2"), "/properties/nodeCount", "must be a whole number, not text"),
    (job(nodeCount=True), "/properties/nodeCount", "must be a whole number"),
    (job(nodeCount=2.5), "/properties/nodeCount", "not a fraction"),
    (job(nodeCount=2**31), "/properties/nodeCount", "must be from"),
    (job(nodeCount=None), "/properties/nodeCount", "is missing"),
    (job(cluster={}), "/properties/cluster/id", "is missing"),
    (job(horovodSettings={}), "/properties/horovodSettings/pythonScriptFilePath", "is missing"),
    (job(schedulingPriority="urgent"), "/properties/schedulingPriority", "low, normal, high"),
    (job(environmentVariables={}), "/properties/environmentVariables", "must be a list"),
    (job(environmentVariables=[{"name": "A"}]), "/properties/environmentVariables/0/value", "is missing"),
    (job(inputDirectories=[{"id": "A", "path": 1}]), "/properties/inputDirectories/0/path", "must be text"),
    (job(constraints={"maxWallClockTime": "soon"}), "/properties/constraints/maxWallClockTime", "duration"),
    (job(constraints={"maxWallClockTime": "PT0S"}), "/properties/constraints/maxWallClockTime", "above zero"),
]


@pytest.mark.parametrize(("body", "pointer", "text"), WRONG)
def test_a_wrong_field_is_named_by_its_pointer(body: Any, pointer: str, text: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        DESCRIPTION.read_body(OPERATIONS["Jobs_Create"], body)
    assert caught.value.target == pointer and text in str(caught.value) and pointer in str(caught.value)
    assert caught.value.status == 400


def test_all_wrong_fields_are_listed() -> None:
    with pytest.raises(BadRequestError) as caught:
        DESCRIPTION.read_body(OPERATIONS["Jobs_Create"], job(nodeCount="x", cluster={}, schedulingPriority="y"))
    assert {detail["target"].rpartition("/")[2] for detail in caught.value.details} == {
        "nodeCount",
        "id",
        "schedulingPriority",
    }


def test_unknown_fields_are_dropped_and_reported() -> None:
    body = {"$schema": "x", **job(toolType="custom", mountVolumes={"a/b~c": 1})}
    value, unknown = DESCRIPTION.read_body(OPERATIONS["Jobs_Create"], body)
    assert unknown == ["/properties/toolType", "/properties/mountVolumes/a~1b~0c"]
    assert "toolType" not in value["properties"] and value["properties"]["mountVolumes"] == {}


def test_defaults_are_filled_in_and_enums_spelt_as_listed() -> None:
    share: dict[str, Any] = {
        "accountName": "a",
        "azureFileUrl": "u",
        "credentials": {},
        "relativeMountPath": "m",
        "fileMode": None,
    }
    body = job(mountVolumes={"azureFileShares": [share]}, schedulingPriority="HIGH")
    value, _ = DESCRIPTION.read_body(OPERATIONS["Jobs_Create"], body)
    assert value["properties"]["schedulingPriority"] == "high"
    assert value["properties"]["mountVolumes"]["azureFileShares"][0]["fileMode"] == "0777"
    value, _ = DESCRIPTION.read_body(OPERATIONS["Jobs_Create"], job(constraints={}))
    assert value["properties"]["constraints"] == {"maxWallClockTime": "P7D"}
    assert value["properties"]["schedulingPriority"] == "normal"


def test_the_query_is_checked_and_completed() -> None:
    operation = OPERATIONS["Jobs_ListOutputFiles"]
    query = DESCRIPTION.read_query(operation, {"api-version": "2018-05-01", "outputdirectoryid": "stdouterr"})
    assert (query["directory"], query["linkexpiryinminutes"], query["maxresults"]) == (".", "60", "1000")
    for name, value in (("maxresults", "0"), ("maxresults", "x"), ("linkexpiryinminutes", "601"), ("maxresults", "²")):
        with pytest.raises(BadRequestError, match=name):
            DESCRIPTION.read_query(operation, {**query, name: value})
    with pytest.raises(BadRequestError, match="outputdirectoryid is missing"):
        DESCRIPTION.read_query(operation, {"api-version": "2018-05-01"})


@pytest.mark.parametrize(
    ("text", "seconds", "shown"),
    [
        ("P7D", 604800, "P7D"),
        ("7.00:00:00", 604800, "P7D"),
        ("PT1H2M3.5S", 3723.5, "PT1H2M3.5S"),
        ("01:00:00", 3600, "PT1H"),
        ("P1W", 604800, "P7D"),
        ("PT36H", 129600, "P1DT12H"),
    ],
)
def test_durations(text: str, seconds: float, shown: str) -> None:
    length = read_duration(text)
    assert length == timedelta(seconds=seconds) and write_duration(length) == shown


@pytest.mark.parametrize("text", ["", "P", "PT", "7", "P1Y", "-P1D", "P1D ", "P" + "9" * 30 + "D"])
def test_no_durations(text: str) -> None:
    assert read_duration(text) is None
