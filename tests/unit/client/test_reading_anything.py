"""Any JSON value at any place of a job or cluster file, any text as an address: an answer or a sentence."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import batchhvd
from batchhvd import ClusterSpec, JobSpec, Mount, SpecError
from batchhvd.advice.plan import make
from batchhvd.resources.session import Session
from batchhvd.wire.connection import Connection
from batchhvd.wire.facts.containers import Containers

QUICK = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, database=None
)
TEXT = {"commandLine": "x", "stdOutErrPathPrefix": "p"}
VARIABLES = [{"name": "a", "value": "b"}]
VOLUMES: dict[str, Any] = {
    "azureFileShares": [
        {
            "azureFileUrl": "https://store.file.core.windows.net/s",
            "relativeMountPath": "m",
            "accountName": "store",
            "credentials": {"accountKey": "<AZURE_BATCHAI_STORAGE_KEY>"},
        }
    ],
    "azureBlobFileSystems": [{"accountName": "a", "containerName": "c", "relativeMountPath": "b", "credentials": {}}],
    "fileServers": [{"fileServer": {"id": "/x"}, "relativeMountPath": "f"}],
    "unmanagedFileSystems": [{"mountCommand": "mount x", "relativeMountPath": "u"}],
}
JOB = {
    "nodeCount": 4,
    "horovodSettings": {"pythonScriptFilePath": "$AZ/x.py", "commandLineArgs": "--a", "processCount": 4},
    "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/m",
    "mountVolumes": VOLUMES,
    "jobPreparation": {"commandLine": "x"},
    "environmentVariables": VARIABLES,
    "secrets": VARIABLES,
    "constraints": {"maxWallClockTime": "PT1H"},
    "inputDirectories": [{"id": "a", "path": "p"}],
    "outputDirectories": [{"id": "a", "pathPrefix": "p", "pathSuffix": "s"}],
    "schedulingPriority": "normal",
    "cluster": {"id": "/x"},
    "containerSettings": {"imageSourceRegistry": {"image": "x", "credentials": {"username": "u", "password": "p"}}},
}
CLUSTER = {
    "vmSize": "S",
    "vmPriority": "dedicated",
    "scaleSettings": {"autoScale": {"minimumNodeCount": 0, "maximumNodeCount": 4, "initialNodeCount": 1}},
    "userAccountSettings": {"adminUserName": "u", "adminUserSshPublicKey": "s", "adminUserPassword": "p"},
    "nodeSetup": {"setupTask": {**TEXT, "environmentVariables": VARIABLES}, "mountVolumes": VOLUMES},
}
KINDS = [(JobSpec, {"properties": JOB}), (ClusterSpec, {"properties": CLUSTER, "location": "x"})]

places = st.lists(st.integers(0, 30), max_size=7)
leaves = st.sampled_from(
    [
        "",
        "²",
        "\ud800",
        "\0",
        "[[PLACEHOLDER]]",
        "https://[[PLACEHOLDER]]/x",
        "http://[v6]:x/a",
        "http://h:99999999/a/b",
    ]
    + [
        "<AZURE_BATCHAI_STORAGE_KEY>",
        "<AZURE_BATCHAI_STORAGE_ACCOUNT>",
        "<X>",
        "PT1H",
        "P99999999999999D",
        "../x",
        "$X/..",
    ]
    + ["https://store.file.core.windows.net/s", "a", "m"]
)
fields = st.sampled_from(
    [
        "azureFileUrl",
        "relativeMountPath",
        "azureFileShares",
        "accountName",
        "commandLine",
        "nodeCuont",
        "",
        "own",
        "value",
    ]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(fields, inner, max_size=3),
    max_leaves=8,
)


def placed(document: Any, steps: list[int], value: object) -> Any:
    """Returns a document with a value at a place: each number chooses a member of what is there."""
    if not steps or not isinstance(document, (dict, list)) or not document:
        return value
    made = copy.copy(document)
    at = list(document)[steps[0] % len(document)] if isinstance(document, dict) else steps[0] % len(document)
    made[at] = placed(document[at], steps[1:], value)
    return made


class Nowhere:
    """A service that has nothing, as plans see it."""

    local = True
    containers = Containers()
    cluster_name = "c"

    def refusals(self, spec: JobSpec, name: str) -> None:
        return None

    def cluster(self) -> tuple[str, str, int]:
        return ("c", "STANDARD_NC6", 1)

    def preparation(self) -> str:
        return "skipped: not root"

    def has_share(self, mount: Mount) -> bool:
        return True

    def has_file(self, mount: Mount, path: str) -> bool:
        return False


def use(spec: JobSpec | ClusterSpec) -> None:
    """Does with a spec what creating and planning do."""
    assert repr(spec) and spec._accounts() is not None
    json.dumps(spec.to_document(), allow_nan=False, ensure_ascii=False).encode()
    assert type(spec).from_document(spec.to_document(), vm_size="S") if isinstance(spec, ClusterSpec) else True
    if isinstance(spec, JobSpec):
        assert JobSpec.from_document(spec.to_document()) and spec._request("/c", {"store": "key"})
        str(make(spec, "n", Nowhere()))
    else:
        assert spec._request({"store": "key"})


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", KINDS, ids=["job", "cluster"])
@QUICK
@given(steps=places, value=values, account=st.sampled_from([None, "store"]))
@example(steps=[], value=None, account=None)
@example(steps=[], value=[1], account=None)
@example(steps=[0, 3, 0], value=[None], account=None)
@example(steps=[0, 3, 0, 0, 0], value="https://[[PLACEHOLDER]]/x", account=None)
@example(steps=[0, 5], value=[None], account=None)
@example(steps=[0, 2], value="<AZURE_BATCHAI_STORAGE_KEY>", account=None)
@example(steps=[0, 0], value={"azureFileUrl": 1, "relativeMountPath": [1]}, account=None)
def test_any_value_at_any_place(kind: tuple[Any, Any], steps: list[int], value: object, account: str | None) -> None:
    try:
        spec = kind[0].from_document(placed(kind[1], steps, value), account=account)
    except SpecError as error:
        assert error.problem and error.remedy
    else:
        use(spec)


def test_every_place_with_null_and_brackets(tmp_path: Path, recwarn: object) -> None:
    """The same from a file: a fault has line and column."""
    file = tmp_path / "job.json"
    for kind, document in KINDS:
        for pointer in _pointers(document):
            for value in (None, [None], "https://[[PLACEHOLDER]]/x", {"a": None}, 10**30, "\ud800"):
                file.write_text(json.dumps(_put(document, pointer, value)))
                try:
                    spec = kind.read(file)  # type: ignore[attr-defined]
                except SpecError as error:
                    assert error.line and error.column and error.remedy, (pointer, value, error)
                else:
                    use(spec)


def _pointers(value: object, above: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [above, *(pointer for name, item in pairs for pointer in _pointers(item, (*above, name)))]


def _put(document: Any, pointer: tuple[str | int, ...], value: object) -> Any:
    if not pointer:
        return value
    made = copy.copy(document)
    made[pointer[0]] = _put(document[pointer[0]], pointer[1:], value)
    return made


urls = st.sampled_from(
    [
        "https://[[PLACEHOLDER]]/x",
        "http://[::1",
        "http://127.0.0.1:99999999",
        "https://",
        "http://",
        "https:///x",
        "\udcff",
    ]
)


@QUICK
@given(
    st.text(max_size=30)
    | urls
    | st.text(max_size=12).map("https://{}".format)
    | st.text(max_size=9).map("http://127.0.0.1{}".format)
)
@example("http://127.0.0.1:99999999")
@example("https://[[PLACEHOLDER]]")
def test_any_text_as_an_endpoint(text: str) -> None:
    try:
        session = batchhvd.connect(text, "token", subscription="s")
    except SpecError as error:
        assert "give a URL such as" in str(error)
    else:
        assert isinstance(session, Session) and session._connection.batchai


@QUICK
@given(st.text(max_size=30) | urls | st.text(max_size=12).map("https://{}/x".format))
def test_any_text_as_the_address_of_a_share(text: str) -> None:
    try:
        mount = Mount.from_document({"azureFileUrl": text, "relativeMountPath": "m"})
    except SpecError as error:
        assert error.pointer == "/azureFileUrl" and "write https://ACCOUNT.file" in error.remedy
    else:
        assert mount.account and mount.share


def test_documents_that_no_file_can_hold() -> None:
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    for value in (deep, object(), {1: 2}, {"own": {None: 1}}, b"x", float("nan"), 10**5000):
        with pytest.raises(SpecError):
            JobSpec.from_document({"properties": {**JOB, "own": value}})
    with pytest.raises(SpecError, match="cannot read a\0b"):
        JobSpec.read("a\0b")
    assert Connection("https://arm.example", "s")
