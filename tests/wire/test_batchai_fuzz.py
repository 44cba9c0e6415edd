"""Whatever is sent, the service answers: soon, never with 500, and with an error that says what is wrong.

Requests are made from the description: documents that fit, with one to three random changes, on paths that exist or do
not. ``BATCHHVD_FUZZ=10000`` sends so many; ``BATCHHVD_FUZZ_SEED`` repeats a run.
"""

from __future__ import annotations

import copy
import http.client
import json
import os
import random
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import pytest
from azure.storage.fileshare import ShareClient

from batchhvd.service.arm import groups as arm
from batchhvd.service.arm import storage_accounts as accounts
from batchhvd.service.description.published import Description, Operation

COUNT = int(os.environ.get("BATCHHVD_FUZZ", "300"))
SEED = int(os.environ.get("BATCHHVD_FUZZ_SEED", "0")) or random.SystemRandom().randrange(1, 10**9)
SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
GROUP = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/fuzz"
WORKSPACE = f"{GROUP}/providers/Microsoft.BatchAI/workspaces/w"
DESCRIPTION = Description.published()

# Nothing in here is a command: some of these jobs really run.
TEXTS = [
    "",
    "a",
    "é",
    "..",
    "../..",
    "/etc/passwd",
    "$AZ_BATCHAI_JOB_MOUNT_ROOT/m",
    "$HOME",
    "${",
    "x" * 5000,
    "😀",
    "a b",
]
TEXTS += ["\u202e", "0", "%2e%2e", "\n", "null", "P7D", "\x7f", "A=B", "eastus", "m", "succeeded", "é" * 64, "a/b/../c"]
ODD: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1,
    2,
    2**31,
    2**63,
    -(2**70),
    1.5,
    1e308,
    [],
    {},
    [[]],
    [None],
    {"": ""},
    {"a": {"b": 1}},
]


class Maker:
    """Makes requests at random, the same ones for the same seed."""

    def __init__(self, seeds: Mapping[str, Any]) -> None:
        self._random, self.seeds = random.Random(SEED), seeds
        self._arm = [(method, template) for method, template, _ in (*arm.ROUTES, *accounts.ROUTES)]

    def request(self) -> tuple[str, str, bytes | None]:
        if self._random.random() < 0.25:
            method, template = self._random.choice(self._arm)
            path, body = self._path(template), self._body(method, template)
            return method, f"{path}?api-version=2018-07-01", body
        operation = self._random.choice(DESCRIPTION.operations)
        method = (
            operation.method if self._random.random() < 0.95 else self._random.choice(["GET", "PUT", "HEAD", "PATCH"])
        )
        return method, f"{self._path(operation.template)}?{self._query(operation)}", self._body(method, operation.id)

    def _path(self, template: str) -> str:
        known = {"subscription": SUBSCRIPTION, "group": "fuzz", "workspace": "w", "cluster": "c", "experiment": "e"}
        parts = []
        for part in template.split("/"):
            name = part.strip("{}")
            short = name.removesuffix("Name").removesuffix("Id").replace("resourceGroup", "group")
            value = (
                known.get(short, self._random.choice(["j", "k", "fuzzaccount", "x1"])) if part.startswith("{") else part
            )
            if part.startswith("{") and self._random.random() < 0.05:
                value = self._random.choice(TEXTS)
            parts.append(quote(value, safe=""))
        path = "/".join(parts)
        return path.swapcase() if self._random.random() < 0.1 else path

    def _query(self, operation: Operation) -> str:
        query: dict[str, Any] = {"api-version": "2018-05-01"}
        for parameter in operation.parameters:
            if parameter["in"] == "query" and parameter["name"] != "api-version" and self._random.random() < 0.7:
                good = ["1", "60", "stdouterr", "OUT", ".", "sub"]
                query[parameter["name"]] = self._random.choice(good if self._random.random() < 0.7 else TEXTS)
        if self._random.random() < 0.05:
            query[self._random.choice(["$skiptoken", "api-version", "x"])] = self._random.choice(TEXTS)
        return urlencode(query)

    def _body(self, method: str, key: str) -> bytes | None:
        document = copy.deepcopy(self.seeds.get(key, {"properties": {}}))
        if method in ("GET", "HEAD", "DELETE") or self._random.random() < 0.03:
            return None
        for _ in range(self._random.choice([0, 0, 1, 1, 2, 3])):
            document = self._change(document)
        text = json.dumps(document).encode()
        if self._random.random() < 0.04:
            at = self._random.randrange(len(text) + 1)
            text = text[:at] + self._random.choice([b"\xff", b"\0", b"}", b'"', b"[[[[", b"\\ud800"]) + text[at:]
        return text

    def _change(self, value: Any) -> Any:
        """Changes one place of a document: another value, one less, one more."""
        if isinstance(value, dict) and value and self._random.random() < 0.85:
            name = self._random.choice(list(value))
            if self._random.random() < 0.1:
                del value[name]
            elif self._random.random() < 0.1:
                value[self._random.choice(TEXTS)] = self._junk()
            else:
                value[name] = self._change(value[name])
            return value
        if isinstance(value, list) and value and self._random.random() < 0.85:
            at = self._random.randrange(len(value))
            value[at] = self._change(value[at])
            return value + value if self._random.random() < 0.2 else value
        return self._junk()

    def _junk(self) -> Any:
        return copy.deepcopy(self._random.choice(ODD if self._random.random() < 0.5 else TEXTS))


def seeds(key: str) -> dict[str, Any]:
    """Returns a document that fits for each operation that takes one."""
    share = {
        "accountName": "fuzzaccount",
        "azureFileUrl": "https://fuzzaccount.file.core.windows.net/share",
        "credentials": {"accountKey": key},
        "relativeMountPath": "m",
    }
    user = {"adminUserName": "me", "adminUserPassword": "x"}
    cluster = {
        "vmSize": "STANDARD_NC6",
        "vmPriority": "dedicated",
        "userAccountSettings": user,
        "scaleSettings": {"manual": {"targetNodeCount": 1, "nodeDeallocationOption": "requeue"}},
        "nodeSetup": {"mountVolumes": {"azureFileShares": [share]}},
    }
    output = {"id": "OUT", "pathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/m", "pathSuffix": "x"}
    job = {
        "cluster": {"id": f"{WORKSPACE}/clusters/c"},
        "nodeCount": 1,
        "schedulingPriority": "low",
        "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/m",
        "mountVolumes": {"azureFileShares": [share]},
        "customToolkitSettings": {"commandLine": "true"},
        "inputDirectories": [{"id": "IN", "path": "$AZ_BATCHAI_JOB_MOUNT_ROOT/m"}],
        "outputDirectories": [output],
        "environmentVariables": [{"name": "E", "value": "v"}],
        "secrets": [{"name": "S", "value": "v"}],
        "constraints": {"maxWallClockTime": "PT10S"},
    }
    disks = {"diskSizeInGB": 1, "diskCount": 1, "storageAccountType": "Standard_LRS"}
    server = {"vmSize": "D1", "sshConfiguration": {"userAccountSettings": user}, "dataDisks": disks}
    account = (
        "/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Storage/storageAccounts/{account}"
    )
    return {
        "Workspaces_Create": {"location": "eastus", "tags": {"a": "b"}},
        "Workspaces_Update": {"tags": {"a": "b"}},
        "Clusters_Create": {"properties": cluster},
        "Clusters_Update": {
            "properties": {"scaleSettings": {"autoScale": {"minimumNodeCount": 0, "maximumNodeCount": 1}}}
        },
        "Jobs_Create": {"properties": job},
        "FileServers_Create": {"properties": server},
        "/subscriptions/{subscription}/resourceGroups/{group}": {"location": "eastus", "tags": {}},
        account: {"sku": {"name": "Standard_LRS"}, "kind": "Storage", "location": "eastus"},
        f"{account}/regenerateKey": {"keyName": "key2"},
        "/subscriptions/{subscription}/providers/Microsoft.Storage/checkNameAvailability": {"name": "fuzzaccount"},
    }


@pytest.fixture(scope="module")
def fuzzed(start: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    outside = tmp_path_factory.mktemp("outside")
    running = start(outside / "fuzz röot")
    yield running
    assert running.stop() == 0


def has_group(running: Any) -> bool:
    """Asks for the group; a request may have begun its end, or have made it in another location since."""
    answer = running.call("PUT", GROUP, {"location": "eastus"})
    if answer.status_code == 409 and answer.json()["error"]["code"] == "InvalidResourceGroupLocation":
        running.finish(running.call("DELETE", GROUP))
    return answer.status_code in (200, 201, 202)


def make_place(running: Any, poll: Any) -> str:
    """Makes what the requests' paths name, and returns the account's key."""
    poll(lambda: has_group(running))
    account = f"{GROUP}/providers/Microsoft.Storage/storageAccounts/fuzzaccount"
    running.call("PUT", account, {"sku": {"name": "Standard_LRS"}, "kind": "Storage", "location": "eastus"})
    key = str(running.call("POST", f"{account}/listKeys").json()["keys"][0]["value"])
    share = ShareClient(f"{running.url}/fuzzaccount", "share", credential=key)
    if not (running.root / "shares/fuzzaccount/share").exists():
        share.create_share()
    for path, body in (
        (WORKSPACE, {"location": "eastus", "tags": {"a": "b"}}),
        (f"{WORKSPACE}/experiments/e", None),
        (f"{WORKSPACE}/clusters/c", seeds(key)["Clusters_Create"]),
    ):
        poll(lambda path=path, body=body: "BeingDeleted" not in running.call("PUT", path, body).text)
    return key


def test_no_500_no_hang_no_way_out(fuzzed: Any, poll: Any) -> None:
    print(f"BATCHHVD_FUZZ_SEED={SEED}")
    maker, counts = Maker(seeds(make_place(fuzzed, poll))), dict.fromkeys((2, 4), 0)
    connection = http.client.HTTPConnection(urlsplit(fuzzed.url).netloc, timeout=20)
    headers = {"Authorization": f"Bearer {fuzzed.token}", "Content-Type": "application/json"}
    for index in range(COUNT):
        if index % 50 == 49:
            maker.seeds = seeds(make_place(fuzzed, poll))
        method, path, body = maker.request()
        begun = time.monotonic()
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        text = answer.read()
        told = f"seed {SEED}, request {index}: {method} {path} {body!r} -> {answer.status} {text[:500]!r}"
        assert answer.status < 500 and time.monotonic() - begun < 10, told
        counts[answer.status // 100] += 1
        if answer.status >= 400 and method != "HEAD":
            error = json.loads(text)["error"]
            assert error["code"] and error["message"], told
            assert answer.getheader("Retry-After") is None, told
    assert counts[2] > COUNT / 10 and counts[4] > COUNT / 10, counts
    assert "Traceback" not in fuzzed.log(), fuzzed.log()[-3000:]
    assert [path.name for path in fuzzed.root.parent.iterdir()] == [fuzzed.root.name]
    print(f"seed {SEED}: {counts}")


def test_a_dry_run_refuses_exactly_what_the_creation_refuses(fuzzed: Any, poll: Any) -> None:
    print(f"BATCHHVD_FUZZ_SEED={SEED}")
    maker, counts = Maker(seeds(make_place(fuzzed, poll))), dict.fromkeys((2, 4), 0)
    for index in range(COUNT // 3):
        body = maker._body("PUT", "Jobs_Create") or b""
        path = f"{WORKSPACE}/experiments/e/jobs/dry{index}"
        dry = fuzzed.call("PUT", path, body, **{"x-batchhvd-dry-run": "true"})
        real = fuzzed.call("PUT", path, body)
        told = f"seed {SEED}, request {index}: {body!r} -> {dry.text[:500]!r}, {real.text[:500]!r}"
        assert (dry.status_code, real.status_code) == (200, 202) or dry.status_code == real.status_code >= 400, told
        assert real.status_code < 400 or dry.json() == real.json(), told
        counts[real.status_code // 100] += 1
    assert counts[2] > COUNT / 30 and counts[4] > COUNT / 30, counts
