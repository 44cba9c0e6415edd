"""Starts jobs in three steps: nodes and folder are reserved; the engine starts the task; the handle is kept.

When the service is killed between the second and the third step, the same folder is submitted again, and the engine
returns the run that exists.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from attrs import Factory, evolve, frozen

from batchhvd.engines.base import Engine, Status, Task
from batchhvd.errors import BatchHvdError, EngineBusyError, EngineError
from batchhvd.service.mounts import links
from batchhvd.service.mounts.links import MountError
from batchhvd.service.mounts.model import MountPoint
from batchhvd.service.scheduler import ending, layout, nodes, queue, task, transition
from batchhvd.service.scheduler.backoff import Backoff
from batchhvd.service.scheduler.task import Attempt, Site
from batchhvd.service.store import documents, trouble
from batchhvd.service.store.cluster import StoredCluster
from batchhvd.service.store.documents import ErrorDocument
from batchhvd.service.store.job import StoredJob
from batchhvd.service.store.records import Store
from batchhvd.wire.facts.causes import Code
from batchhvd.wire.facts.states import JobState

log = logging.getLogger("batchhvd.service.scheduler.starter")


T = TypeVar("T")
Submission = Callable[[Sequence[Task]], Mapping[str, str | EngineError]]
_TOLD_AT_ONCE = 50  # jobs in one transaction, for which requests that write wait


class ScriptMissingError(Exception):
    """A job's script is not on the mounted share that the job names.

    Attributes:
        path: the path that was looked for, with the job's variables unexpanded.
    """

    def __init__(self, path: str) -> None:
        super().__init__(f"There is no file {path} on the mounted share.")
        self.path = path


@frozen
class JobStarter:
    """Gives nodes to jobs and starts them.

    Attributes:
        store: all state.
        root: the service's folder.
        engine: what runs the tasks.
        site: what the service decides.
        backoff: how long the engine is left alone.
    """

    store: Store
    root: Path
    engine: Engine
    site: Site
    backoff: Backoff = Factory(Backoff)

    def place(self, cluster: StoredCluster, jobs: Mapping[str, StoredJob], now: float) -> set[str]:
        """Starts the jobs whose turn it is, tells the others why they wait, and returns which were to start."""
        waiting = [job for job in jobs.values() if _waits(job) and not ending.of(job, cluster)]
        begun = [job for job in waiting if job.nodes]
        # Those that begun have not been taken yet, or the service was killed meanwhile.
        self._start_all([jobs[key] for key in self.backoff.in_turn(job.key for job in begun)], cluster, now)
        busy = {name for job in jobs.values() for name in job.nodes}
        entries = [_entry(job) for job in waiting if not job.nodes]
        decision = queue.decide(entries, nodes.free(cluster, busy), cluster.target or 0, now)
        if self.backoff.holds(now):
            for key, _ in decision.starts:
                self._hold(jobs[key], self.backoff.reason)
        else:
            self._start_all(self._reserve_all(jobs, decision.starts), cluster, now)
        self._explain_all(jobs, decision.reasons)
        return {*(job.key for job in begun), *(key for key, _ in decision.starts)}

    def submit(self, job: StoredJob, cluster: StoredCluster, now: float) -> StoredJob:
        """Submits the task of a job that has its nodes, and keeps the handle.

        Raises:
            MountError: something that the job mounts is missing.
            ScriptMissingError: its script is missing.
            EngineBusyError: the engine takes no task at the moment.
            BatchHvdError: the engine refuses the task.
        """
        return self._handled(job, self.engine.submit(self._laid(job, cluster)), now)

    def _laid(self, job: StoredJob, cluster: StoredCluster) -> Task:
        """Returns the task of a job that has its nodes, with everything on the disk that it needs."""
        found = self.targets(job, cluster)
        _check_script(job, found)
        attempt = Attempt(Path(job.folder), job.nodes, job.attempt)
        laid = task.build(job, cluster.properties, found, attempt, self.site)
        layout.lay(laid)
        layout.begin_logs(Path(laid.task.logs))
        if self.site.equip is not None and len(job.nodes) > 1:
            self.site.equip(Path(job.folder), cluster, job.nodes)
        return laid.task

    def recover(self, job: StoredJob, cluster: StoredCluster, now: float) -> StoredJob | None:
        """Keeps the handle of a job that may have a run without a handle being known; None if it has no run.

        Raises:
            EngineBusyError: the engine does not know yet whether there is a run.
        """
        find: Callable[[str], str | None] | None = getattr(self.engine, "find", None)
        if find is None:
            return self.submit(job, cluster, now)
        handle = find(job.folder)
        return self._handled(job, handle, now) if handle else None

    def fail(self, job: StoredJob, error: ErrorDocument, now: float) -> StoredJob:
        """Ends a job that has no run."""
        log.info("job %s failed: %s", job.id, error["message"])
        return self.store.revise(job, lambda job: transition.failed(job, error, now)) or job

    def targets(self, job: StoredJob, cluster: StoredCluster) -> links.Targets:
        """Returns the directory of each of a job's mounts.

        Raises:
            MountError: something that the job mounts is missing.
        """
        keys, mounted = {**cluster.keys, **job.keys}, task.mounts_of(job.properties, cluster.properties)
        return links.targets(self.store, self.root, mounted, keys, self.site.directories)

    def _handled(self, job: StoredJob, handle: str, now: float) -> StoredJob:
        return self._begun(job, handle, self.engine.status([handle])[handle], now)

    def _begun(self, job: StoredJob, handle: str, status: Status, now: float) -> StoredJob:
        log.info("job %s runs on %s", job.id, ", ".join(job.nodes))
        status = evolve(status, started=now)
        return self.store.revise(job, lambda job: transition.submitted(job, handle, status, now)) or job

    def _start(self, job: StoredJob, cluster: StoredCluster, now: float) -> None:
        if self.backoff.holds(now):
            self._hold(job, self.backoff.reason)
            return
        try:
            self.submit(job, cluster, now)
            self.backoff.taken(job.key)
        except EngineBusyError as error:
            self.backoff.refused(job.key, error, now)
            self._hold(job, str(error))
        except Exception as error:
            self._not_started(job, error, now)

    def _not_started(self, job: StoredJob, error: Exception, now: float) -> None:
        """Ends a job that cannot start."""
        try:
            raise error
        except MountError as error:
            self.fail(job, documents.error(Code.MOUNT_FAILED, str(error), Path=error.path), now)
        except ScriptMissingError as error:
            self.fail(job, documents.error(Code.SCRIPT_NOT_FOUND, str(error), Path=error.path), now)
        except Exception as error:  # whatever the engine raises, no other job suffers
            if trouble.is_disk_full(error):
                self.fail(job, documents.error(Code.DISK_FULL, trouble.disk_full(self.root)), now)
                return
            log.exception("job %s did not start", job.id)
            plain = isinstance(error, (BatchHvdError, OSError, ValueError))
            text = f"{error}." if plain else f"The engine failed: {error!r}."
            self.fail(job, documents.error(Code.ENGINE_FAILED, text), now)

    def _start_all(self, jobs: Sequence[StoredJob], cluster: StoredCluster, now: float) -> None:
        """Starts jobs that have their nodes; an engine that takes many tasks in one go gets them so."""
        many: Submission | None = getattr(self.engine, "submit_many", None)
        if many is None:
            for job in jobs:
                self._start(job, cluster, now)
        elif self.backoff.holds(now):
            for job in jobs:
                self._hold(job, self.backoff.reason)
        elif jobs:
            self._start_many(many, jobs, cluster, now)

    def _start_many(self, many: Submission, jobs: Sequence[StoredJob], cluster: StoredCluster, now: float) -> None:
        told = many(list(self._all_laid(jobs, cluster, now)))
        mine = [(job, told[job.folder]) for job in jobs if job.folder in told]
        statuses = self.engine.status([handle for _, handle in mine if isinstance(handle, str)])
        for some in _slices(mine):
            with self.store.transaction():
                for job, handle in some:
                    if isinstance(handle, str):
                        self._begun(job, handle, statuses[handle], now)
                        self.backoff.taken(job.key)
        refusals = [(job, error) for job, error in mine if isinstance(error, EngineBusyError)]
        if refusals:  # one pause for all of them
            self.backoff.refused(refusals[0][0].key, refusals[0][1], now)
        self._explain_all(
            {job.key: job for job, _ in refusals},
            {job.key: _unstarted(str(e)) for job, e in refusals},
            transition.ENGINE,
        )
        for job, error in mine:
            if not isinstance(error, (str, EngineBusyError)):
                self._not_started(job, error, now)

    def _all_laid(self, jobs: Sequence[StoredJob], cluster: StoredCluster, now: float) -> Iterator[Task]:
        for job in jobs:
            try:
                yield self._laid(job, cluster)
            except Exception as error:
                self._not_started(job, error, now)

    def _reserve_all(
        self, jobs: Mapping[str, StoredJob], starts: Sequence[tuple[str, tuple[str, ...]]]
    ) -> list[StoredJob]:
        found = []
        for some in _slices(starts):
            with self.store.transaction():
                found += [self._reserve(jobs[key], given) for key, given in some]
        return found

    def _reserve(self, job: StoredJob, given: tuple[str, ...]) -> StoredJob:
        tasks = self.root / "tasks"
        return self.store.revise(job, lambda job: transition.reserved(job, given, tasks)) or job

    def _hold(self, job: StoredJob, reason: str) -> None:
        """Tells that the engine does not take a job yet."""
        self.explain(job, _unstarted(reason), transition.ENGINE)

    def _explain_all(self, jobs: Mapping[str, StoredJob], reasons: Mapping[str, str], by: str = "") -> None:
        """Tells each job why it waits; many in one transaction, since each costs a write to the disk."""
        news = [(jobs[key], reason) for key, reason in reasons.items()]
        news = [(job, reason) for job, reason in news if not transition.is_explained(job, reason, by)]
        for some in _slices(news):
            with self.store.transaction():
                for job, reason in some:
                    self.explain(job, reason, by)

    def explain(self, job: StoredJob, reason: str, by: str = "") -> None:
        """Tells why a job waits; ``by`` says who makes it wait, if it is not the cluster."""
        if not transition.is_explained(job, reason, by):
            self.store.revise(job, lambda job: transition.explained(job, reason, by))


def _unstarted(reason: str) -> str:
    return f"is not started yet: {reason}"


def _slices(some: Sequence[T]) -> Iterator[Sequence[T]]:
    return (some[at : at + _TOLD_AT_ONCE] for at in range(0, len(some), _TOLD_AT_ONCE))


def _waits(job: StoredJob) -> bool:
    return job.state == JobState.QUEUED and not job.handle


def _entry(job: StoredJob) -> queue.Waiting:
    return queue.Waiting(job.key, job.name, job.number, job.priority, job.node_count, job.waiting_since)


def _check_script(job: StoredJob, targets: Mapping[MountPoint, Path]) -> None:
    """Looks for a job's script before the run starts, unless a preparation may still bring it."""
    path = task.script_of(job.properties)
    place = task.locate(path, targets)
    if place is not None and not place.exists() and "jobPreparation" not in job.properties:
        raise ScriptMissingError(path)
