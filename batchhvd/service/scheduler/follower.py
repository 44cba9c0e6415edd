"""Follows jobs to their end: what the engine says of their runs becomes their state."""

from __future__ import annotations

import logging
from concurrent.futures import Executor, Future
from contextlib import suppress
from pathlib import Path
from threading import Event

from attrs import Factory, frozen

from batchhvd.engines.base import ENDED, Status, StopReason, TaskState
from batchhvd.engines.records import declare
from batchhvd.service.scheduler import container, ending, manifest, nodes, outcome, task, transition
from batchhvd.service.scheduler.ending import Ending
from batchhvd.service.scheduler.starter import JobStarter
from batchhvd.service.store import documents, trash, trouble
from batchhvd.service.store.cluster import StoredCluster
from batchhvd.service.store.documents import ErrorDocument
from batchhvd.service.store.job import StoredJob
from batchhvd.wire.facts.causes import Code
from batchhvd.wire.facts.states import JobState
from batchhvd.wire.facts.times import write_moment

log = logging.getLogger("batchhvd.service.scheduler.follower")


@frozen
class JobFollower:
    """Follows jobs.

    Attributes:
        starter: what started them.
        executor: seals outputs in the background.
        sealing: the outputs that are being sealed, by the job's id.
        closing: set when the service ends; sealing stops then.
    """

    starter: JobStarter
    executor: Executor
    sealing: dict[str, Future[None]] = Factory(dict)
    closing: Event = Factory(Event)

    def unbegun(self, job: StoredJob, cluster: StoredCluster | None, now: float) -> StoredJob:
        """Ends a waiting job that has to end; if it was given nodes, its run may have begun."""
        why = ending.of(job, cluster)
        if not why:
            return job
        if job.nodes and cluster and (found := self._recovered(job, cluster, now)):
            return found
        if why == Ending.REQUEUED:
            return self.starter.store.revise(job, transition.released) or job
        return self.starter.fail(job, ending.error(why, job), now)

    def _recovered(self, job: StoredJob, cluster: StoredCluster, now: float) -> StoredJob | None:
        """Finds the run of a job whose handle was not stored, so that it can be ended; None if it has none."""
        with suppress(FileNotFoundError):  # should it begin meanwhile, its runners end at once
            declare(Path(job.folder), StopReason.CANCELLED, error="the job was terminated")
        return self.starter.recover(job, cluster, now)

    def follow(self, job: StoredJob, cluster: StoredCluster | None, status: Status, now: float) -> StoredJob:
        """Moves a job that has a run one step and returns it as it is now."""
        if status.state not in ENDED:
            if ending.of(job, cluster):
                self.starter.engine.cancel(job.handle)
            return self._note(job, status, now)
        if status.state == TaskState.SUCCEEDED:
            return self._seal(job, cluster, status, now)
        return self._fail(job, cluster, status, now)

    def abandon(self, job: StoredJob, cluster: StoredCluster | None, error: Exception, now: float) -> StoredJob:
        """Ends a job that cannot be followed: with what was asked of it, or with what is wrong."""
        why = ending.of(job, cluster)
        text = f"The engine cannot tell how the job is: {type(error).__name__}: {error}"
        told = ending.error(why, job) if why in ending.TEXTS else documents.error(Code.ENGINE_FAILED, text)
        return self.starter.fail(job, told, now)

    def _note(self, job: StoredJob, status: Status, now: float) -> StoredJob:
        if not transition.is_news(job, status):
            return job
        return self.starter.store.revise(job, lambda job: transition.noted(job, status, now)) or job

    def _seal(self, job: StoredJob, cluster: StoredCluster | None, status: Status, now: float) -> StoredJob:
        """Seals the outputs in the background; after that, the job has succeeded."""
        try:
            if not self._sealed(job, cluster, now):
                return job
        except Exception as error:  # whatever lies in the outputs, no other job suffers
            self.sealing.pop(job.id, None)
            if trouble.is_disk_full(error):  # it is sealed when there is room again
                log.error("the outputs of job %s could not be sealed: %s", job.id, error)
                return job
            text = f"The job succeeded, but its outputs could not be sealed: {error}"
            return self._finish(job, status, documents.error(Code.ENGINE_FAILED, text), now)
        return self._finish(job, status, None, now)

    def _sealed(self, job: StoredJob, cluster: StoredCluster | None, now: float) -> bool:
        future = self.sealing.get(job.id)
        if future is None and trouble.disk_problem(self.starter.root):
            return False
        if future is None:
            directories = self._segments(job, cluster)
            stops = self.closing.is_set
            future = self.executor.submit(manifest.seal, directories, job.id, write_moment(now), stops)
            self.sealing[job.id] = future
        if not future.done():
            return False
        future.result()
        del self.sealing[job.id]
        return True

    def _segments(self, job: StoredJob, cluster: StoredCluster | None) -> list[Path]:
        return [] if cluster is None else task.segments(job.properties, self.starter.targets(job, cluster))

    def _fail(self, job: StoredJob, cluster: StoredCluster | None, status: Status, now: float) -> StoredJob:
        why, attempt = ending.of(job, cluster), job.attempt + status.attempt - 1  # the engine may have started it again
        image = container.notice(job.properties, self.starter.site.containers)
        error = outcome.error(status, attempt=attempt, path=task.script_of(job.properties), image=image)
        if status.reason == StopReason.NODE:
            self._node_lost(cluster, status.node)
        if why == Ending.REQUEUED:
            left = documents.error(Code.NODE_LOST, "Its nodes left the cluster.", Attempt=str(attempt))
            return self._requeue(job, left, now)
        if why:
            return self._finish(job, status, ending.error(why, job), now)
        if ending.may_retry(job, cluster, status):
            return self._requeue(job, error, now)
        return self._finish(job, status, error, now)

    def _node_lost(self, cluster: StoredCluster | None, node: str) -> None:
        if cluster is not None and node:
            self.starter.store.revise(cluster, lambda cluster: nodes.lost(cluster, node))

    def _requeue(self, job: StoredJob, error: ErrorDocument, now: float) -> StoredJob:
        log.info("job %s goes back into the queue: %s", job.id, error["message"])
        return self.starter.store.revise(job, lambda job: transition.requeued(job, error, now)) or job

    def _finish(self, job: StoredJob, status: Status, error: ErrorDocument | None, now: float) -> StoredJob:
        trash.discard(self.starter.root, Path(job.folder, "temp"))
        log.info("job %s %s", job.id, JobState.FAILED if error else JobState.SUCCEEDED)
        return self.starter.store.revise(job, lambda job: transition.finished(job, status, error, now)) or job
