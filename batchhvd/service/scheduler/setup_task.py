"""Runs a cluster's setup task on each of its nodes before jobs may use them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from batchhvd.engines.base import ENDED, Engine, Launch, Status, StopReason, Task, TaskState
from batchhvd.errors import BatchHvdError, EngineBusyError
from batchhvd.service.mounts import links
from batchhvd.service.mounts import model as mounts
from batchhvd.service.mounts.model import MountPoint
from batchhvd.service.scheduler import layout, nodes
from batchhvd.service.scheduler import task as job_task
from batchhvd.service.scheduler.backoff import Backoff
from batchhvd.service.scheduler.layout import TaskLayout
from batchhvd.service.scheduler.task import Site
from batchhvd.service.store import trash
from batchhvd.service.store.cluster import StoredCluster
from batchhvd.service.store.records import Store

log = logging.getLogger("batchhvd.service.scheduler.setup_task")
AGAIN = 30.0
"""Seconds between two tries to set up a node whose setup did not start or was lost."""


class Setups:
    """Brings the nodes of clusters from "preparing" to "idle", or to "unusable" when their setup fails."""

    def __init__(self, store: Store, root: Path, engine: Engine, site: Site, backoff: Backoff) -> None:
        self._store, self._root, self._engine, self._site = store, root, engine, site
        self._tries: dict[str, float] = {}  # when a node was last tried, in seconds since 1970
        self._backoff = backoff

    def follow(self, cluster: StoredCluster, now: float) -> StoredCluster:
        """Moves the preparing nodes of a cluster one step and returns it as it is now."""
        for name, handle in cluster.preparing.items():
            change = self._tried(cluster, name, handle, now)
            if change is not None:
                self._tries[name] = now
                cluster = self._store.revise(cluster, change) or cluster
        for name in cluster.again if not cluster.is_deleting else ():
            if name not in cluster.leaving and now - self._tries.get(name, 0.0) >= AGAIN:
                cluster = self._again(cluster, name, now)
        return cluster

    def _again(self, cluster: StoredCluster, name: str, now: float) -> StoredCluster:
        """Sets up a node again, if what kept its setup from starting is repaired."""
        self._tries[name] = now
        trash.discard(self._root, _folder(self._root, cluster, name))
        try:
            handle = self._started(cluster, name)
        except Exception as error:  # it stays as it is, with the error that tells why
            log.info("node %s cannot be set up again yet: %s", name, error)
            return cluster
        log.info("node %s is set up again", name)
        return self._store.revise(cluster, lambda cluster: nodes.begun(cluster, name, handle)) or cluster

    def _tried(
        self, cluster: StoredCluster, name: str, handle: str, now: float
    ) -> Callable[[StoredCluster], StoredCluster] | None:
        """Does the same as ``_next``; whatever is wrong with one node holds up no other."""
        try:
            return self._next(cluster, name, handle, now)
        except (BatchHvdError, OSError):
            log.exception("the setup task of %s could not be followed; the next tick tries again", name)
            return None
        except Exception as error:
            log.exception("the setup task of %s could not be followed", name)
            if cluster.is_deleting or name in cluster.leaving:
                return lambda cluster: nodes.dropped(cluster, name)
            return _unusable(name, f"The engine failed: {type(error).__name__}: {error}")

    def _next(
        self, cluster: StoredCluster, name: str, handle: str, now: float
    ) -> Callable[[StoredCluster], StoredCluster] | None:
        """Returns what changes about one node, None when nothing does."""
        if "setupTask" not in cluster.properties.get("nodeSetup", {}):
            return lambda cluster: nodes.ready(cluster, name, now)
        if cluster.is_deleting or name in cluster.leaving:
            return self._end(name, handle)
        if not handle:
            return None if self._backoff.holds(now) else self._begin(cluster, name, now)
        status = self._engine.status([handle])[handle]
        if status.state == TaskState.SUCCEEDED:
            return lambda cluster: nodes.ready(cluster, name, now)
        return _unusable(name, _told(status), again=_was_lost(status)) if status.state in ENDED else None

    def _end(self, name: str, handle: str) -> Callable[[StoredCluster], StoredCluster] | None:
        """Ends the setup of a node that has to go; the node goes after that."""
        if handle and self._engine.status([handle])[handle].state not in ENDED:
            self._engine.cancel(handle)
            return None
        return lambda cluster: nodes.dropped(cluster, name)

    def _begin(self, cluster: StoredCluster, name: str, now: float) -> Callable[[StoredCluster], StoredCluster] | None:
        try:
            handle = self._started(cluster, name)
        except EngineBusyError as error:
            log.warning("the setup task on %s is tried again later: %s", name, error)
            self._backoff.refused(name, error, now)
            return None
        except Exception as error:  # whatever it is, this node cannot be used, and no other suffers
            return _unusable(name, f"The setup task on {name} did not start: {error}", again=True)
        self._backoff.taken(name)
        return lambda cluster: nodes.begun(cluster, name, handle)

    def _started(self, cluster: StoredCluster, name: str) -> str:
        laid = self._laid(cluster, name)
        layout.lay(laid)
        return self._engine.submit(laid.task)

    def _laid(self, cluster: StoredCluster, name: str) -> TaskLayout:
        mounted = mounts.every({}, cluster.properties)
        found = links.targets(self._store, self._root, mounted, cluster.keys, self._site.directories)
        return build(cluster, name, found, self._root, self._site)


def build(cluster: StoredCluster, name: str, targets: Mapping[MountPoint, Path], root: Path, site: Site) -> TaskLayout:
    """Returns the task that sets up one node: the setup command runs as a preparation, with nothing after it."""
    setup = cluster.properties["nodeSetup"]["setupTask"]
    folder = _folder(root, cluster, name)
    prefix = job_task.locate(setup["stdOutErrPathPrefix"], targets)
    if prefix is None:
        raise ValueError(f"stdOutErrPathPrefix lies on no mount of the cluster: {setup['stdOutErrPathPrefix']}")
    logs = prefix / setup.get("stdOutErrPathSuffix", mounts.segment(cluster.id, "setuptask"))
    task = Task(
        name=f"setup-{name}",
        folder=str(folder),
        nodes=(name,),
        ranks=(1,),
        launch=Launch.SINGLE,
        command="true",
        preparation=job_task.protect(setup["commandLine"]),
        prepare=site.prepare,
        layers=site.layers,
        environment=job_task.of_setup(setup, folder, site),
        literal=job_task.LITERAL,
        secrets=cluster.secrets,
        logs=str(logs),
        setup=True,
        options=site.options,
    )
    return TaskLayout(task, {folder / "cluster" / mount.path: target for mount, target in targets.items()}, (logs,))


def _folder(root: Path, cluster: StoredCluster, name: str) -> Path:
    # The number: nodes have the same names if a cluster is deleted and made anew within one second.
    return root / "tasks" / "setup" / f"{name}-{cluster.record.number}"


def _unusable(name: str, message: str, *, again: bool = False) -> Callable[[StoredCluster], StoredCluster]:
    return lambda cluster: nodes.unusable(cluster, name, message, again=again)


def _was_lost(status: Status) -> bool:
    return status.state == TaskState.LOST or status.reason == StopReason.NODE


def _told(status: Status) -> str:
    last = f"; last line: {status.tail[-1]}" if status.tail else ""
    return f"The setup task failed: {status.error}{last}"
