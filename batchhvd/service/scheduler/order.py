"""Which jobs wait for others, and which will never start because another one failed."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define, field

from batchhvd.service.store import documents
from batchhvd.service.store.documents import ErrorDocument
from batchhvd.service.store.job import StoredJob
from batchhvd.service.store.records import Store
from batchhvd.wire.facts.causes import Code
from batchhvd.wire.facts.job_variables import EarlierJob
from batchhvd.wire.facts.states import JobState


@define
class JobOrder:
    """Judges jobs by those that must come before them.

    Attributes:
        store: all state.
        met: what has been found once and stays so: the jobs whose earlier ones are all over, by key.
    """

    store: Store
    met: set[str] = field(factory=set)

    def judge(self, job: StoredJob, active: Mapping[str, StoredJob]) -> str | ErrorDocument:
        """Returns "" for a job that may start, the reason of one that waits, or why one will never start.

        Args:
            job: the job.
            active: all jobs that have not ended, by key: while one of them is waited for, the store is not asked.
        """
        if not job.after or job.key in self.met or job.state != JobState.QUEUED or job.nodes:
            return ""
        found = [self._judge(job, earlier, active) for earlier in job.after]
        hopeless = [one for one in found if not isinstance(one, str)]
        if hopeless:
            return hopeless[0]
        waits = [one for one in found if isinstance(one, str) and one]
        if not waits:
            self.met.add(job.key)
        return f"waits until {' and '.join(waits)}" if waits else ""

    def forget(self, known: set[str]) -> None:
        """Forgets what is known of jobs that are no longer active."""
        self.met &= known

    def _judge(self, job: StoredJob, earlier: EarlierJob, active: Mapping[str, StoredJob]) -> str | ErrorDocument:
        id = job.sibling(earlier.name)
        if id.lower() in active:
            return _awaited(earlier)
        record = self.store.get(id)
        if record is None:
            return _failed(earlier, "is gone")
        other = StoredJob.of(record)
        if other.state == JobState.SUCCEEDED or (other.has_ended and earlier.may_fail):
            return ""
        if other.has_ended:
            return _failed(earlier, "failed")
        return _awaited(earlier)


def _awaited(earlier: EarlierJob) -> str:
    return f"{earlier.name} has {'ended' if earlier.may_fail else 'succeeded'}"


def _failed(earlier: EarlierJob, how: str) -> ErrorDocument:
    text = f"The job '{earlier.name}', after which this one was to run, {how}."
    return documents.error(Code.EARLIER_JOB_FAILED, text, Job=earlier.name)
