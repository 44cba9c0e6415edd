"""Many jobs with one request: an addition to the published description, for sweeps.

``POST …/experiments/EXPERIMENT/jobs`` with ``{"jobs": [{"name": …, "properties": …}, …]}``. All jobs are checked before
one is written; a repeated request creates what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from attrs import evolve

from batchhvd.errors import BadRequestError, BatchHvdError
from batchhvd.service.batchai.jobs import CheckedJob, check, keep_all
from batchhvd.service.batchai.kinds import child_id, open_parent
from batchhvd.service.description.published import Description
from batchhvd.service.http.exchange import Answer, Ask, Here
from batchhvd.service.store.glance import Glance
from batchhvd.service.store.records import Record

MOST = 1000
"""Jobs of one request."""

_AT_ONCE = 100  # jobs written in one transaction, for which other requests wait


def create(description: Description, here: Here, ask: Ask) -> Answer:
    """Checks and queues some jobs; answers with how many are new."""
    parent = open_parent(here, ask, "jobs")
    checked = _checked_all(description, here, ask, parent)
    for some in _slices(checked):
        with here.store.transaction():
            open_parent(here, ask, "jobs")  # it may be going meanwhile
            keep_all(here, parent, some)
    return Answer(200, {"jobs": len(checked), "created": sum(job.private is not None for job in checked)})


def _checked_all(description: Description, here: Here, ask: Ask, parent: Record) -> list[CheckedJob]:
    """Checks all jobs; what many of them name, such as their cluster, is read once."""
    entries, glance = _entries(ask), Glance(here.store)
    named = [entry["name"] for entry in entries if isinstance(entry, dict) and isinstance(entry.get("name"), str)]
    glance.expect([child_id(parent, "jobs", name) for name in named])
    now = evolve(here, store=glance)
    checked = [_checked(description, now, ask, parent, at) for at in range(len(entries))]
    _check_once([job.document["name"].lower() for job in checked])
    return checked


def _check_once(names: Sequence[str]) -> None:
    seen: set[str] = set()
    for at, name in enumerate(names):
        if name in seen:
            text = f"The job '{name}' is there twice."
            raise BadRequestError(text, code="InvalidRequestContent", target=f"/jobs/{at}")
        seen.add(name)


def _entries(ask: Ask) -> Sequence[object]:
    entries = ask.body.get("jobs") if isinstance(ask.body, dict) else None
    if not isinstance(entries, list) or not 1 <= len(entries) <= MOST or set(ask.body) != {"jobs"}:
        text = f"The body must be an object with one field, jobs: a list of 1 to {MOST} jobs."
        raise BadRequestError(text, code="InvalidRequestContent", target="/jobs")
    return entries


def _checked(description: Description, here: Here, ask: Ask, parent: Record, at: int) -> CheckedJob:
    entry = _entries(ask)[at]
    if not isinstance(entry, dict) or set(entry) != {"name", "properties"} or not isinstance(entry["name"], str):
        text = "A job must be an object with two fields, name and properties."
        raise BadRequestError(text, code="InvalidRequestContent", target=f"/jobs/{at}")
    operation = description.operation("Jobs_Create")
    try:
        description.check_names(operation, {**ask.names, "jobName": entry["name"]})
        body, unknown = description.read_body(operation, {"properties": entry["properties"]})
        warnings = [f"{place} is not a field of Batch AI and has no effect." for place in unknown]
        return check(here, parent, entry["name"], body["properties"], warnings)
    except BatchHvdError as error:
        error.args = (f"Job '{entry['name']}': {error}",)
        if hasattr(error, "target"):
            error.target = f"/jobs/{at}{error.target if str(error.target).startswith('/properties') else ''}"
        raise


def _slices(jobs: Sequence[CheckedJob]) -> Iterator[list[CheckedJob]]:
    left = iter(jobs)
    while some := list(islice(left, _AT_ONCE)):
        yield some
