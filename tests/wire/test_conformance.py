"""Each published example goes through the real HTTP interface; the answer has the example's shape.

The examples contradict each other and the description in places, and name things that Azure would refuse. ``SLIPS``
mends that, and nothing else is changed. ``ABSENT`` lists the fields of the examples' answers that this service has not.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from azure.storage.fileshare import ShareClient

from batchhvd.service.description.published import Description, Operation

HERE = Path(__file__).parents[1] / "data" / "batchai-2018-05-01"
DOCUMENT = json.loads((Path(__file__).parents[2] / "batchhvd/service/description/batchai-2018-05-01.json").read_text())
DESCRIPTION = Description(DOCUMENT)
SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"

SLIPS = {
    "00000000-0000-0000-0000-000000000000": SUBSCRIPTION,
    "/workspace/demo_workspace": "/workspaces/demo_workspace",
    "/workspaces/demo_workspaces/fileservers/fileservercedd134b": "/workspaces/demo_workspace/fileServers/demo_nfs",
    "demo_experimnet": "demo_experiment",
    "azure_file_share_name": "azure-file-share-name",
}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z")
ABSENT = {
    "subnet": "there are no virtual networks",
    "executionInfo": "of PutJob only: a job that was just created has not begun",
}
_RECORDED = "recordings of the real service show it"
ADDED = {"batchhvd": "the service's own place", "experimentName": _RECORDED, "fileServerType": _RECORDED}
FIRST = {
    "Workspaces": ["PutWorkspace"],
    "Experiments": ["PutWorkspace", "PutExperiment"],
    "FileServers": ["PutWorkspace", "PutFileServer"],
    "Clusters": ["PutWorkspace", "PutFileServer", "PutCluster"],
    "Jobs": ["PutWorkspace", "PutExperiment", "PutFileServer", "PutCluster", "PutJob"],
}


def examples() -> Iterator[tuple[str, Operation]]:
    operations = {operation.id: operation for operation in DESCRIPTION.operations}
    for methods in DOCUMENT["paths"].values():
        for operation in methods.values():
            for reference in operation["x-ms-examples"].values():
                yield Path(reference["$ref"]).stem, operations[operation["operationId"]]


EXAMPLES = dict(examples())


def test_every_operation_has_its_example() -> None:
    assert len(EXAMPLES) == 29 == len(list(HERE.glob("*.json")))
    assert {operation.id for operation in EXAMPLES.values()} == {operation.id for operation in DESCRIPTION.operations}


class Conformance:
    """Sends examples, with what they name being there."""

    def __init__(self, service: Any) -> None:
        self.service = service
        group = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/demo_resource_group"
        service.call("PUT", group, {"location": "eastus"})
        name = f"acc{os.urandom(5).hex()}"
        id = f"{group}/providers/Microsoft.Storage/storageAccounts/{name}"
        service.call("PUT", id, {"sku": {"name": "Standard_LRS"}, "kind": "StorageV2", "location": "eastus"})
        key = service.call("POST", f"{id}/listKeys").json()["keys"][0]["value"]
        ShareClient(f"{service.url}/{name}", "azure-file-share-name", credential=key).create_share()
        self.slips = {**SLIPS, "storage_account_name": name, "0" * 86 + "==": key}

    def send(self, name: str) -> Any:
        operation, parameters = EXAMPLES[name], self.parameters(name)
        values = {p["name"]: parameters[p["name"]] for p in operation.parameters if p["name"] in parameters}
        path = re.sub(r"\{(\w+)\}", lambda found: str(values[found[1]]), operation.template)
        names = [p["name"] for p in operation.parameters if p["in"] == "query" and p["name"] in values]
        query = "&".join(f"{name}={values[name]}" for name in names)
        return self.service.call(operation.method, f"{path}?{query}", parameters.get("parameters"))

    def shown(self, name: str) -> Any:
        """Returns the answer to a GET of what an example has put."""
        return self.send(name.replace("Put", "Get"))

    def parameters(self, name: str) -> dict[str, Any]:
        text = (HERE / f"{name}.json").read_text()
        for slip, right in self.slips.items():
            text = text.replace(slip, right)
        parameters: dict[str, Any] = json.loads(text)["parameters"]
        return parameters

    def prepare(self, name: str) -> None:
        for first in FIRST.get(EXAMPLES[name].id.partition("_")[0], ()):
            if first != name:
                answer = self.send(first)
                assert answer.status_code in (200, 202), answer.text
        if name == "DeleteFileServer":  # the cluster of the other examples mounts it
            self.service.finish(self.send("DeleteCluster"))

    def await_state(self, name: str, poll: Any) -> None:
        """Some examples show a later state: a job that runs, nodes that are there."""
        if name in ("GetJob", "ListJobByExperiment", "JobListRemoteLoginInfo", "ListOutputFiles"):
            poll(lambda: self.send("GetJob").json()["properties"].get("executionInfo", {}).get("startTime"))
        if name == "ListOutputFiles":
            poll(lambda: self.send(name).json()["value"])
        if name == "ClusterListRemoteLoginInfo":
            poll(lambda: self.send("GetCluster").json()["properties"]["currentNodeCount"])


@pytest.fixture(scope="module")
def conformance(service: Any) -> Conformance:
    return Conformance(service)


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(conformance: Conformance, name: str, poll: Any) -> None:
    conformance.prepare(name)
    conformance.await_state(name, poll)
    answer = conformance.send(name)
    expected = json.loads((HERE / f"{name}.json").read_text())["responses"]
    assert str(answer.status_code) in expected, answer.text
    if answer.status_code == 202 and EXAMPLES[name].method == "PUT":  # the body is what a GET shows from now on
        answer = conformance.shown(name)
    elif answer.status_code == 202:
        assert set(expected["202"]["headers"]) == {"Location", "Retry-After"}
        assert answer.headers["Location"].startswith(conformance.service.url) and answer.headers["Retry-After"] == "1"
    if answer.status_code == 200 and "body" in expected["200"]:
        assert list(differences(expected["200"]["body"], answer.json())) == []
        schema = DOCUMENT["paths"][EXAMPLES[name].template][EXAMPLES[name].method.lower()]["responses"]["200"]["schema"]
        assert list(violations(schema, answer.json())) == []
    if EXAMPLES[name].method == "DELETE":
        conformance.service.finish(answer)


def differences(expected: Any, found: Any, at: str = "") -> Iterator[str]:
    """Yields where an answer lacks what the example has, or has it in another type."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for name, part in expected.items():
            if name in found:
                yield from differences(part, found[name], f"{at}/{name}")
            elif name not in ABSENT:
                yield f"{at}/{name} is missing"
    elif isinstance(expected, list) and isinstance(found, list):
        if expected and not found:
            yield f"{at} is empty"
        for index, part in enumerate(found):
            every = [list(differences(one, part, f"{at}/{index}")) for one in expected]
            yield from [] if [] in every else every[0]
    elif type(expected) is not type(found):
        yield f"{at} is {found!r}, in the example {expected!r}"
    elif TIME.fullmatch(str(expected)) and not TIME.fullmatch(str(found)):
        yield f"{at} is no time: {found}"


TYPES: dict[str, Any] = {"string": str, "integer": int, "number": (int, float), "object": dict, "array": list}


def violations(schema: Mapping[str, Any], value: Any, at: str = "") -> Iterator[str]:
    """Yields where an answer is not what the description says: types, enums, fields that it does not know."""
    if "$ref" in schema:
        schema = DOCUMENT["definitions"][schema["$ref"].rpartition("/")[2]]
    parents = [DOCUMENT["definitions"][part["$ref"].rpartition("/")[2]] for part in schema.get("allOf", ())]
    properties = {name: part for one in [*parents, schema] for name, part in one.get("properties", {}).items()}
    if properties and isinstance(value, dict):
        yield from (f"{at}/{name} is unknown" for name in value if name not in properties and name not in ADDED)
        for name in value.keys() & properties.keys():
            yield from violations(properties[name], value[name], f"{at}/{name}")
    elif schema.get("type") == "array" and isinstance(value, list):
        for index, part in enumerate(value):
            yield from violations(schema["items"], part, f"{at}/{index}")
    elif "type" in schema and value is not None and not isinstance(value, TYPES[schema["type"]]):
        yield f"{at} is {value!r}, no {schema['type']}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at} is {value!r}, none of {schema['enum']}"
