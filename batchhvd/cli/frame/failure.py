"""A job's failure, as the command line tells it: the reason, the last lines, and the next command."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn

import click

if TYPE_CHECKING:
    from batchhvd import Job
    from batchhvd.errors import JobFailedError

_SHOWN = 10  # lines of the failed rank


def described(job: Job, error: JobFailedError) -> str:
    """Returns why a job failed and the last lines of the rank that failed."""
    reason = error.reasons[0] if error.reasons else "the service gave no reason"
    return "\n    ".join([f"job {job.name!r} failed: {reason.rstrip('.')}", *error.tail[-_SHOWN:]])


def next_step(job: Job) -> str:
    """Returns what to do about a job that failed, in commands."""
    from batchhvd.wire.facts.causes import CAUSE_OF_CODE, Cause, remedy_of
    from batchhvd.wire.facts.job_variables import ORIGIN
    from batchhvd.wire.reasons import Reason

    first = job.errors[0] if job.errors else Reason("", "")
    remedy = remedy_of(CAUSE_OF_CODE.get(first.code, Cause.UNKNOWN), first.details)
    remedy = remedy.after(job.spec.environment.get(ORIGIN, "")).named(job.name)
    return f"Next: {remedy.shell}\n`batchhvd job explain {job.name}` shows the evidence"


def say(job: Job, error: JobFailedError) -> None:
    """Says on stderr why a job failed and what to do."""
    click.secho(described(job, error), fg="red", err=True)
    click.echo(next_step(job), err=True)


def end_as(job: Job, error: JobFailedError) -> NoReturn:
    """Says on stderr why a job failed and what to do, and ends with the job's exit code."""
    say(job, error)
    raise click.exceptions.Exit(error.exit_code or 1) from error


_ID = re.compile(
    r"(?P<before>(?:the )?(?:group|workspace|experiment|cluster|job|storage account) )?"
    r"/subscriptions/[^/\s]+/(?:[^\s,;:'\"]*/(?P<kind>\w+)s|resourceGroups)/(?P<name>[^/\s,;:'\"]*[^/\s,;:'\".])",
    re.IGNORECASE,
)


def shortened(text: str) -> str:
    """Returns a message with names in place of resource ids, such as ``cluster 'nc6'``."""
    return _ID.sub(lambda found: f"{found['before'] or _noun(found['kind']) + ' '}'{found['name']}'", text)


def _noun(kind: str | None) -> str:
    """Returns what the command line calls a kind of an id."""
    nouns = {"storageAccount": "storage account", "fileServer": "file server", None: "group"}
    return nouns.get(kind, str(kind))
