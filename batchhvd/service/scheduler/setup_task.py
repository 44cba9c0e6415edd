"""Runs a cluster's setup task on each of its nodes before jobs may use them."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from batchhvd.engines.base import ENDED, Engine, Status, Task
from batchhvd.errors import BatchHvdError
from batchhvd.service.mounts import links as mounting
from batchhvd.service.mounts import model as mounts
from batchhvd.service.mounts.model import MountPoint
from batchhvd.service.scheduler import layout
from batchhvd.service.scheduler import nodes as cluster_life
from batchhvd.service.scheduler import task as environment
from batchhvd.service.scheduler.layout import TaskLayout
from batchhvd.service.scheduler.task import Site
from batchhvd.service.store.records import Record, Store

Document = dict[str, Any]


class Setups:
    """Brings the nodes of clusters from "preparing" to "idle", or to "unusable" where their setup fails."""

    def __init__(self, store: Store, root: Path, engine: Engine, site: Site) -> None:
        self._store, self._root, self._engine, self._site = store, root, engine, site

    def follow(self, cluster: Record, now: float) -> Record:
        """Moves the preparing nodes of a cluster one step and returns it as it is now."""
        preparing = cluster.private.get("preparing")
        if not preparing:
            return cluster
        for name, handle in preparing.items():
            cluster = self._follow_one(cluster, name, handle, now) or cluster
        return cluster

    def _follow_one(self, cluster: Record, name: str, handle: str, now: float) -> Record | None:
        if "setupTask" not in cluster.document["properties"].get("nodeSetup", {}):
            return self._ready(cluster, name, now)
        if _unwanted(cluster, name):
            return self._drop(cluster, name, handle)
        if not handle:
            return self._begin(cluster, name)
        status = self._engine.status([handle])[handle]
        if status.state == "succeeded":
            return self._ready(cluster, name, now)
        return self._unusable(cluster, name, _told(status)) if status.state in ENDED else None

    def _ready(self, cluster: Record, name: str, now: float) -> Record | None:
        return self._store.update(cluster.id, lambda _, private: cluster_life.ready(private, name, now))

    def _unusable(self, cluster: Record, name: str, message: str) -> Record | None:
        return self._store.update(cluster.id, lambda doc, private: cluster_life.unusable(doc, private, name, message))

    def _drop(self, cluster: Record, name: str, handle: str) -> Record | None:
        """Ends the setup of a node that is to go; the node goes when that is over."""
        if handle and self._engine.status([handle])[handle].state not in ENDED:
            self._engine.cancel(handle)
            return None
        return self._store.update(cluster.id, lambda _, private: private["preparing"].pop(name, None))

    def _begin(self, cluster: Record, name: str) -> Record | None:
        try:
            plan = self._plan(cluster, name)
            layout.lay(plan)
            handle = self._engine.submit(plan.task)
        except (BatchHvdError, mounting.MountError, OSError, ValueError) as error:
            return self._unusable(cluster, name, f"The setup task on {name} did not start: {error}")
        return self._store.update(cluster.id, lambda _, private: private["preparing"].update({name: handle}))

    def _plan(self, cluster: Record, name: str) -> TaskLayout:
        mounted = mounts.every({}, cluster.document["properties"])
        keys = cluster.private.get("keys", {})
        found = mounting.targets(self._store, self._root, mounted, keys, self._site.directories)
        return plan(cluster, name, found, self._root, self._site)


def plan(cluster: Record, name: str, targets: Mapping[MountPoint, Path], root: Path, site: Site) -> TaskLayout:
    """Returns the task that sets up one node: the setup command, where preparations run, and nothing after it."""
    setup = cluster.document["properties"]["nodeSetup"]["setupTask"]
    folder = root / "tasks" / "setup" / name
    prefix = environment.locate(setup["stdOutErrPathPrefix"], targets)
    if prefix is None:
        raise ValueError(f"stdOutErrPathPrefix lies on no mount of the cluster: {setup['stdOutErrPathPrefix']}")
    logs = prefix / suffix(cluster)
    task = Task(
        name=f"setup-{name}",
        folder=str(folder),
        nodes=(name,),
        ranks=(1,),
        launch="single",
        command="true",
        preparation=environment.protect(setup["commandLine"]),
        prepare=site.prepare,
        layers=site.layers,
        environment=environment.of_setup(setup, folder, site),
        secrets=cluster.private.get("secrets", {}),
        logs=str(logs),
        options=site.options,
    )
    return TaskLayout(task, {folder / "cluster" / mount.path: target for mount, target in targets.items()}, (logs,))


def suffix(cluster: Record) -> str:
    """Returns the part of a setup task's log directory that is this cluster's own."""
    parts = cluster.id.strip("/").split("/")
    return posixpath.join(parts[1], parts[3], *parts[6:], "setuptask")


def _unwanted(cluster: Record, name: str) -> bool:
    deleting = cluster.document["properties"]["provisioningState"] == "deleting"
    return deleting or name in cluster.private.get("leaving", ())


def _told(status: Status) -> str:
    last = f"; last line: {status.tail[-1]}" if status.tail else ""
    return f"The setup task failed: {status.error}{last}"
