"""A store with documents as the requests write them, and an engine in memory: what the scheduler's tests play with."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from attrs import define, evolve, field

from batchhvd.engines.base import ENDED, Status, Task
from batchhvd.errors import EngineError
from batchhvd.service.scheduler.task import Site
from batchhvd.service.scheduler.tick import Scheduler
from batchhvd.service.store.records import Record, Store
from batchhvd.wire.facts import additions
from batchhvd.wire.facts.times import write_moment

GROUP = "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/g"
WORKSPACE = f"{GROUP}/providers/Microsoft.BatchAI/workspaces/w"
EXPERIMENT = f"{WORKSPACE}/experiments/e"
MOUNT = {
    "azureFileUrl": "https://acc.file.core.windows.net/share",
    "relativeMountPath": "ablage ü",
    "accountName": "acc",
    "credentials": {},
}


@define
class Clock:
    """A clock that stands still until it is pushed."""

    now: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@define
class Memory:
    """A whole engine whose tasks run until they are told how they end."""

    limit: int = 100
    tasks: dict[str, Task] = field(factory=dict)
    states: dict[str, Status] = field(factory=dict)
    cancelled: list[str] = field(factory=list)
    refuses: str = ""
    stubborn: bool = False

    def nodes(self) -> int:
        return self.limit

    def preview(self, task: Task) -> str:
        return f"run {task.name} on {', '.join(task.nodes)}"

    def submit(self, task: Task) -> str:
        if self.refuses:
            raise EngineError(self.refuses, engine="memory")
        if task.folder not in self.tasks:
            self.tasks[task.folder] = task
            self.states[task.folder] = Status(state="running", started=1.0)
        return task.folder

    def status(self, handles: Sequence[str]) -> Mapping[str, Status]:
        lost = Status(state="lost", reason="node", error="nothing is known of it")
        return {handle: self.states.get(handle, lost) for handle in handles}

    def cancel(self, handle: str) -> None:
        self.cancelled.append(handle)
        if self.states[handle].state not in ENDED and not self.stubborn:
            self.end(handle, state="cancelled", reason="cancelled", error="the job was terminated")

    def end(self, handle: str, state: str = "succeeded", **facts: Any) -> None:
        """Ends a task."""
        if state == "succeeded":
            facts.setdefault("exit_code", 0)
        self.states[handle] = evolve(self.states[handle], state=state, ended=2.0, **facts)

    def running(self) -> list[Task]:
        """Returns the tasks that have not ended."""
        return [task for handle, task in self.tasks.items() if self.states[handle].state not in ENDED]


class AtOnce(Executor):
    """Runs what it is given before it returns."""

    def submit(self, function: Any, /, *args: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(function(*args, **named))
        except Exception as error:
            future.set_exception(error)
        return future


@define
class World:
    """A service without its network side."""

    root: Path
    engine: Any = field(factory=Memory)
    clock: Any = field(factory=Clock)
    store: Store = field(init=False)
    scheduler: Scheduler = field(init=False)
    site: Site = field(factory=lambda: Site(python="/usr/bin/python3", prepare="host"))

    def __attrs_post_init__(self) -> None:
        self.store = Store(self.root / "state.sqlite")
        self.store._connection().execute("PRAGMA synchronous = OFF")  # no power cut is tested here
        self.restart()
        (self.root / "shares" / "acc" / "share").mkdir(parents=True, exist_ok=True)
        if self.store.get(GROUP) is None:
            self.store.put(
                GROUP, "groups", "", {"id": GROUP, "name": "g", "properties": {"provisioningState": "Succeeded"}}
            )
            account = f"{GROUP}/providers/Microsoft.Storage/storageAccounts/acc"
            keys = {"keys": [{"keyName": "key1", "value": "a2V5", "permissions": "FULL"}]}
            document = {"id": account, "name": "acc", "properties": {"provisioningState": "Succeeded"}}
            self.store.put(account, "storageAccounts", GROUP, document, keys)
            self._put(WORKSPACE, "workspaces", GROUP, {})
            self._put(EXPERIMENT, "experiments", WORKSPACE, {})

    def restart(self, **options: Any) -> None:
        """Replaces the scheduler, as a new process would."""
        executor = AtOnce()
        self.scheduler = Scheduler(
            self.store, self.root, self.engine, self.clock, site=self.site, executor=executor, **options
        )

    def tick(self, times: int = 1, seconds: float = 0.0) -> bool:
        """Calls the scheduler some times, pushing the clock before each; False, so that a condition may go on."""
        for _ in range(times):
            if seconds:
                self.clock.now += seconds
            self.scheduler.tick()
        return False

    def cluster(self, name: str = "c", nodes: int = 4, scale: Any = None, **properties: Any) -> Record:
        """Creates a cluster, as a request does."""
        manual = {"manual": {"targetNodeCount": nodes, "nodeDeallocationOption": "requeue"}}
        body = {"vmSize": "STANDARD_NC6", "vmPriority": "dedicated", "scaleSettings": scale or manual}
        counts = ("running", "idle", "unusable", "preparing", "leaving")
        zero = {"currentNodeCount": 0, "nodeStateCounts": {f"{count}NodeCount": 0 for count in counts}}
        body |= {"allocationState": "resizing", **zero, **properties}
        private = {"names": [], "keys": {"acc": "a2V5"}, "secrets": {}}
        return self._put(f"{WORKSPACE}/clusters/{name}", "clusters", WORKSPACE, body, private)

    def job(self, name: str, nodes: int = 1, cluster: str = "c", private: Any = None, **properties: Any) -> Record:
        """Queues a job, as a request does."""
        unique = str(uuid.uuid4())
        body: dict[str, Any] = {
            "cluster": {"id": f"{WORKSPACE}/clusters/{cluster}"},
            "nodeCount": nodes,
            "executionState": "queued",
            "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/ablage ü",
            "mountVolumes": {"azureFileShares": [MOUNT]},
            "jobOutputDirectoryPathSegment": f"s/g/workspaces/w/experiments/e/jobs/{name}/{unique}",
        }
        if not any(kind.endswith("Settings") for kind in properties):
            properties["customToolkitSettings"] = {"commandLine": "true"}
        own = {"uuid": unique, "keys": {"acc": "a2V5"}, "secrets": {}, "warnings": [], "outputs": "outputs"}
        return self._put(f"{EXPERIMENT}/jobs/{name}", "jobs", EXPERIMENT, body | properties, own | (private or {}))

    def _put(self, id: str, type: str, parent: str, properties: Any, private: Any = None) -> Record:
        times = {"creationTime": write_moment(self.clock()), "provisioningState": "succeeded"}
        document = {"id": id, "name": id.rpartition("/")[2], "properties": {**properties, **times}}
        return self.store.put(id, type, parent, document, private)

    def delete(self, id: str) -> None:
        """Wishes a resource and all below it away, as a request does."""
        for record in [self.store.get(id), *self.store.under(id)]:
            assert record is not None
            self.store.update(
                record.id, lambda document, _: document["properties"].update(provisioningState="deleting")
            )

    def terminate(self, name: str) -> None:
        """Wishes the end of a job, as a request does."""
        self.change(name, executionState="terminating")

    def change(self, name: str, **properties: Any) -> None:
        """Alters properties of a job, or of a cluster where there is no such job."""
        id = f"{EXPERIMENT}/jobs/{name}"
        id = id if self.store.get(id) else f"{WORKSPACE}/clusters/{name}"
        self.store.update(id, lambda document, _: document["properties"].update(properties))

    def resize(self, nodes: int, option: str = "requeue", name: str = "c") -> None:
        """Changes a cluster's size, as a request does."""
        manual = {"manual": {"targetNodeCount": nodes, "nodeDeallocationOption": option}}
        self.change(name, scaleSettings=manual, allocationState="resizing")

    def of(self, name: str) -> Record:
        """Returns a job."""
        record = self.store.get(f"{EXPERIMENT}/jobs/{name}")
        assert record is not None, name
        return record

    def state(self, name: str) -> str:
        """Returns a job's execution state."""
        return str(self.of(name).document["properties"]["executionState"])

    def info(self, name: str) -> Any:
        """Returns a job's execution info, with the service's own account of its errors."""
        properties = self.of(name).document["properties"]
        errors = list(additions.told_errors(properties))
        return {**properties.get("executionInfo", {}), **({"errors": errors} if errors else {})}

    def error(self, name: str) -> tuple[str, str]:
        """Returns code and message of a job's first error."""
        first = self.info(name)["errors"][0]
        return first["code"], first["message"]

    def handle(self, name: str) -> str:
        """Returns a job's handle."""
        return str(self.of(name).private["handle"])

    def end(self, name: str, state: str = "succeeded", **facts: Any) -> None:
        """Ends a job's task in the engine in memory."""
        self.engine.end(self.handle(name), state, **facts)

    def counts(self, name: str = "c") -> dict[str, int]:
        """Returns the node counts of a cluster that are not 0, after checking that they add up."""
        record = self.store.get(f"{WORKSPACE}/clusters/{name}")
        assert record is not None
        properties = record.document["properties"]
        counts = {key.removesuffix("NodeCount"): value for key, value in properties["nodeStateCounts"].items()}
        assert sum(counts.values()) == properties["currentNodeCount"] == len(record.private["names"])
        return {key: value for key, value in counts.items() if value}

    def allocation(self, name: str = "c") -> str:
        """Returns a cluster's allocation state."""
        record = self.store.get(f"{WORKSPACE}/clusters/{name}")
        assert record is not None
        return str(record.document["properties"]["allocationState"])
