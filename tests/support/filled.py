"""Fills a service's root with many finished jobs, clusters and files, through the store: what growth is measured on."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from batchhvd.service.store.records import Store
from batchhvd.wire.facts.identity import SUBSCRIPTION
from batchhvd.wire.facts.times import write_moment

ACCOUNT, SHARE = "benchaccount", "share"
_TIME = 1_600_000_000.0
_BATCH = 5000  # records written in one transaction


def group(name: str) -> str:
    """Returns the id of a group."""
    return f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{name}"


def experiment(name: str) -> str:
    """Returns the id of a group's experiment."""
    return f"{group(name)}/providers/Microsoft.BatchAI/workspaces/w/experiments/e"


def account(name: str) -> str:
    """Returns the id of a storage account in the group ``keep``."""
    return f"{group('keep')}/providers/Microsoft.Storage/storageAccounts/{name}"


def fill(root: Path, jobs: int = 0, clusters: int = 0, files: int = 0, doomed: int = 0, folders: bool = True) -> Store:
    """Fills a root and returns its store.

    Args:
        root: the root; it exists.
        jobs: finished jobs in the group ``keep``, each of which ended a second after the one before.
        clusters: clusters without nodes, there too.
        files: files in the first job's output directory.
        doomed: finished jobs in the group ``gone``.
        folders: whether each job of ``gone`` has a folder with a few files.
    """
    store = Store(root / "state.sqlite")
    for name in ("keep", "gone"):
        _frame(store, name)
    for name in (ACCOUNT, "unusedaccount"):
        keys = {"keys": [{"keyName": "key1", "value": "a2V5", "permissions": "FULL"}]}
        document = {"id": account(name), "name": name, "properties": {"provisioningState": "Succeeded"}}
        store.put(account(name), "storageAccounts", group("keep"), document, keys)
    share = root / "shares" / ACCOUNT / SHARE
    share.mkdir(parents=True, exist_ok=True)
    _clusters(store, clusters)
    uuids = _jobs(store, "keep", jobs)
    for number in _jobs(store, "gone", doomed) if folders else ():
        _folder(root / "tasks" / number / "1")
    if files and uuids:
        _files(share / "jobs" / uuids[0] / "stdouterr", files)
    return store


def _frame(store: Store, name: str) -> None:
    properties = {"provisioningState": "Succeeded"}
    store.put(group(name), "groups", "", {"id": group(name), "name": name, "location": "x", "properties": properties})
    workspace = experiment(name).rpartition("/experiments/")[0]
    for id, type, parent in ((workspace, "workspaces", group(name)), (experiment(name), "experiments", workspace)):
        _put(store, id, type, parent, {})


def _put(store: Store, id: str, type: str, parent: str, properties: Any, private: Any = None) -> None:
    time = write_moment(_TIME)
    states = {"creationTime": time, "provisioningState": "succeeded", "provisioningStateTransitionTime": time}
    document = {"id": id, "name": id.rpartition("/")[2], "type": type, "properties": {**properties, **states}}
    store.put(id, type, parent, document, private)


def _clusters(store: Store, count: int) -> None:
    manual = {"manual": {"targetNodeCount": 0, "nodeDeallocationOption": "requeue"}}
    counts = dict.fromkeys(("running", "idle", "unusable", "preparing", "leaving"), 0)
    properties = {
        "vmSize": "STANDARD_NC6",
        "vmPriority": "dedicated",
        "scaleSettings": manual,
        "allocationState": "steady",
        "allocationStateTransitionTime": write_moment(_TIME),
        "currentNodeCount": 0,
        "nodeStateCounts": {f"{state}NodeCount": number for state, number in counts.items()},
    }
    workspace = experiment("keep").rpartition("/experiments/")[0]
    with store.transaction():
        for number in range(count):
            private = {"names": [], "keys": {}, "secrets": {}, "target": 0}
            _put(store, f"{workspace}/clusters/c{number}", "clusters", workspace, properties, private)


def _jobs(store: Store, name: str, count: int) -> list[str]:
    """Makes jobs that have succeeded, and returns the names of their folders."""
    uuids = [str(uuid.uuid4()) for _ in range(count)]
    for start in range(0, count, _BATCH):
        with store.transaction():
            for number, own in enumerate(uuids[start : start + _BATCH], start):
                id = f"{experiment(name)}/jobs/j{number}"
                _put(store, id, "jobs", experiment(name), _properties(name, own, number), _private(own))
    return uuids


def _properties(name: str, own: str, number: int) -> dict[str, Any]:
    mount = {
        "azureFileUrl": f"https://{ACCOUNT}.file.core.windows.net/{SHARE}",
        "relativeMountPath": "share",
        "accountName": ACCOUNT,
        "credentials": {},
    }
    time = write_moment(_TIME)
    return {
        "cluster": {"id": f"{experiment(name).rpartition('/experiments/')[0]}/clusters/c0"},
        "nodeCount": 1,
        "customToolkitSettings": {"commandLine": "python train.py --epochs 12 --data $AZ_BATCHAI_JOB_MOUNT_ROOT/share"},
        "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/share",
        "mountVolumes": {"azureFileShares": [mount]},
        "environmentVariables": [{"name": "A", "value": "x" * 100}],
        "constraints": {"maxWallClockTime": "P7D"},
        "toolType": "custom",
        "jobOutputDirectoryPathSegment": f"jobs/{own}",
        "executionState": "succeeded",
        "executionStateTransitionTime": time,
        "executionInfo": {"startTime": time, "endTime": write_moment(_TIME + number), "exitCode": 0},
    }


def _private(own: str) -> dict[str, Any]:
    task = f"/tasks/{own}/1"
    ran = {"nodes": ["tvm-1_1"], "attempt": 1, "folder": task, "handle": task}
    return {"uuid": own, "keys": {ACCOUNT: "a2V5"}, "secrets": {}, "asked": {}, "warnings": [], "queued": _TIME, **ran}


def _folder(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in ("task.json", "node-0.json", "processes.json"):
        (folder / name).write_text("{}")


def _files(folder: Path, count: int) -> None:
    folder.mkdir(parents=True)
    for number in range(count):
        (folder / f"part-{number:07d}.txt").touch()
