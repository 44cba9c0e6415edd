"""Carries out what requests ask for: clusters get their nodes, jobs run and end, what is being deleted goes.

Memory holds nothing that the store does not hold: after a kill at any moment, a new scheduler goes on.
"""

from __future__ import annotations

import logging
import sqlite3
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

from attrs import define, evolve, field

from batchhvd.engines.base import Engine, Status
from batchhvd.errors import BatchHvdError
from batchhvd.service.mounts.links import MountError
from batchhvd.service.scheduler import ending, nodes, transition
from batchhvd.service.scheduler.follower import JobFollower
from batchhvd.service.scheduler.nodes import NodeUse
from batchhvd.service.scheduler.order import JobOrder
from batchhvd.service.scheduler.removal import Removal
from batchhvd.service.scheduler.setup_task import Setups
from batchhvd.service.scheduler.starter import JobStarter, ScriptMissingError
from batchhvd.service.scheduler.task import Site
from batchhvd.service.store.cluster import StoredCluster
from batchhvd.service.store.job import StoredJob
from batchhvd.service.store.records import ACTIVE, Store
from batchhvd.service.store.value import ValueTable
from batchhvd.wire.facts.times import write_moment

log = logging.getLogger("batchhvd.service.scheduler.tick")

PATIENCE = 30.0
"""For how many seconds a job that cannot be followed is tried again before it ends."""

HURRIED, MOVING, RESTING = 0.02, 0.1, 0.5
"""How many seconds lie between two ticks: while slices of a deletion follow, while something moves, and otherwise."""

_SHARE = 0.25
"""The part of the time that ticks may take while something moves: with ten thousand jobs one takes 0.1 seconds."""


@define
class Present:
    """What a tick works on: the jobs that have not ended and all clusters, by key; it is kept up to date.

    Attributes:
        now: the time of the tick, in seconds since 1970.
        jobs: the jobs.
        clusters: the clusters.
    """

    now: float
    jobs: dict[str, StoredJob] = field(factory=dict)
    clusters: dict[str, StoredCluster] = field(factory=dict)

    def keep(self, job: StoredJob) -> None:
        """Keeps the new state of a job, or forgets one that has ended."""
        if job.has_ended:
            self.jobs.pop(job.key, None)
        else:
            self.jobs[job.key] = job

    def by_cluster(self) -> dict[str, dict[str, StoredJob]]:
        """Returns the jobs of each cluster that has any, by the cluster's key."""
        found: dict[str, dict[str, StoredJob]] = {}
        for key, job in self.jobs.items():
            found.setdefault(job.cluster, {})[key] = job
        return found


class Scheduler:
    """Moves everything one step with each ``tick()``; one thread calls it.

    Attributes:
        active: whether anything was still moving at the end of the last tick.
        pause: how many seconds the next tick may wait if nothing wakes the scheduler.
    """

    def __init__(
        self,
        store: Store,
        root: Path,
        engine: Engine,
        clock: Callable[[], float] = time.time,
        *,
        site: Site | None = None,
        executor: Executor | None = None,
    ) -> None:
        self._store, self._root, self._engine, self._clock = store, root, engine, clock
        site = site or Site(python=sys.executable, layers=str(root / "layers"))
        self._starter = JobStarter(store, root, engine, site)
        self._follower = JobFollower(self._starter, executor or ThreadPoolExecutor(1, thread_name_prefix="seal"))
        self._order = JobOrder(store)
        self._setups = Setups(store, root, engine, site, self._starter.backoff)
        self._doubts: dict[str, float] = {}  # since when a job could not be followed, by key
        self._jobs, self._clusters = ValueTable(StoredJob), ValueTable(StoredCluster)
        self._resting: dict[str, StoredCluster] = {}
        self._machines: tuple[int, Mapping[str, str]] = 0, {}
        self._read_at = -1  # the store's number of commits when it was read
        self._found: tuple[dict[str, StoredJob], dict[str, StoredCluster]] = {}, {}
        self._removal = Removal(store, root)
        self.active, self.pause = False, RESTING

    def tick(self) -> None:
        """Moves everything one step."""
        began = time.perf_counter()
        present = self._read()
        self._order.forget(set(present.jobs))
        self._follow(present)
        try:
            self._move_all(present)
        except Exception:
            log.exception("the engine did not tell its nodes; the next tick asks again")
        self._removal.step(write_moment(present.now))
        resizing = any(not cluster.is_steady for cluster in present.clusters.values())
        self.active = bool(present.jobs) or resizing or self._removal.left
        self.pause = self._next_pause(time.perf_counter() - began)

    def _next_pause(self, took: float) -> float:
        """Returns how long to wait after a tick that took so many seconds: requests need the interpreter meanwhile."""
        if self._removal.goes_on:
            return HURRIED
        return max(MOVING, took * (1 / _SHARE - 1)) if self.active else RESTING

    def _read(self) -> Present:
        """Returns all jobs and clusters, without records that cannot be read and without the jobs of such a cluster."""
        commits = self._store.commits  # asked before: what is written meanwhile is read by the next tick
        if commits != self._read_at:
            jobs = self._jobs.read(self._store.rows(ACTIVE))
            clusters = self._clusters.read(self._store.rows("type = 'clusters'"))
            if broken := self._clusters.unreadable:
                jobs = {key: job for key, job in jobs.items() if job.cluster not in broken}
            self._read_at, self._found = commits, (jobs, clusters)
        jobs, clusters = self._found
        return Present(self._clock(), dict(jobs), dict(clusters))

    def close(self) -> None:
        """Ends what is done in the background; the next scheduler does it again."""
        self._follower.closing.set()
        self._follower.executor.shutdown(wait=False, cancel_futures=True)

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def _follow(self, present: Present) -> None:
        statuses = self._statuses([job.handle for job in present.jobs.values() if job.handle])
        for job in list(present.jobs.values()):
            try:
                present.keep(self._followed(job, present, statuses))
                self._doubts.pop(job.key, None)
            except Exception as error:  # whatever is wrong with one job must not stop the others
                self._doubt(job, error, present)

    def _statuses(self, handles: Sequence[str]) -> Mapping[str, Status | Exception]:
        """Returns what the engine says of each run; if it fails for all at once, it is asked about each alone."""
        try:
            return self._engine.status(handles) if handles else {}
        except Exception:
            log.exception("the engine did not tell the states of all runs; it is asked about each")
        return {handle: self._status(handle) for handle in handles}

    def _status(self, handle: str) -> Status | Exception:
        try:
            return self._engine.status([handle])[handle]
        except Exception as error:
            return error

    def _followed(self, job: StoredJob, present: Present, statuses: Mapping[str, Status | Exception]) -> StoredJob:
        cluster, status = present.clusters.get(job.cluster), statuses.get(job.handle)
        if isinstance(status, Exception):
            if ending.of(job, cluster):
                self._engine.cancel(job.handle)
            raise status
        if status is None:
            return self._follower.unbegun(job, cluster, present.now)
        return self._follower.follow(job, cluster, status, present.now)

    def _doubt(self, job: StoredJob, error: Exception, present: Present) -> None:
        """Tries again at the next tick; a job that fails for a while ends, unless the machine is at fault.

        A job that has to end anyway ends in any case.
        """
        since, cluster = self._doubts.setdefault(job.key, present.now), present.clusters.get(job.cluster)
        if since == present.now:
            log.error("job %s could not be followed; the next tick tries again", job.id, exc_info=error)
        machine = isinstance(error, (BatchHvdError, MountError, ScriptMissingError, OSError, sqlite3.Error))
        must_end = ending.of(job, cluster) in ending.TEXTS  # not only to give its nodes back
        if present.now - since >= PATIENCE and (must_end or not machine):
            present.keep(self._follower.abandon(job, cluster, error, present.now))
            self._doubts.pop(job.key, None)

    # -- clusters ------------------------------------------------------------------------------------------------------

    def _move_all(self, present: Present) -> None:
        """Moves the clusters; one that rested at the last tick costs no time until it or the engine's nodes change."""
        machines = self._engine.nodes(), self._broken()
        used = present.by_cluster()
        resting = self._resting if machines == self._machines else {}
        self._resting, self._machines = {}, machines
        for key, cluster in list(present.clusters.items()):
            if key in used or resting.get(key) is not cluster:
                self._moved(cluster, used.get(key, {}), present)
            if key not in used and present.clusters[key] is cluster and _rests(cluster):
                self._resting[key] = cluster

    def _moved(self, cluster: StoredCluster, jobs: Mapping[str, StoredJob], present: Present) -> None:
        try:
            self._move(cluster, jobs, present)
        except Exception:  # whatever is wrong with one cluster must not stop the others
            log.exception("cluster %s could not be moved; the next tick tries again", cluster.id)
            present.clusters[cluster.key] = evolve(cluster)  # which does not rest

    def _move(self, cluster: StoredCluster, jobs: Mapping[str, StoredJob], present: Present) -> None:
        mine = self._in_order(jobs, present)
        uses = _uses(mine)
        cluster = self._step(self._setups.follow(cluster, present.now), uses, present.now)
        for wish in nodes.wishes(cluster, uses):
            present.keep(self._wish(mine[wish.id.lower()], wish.action))
        placed = self._starter.place(cluster, mine, present.now)
        if placed:
            mine |= {key: self._fresh(mine[key]) for key in placed}
            for key in placed:
                present.keep(mine[key])
            going = {key: job for key, job in mine.items() if not job.has_ended}
            cluster = self._step(cluster, _uses(going), present.now)
        present.clusters[cluster.key] = cluster

    def _in_order(self, jobs: Mapping[str, StoredJob], present: Present) -> dict[str, StoredJob]:
        """Returns the jobs of a cluster without those that wait for others, which need no node yet."""
        found = {}
        for key, job in jobs.items():
            judged = self._order.judge(job, present.jobs)
            if not judged:
                found[key] = job
            elif isinstance(judged, str):
                self._starter.explain(job, judged, transition.JOBS)
            else:
                present.keep(self._starter.fail(job, judged, present.now))
        return found

    def _step(self, cluster: StoredCluster, uses: Sequence[NodeUse], now: float) -> StoredCluster:
        """Moves a cluster's nodes."""
        if cluster.is_deleting and not uses:
            return cluster
        limit, broken = self._machines

        def change(cluster: StoredCluster) -> StoredCluster:
            return nodes.advance(cluster, uses, now, limit, broken)

        return cluster if change(cluster) == cluster else self._store.revise(cluster, change) or cluster

    def _broken(self) -> Mapping[str, str]:
        """Returns the engine's machines that take no tasks, if it has machines, and why."""
        states: Mapping[str, str] = getattr(self._engine, "node_states", dict)()
        return states

    def _wish(self, job: StoredJob, action: str) -> StoredJob:
        if job.ending:
            return job
        return self._store.revise(job, lambda job: transition.wished(job, action)) or job

    def _fresh(self, job: StoredJob) -> StoredJob:
        record = self._store.get(job.id)
        return StoredJob.of(record) if record else job


def _rests(cluster: StoredCluster) -> bool:
    """Says whether time alone cannot move a cluster that nothing uses."""
    moving = cluster.preparing or cluster.leaving or cluster.again
    return not moving and ("manual" in cluster.scale or not cluster.names)


def _uses(jobs: Mapping[str, StoredJob]) -> list[NodeUse]:
    return [NodeUse(job.id, job.number, job.node_count, job.nodes) for job in jobs.values()]
