"""Checks what a new job names as the jobs that must come before it."""

from __future__ import annotations

from collections.abc import Iterator

from batchhvd.service.batchai.kinds import find
from batchhvd.service.description.reader import Problem
from batchhvd.service.http.exchange import Here
from batchhvd.service.store.documents import JobProperties
from batchhvd.service.store.job import StoredJob
from batchhvd.service.store.records import Record
from batchhvd.wire.facts.job_variables import AFTER, earlier_jobs


def problems(here: Here, experiment: Record, properties: JobProperties) -> Iterator[Problem]:
    """Yields what is wrong with ``BATCHHVD_AFTER``: every job that it names must be there already.

    So no circle can be made: a job that comes later cannot be named.
    """
    for index, entry in enumerate(properties.get("environmentVariables", ())):
        named = earlier_jobs(entry.get("value", "")) if entry["name"] == AFTER else ()
        for earlier in named:
            record = find(here, experiment, "jobs", earlier.name)
            if record is None or StoredJob.of(record).is_deleting:
                text = f"names the job '{earlier.name}', which is not in this experiment; create it first"
                yield Problem(f"/properties/environmentVariables/{index}/value", text)
