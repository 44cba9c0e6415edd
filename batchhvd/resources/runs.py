"""Runs of a job under one name: what the next one is called, and whether an earlier one ran the same files.

The run of ``cifar`` after the first is ``cifar-0002``, the next ``cifar-0003``. What was uploaded for a job (its
script, and the files that its command line names) is noted with it: path and checksum of each, in ``BATCHHVD_CONTENT``.
"""

from __future__ import annotations

import json
import re
import shlex
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from attrs import evolve

from batchhvd.advice.plan import locate
from batchhvd.errors import ConflictError, ServiceError
from batchhvd.spec.job import JobSpec
from batchhvd.spec.toolkits import script_of
from batchhvd.transfer.checksum import known_md5
from batchhvd.wire.facts.documents import Body, Document
from batchhvd.wire.facts.job_variables import CONTENT, RUN
from batchhvd.wire.facts.mount_roots import JOB_ROOT
from batchhvd.wire.facts.times import took
from batchhvd.wire.models import moment

if TYPE_CHECKING:
    from batchhvd.resources.job import Job
    from batchhvd.resources.storage_account import StorageAccount

_RUN = re.compile(r"(.+)-([0-9]{4,})")
_BELOW_A_MOUNT = re.compile(rf"\$(?:{JOB_ROOT}|{{{JOB_ROOT}}})/.+", re.S)
_DIGITS = 12  # of a checksum; chance does not make two of them equal


def next_name(name: str, taken: Iterable[str]) -> str:
    """Returns the name of the next run.

    Args:
        name: a job's name, of its first run or of a later one.
        taken: the names of the experiment's jobs.
    """
    found = _RUN.fullmatch(name)
    base = found[1] if found else name
    names = {one.lower() for one in taken}
    runs = [match for match in map(_RUN.fullmatch, names) if match and match[1] == base.lower()]
    last = max([int(base.lower() in names), *(int(match[2]) for match in runs)])
    return f"{base}-{last + 1:04}"


def where(job: Job) -> dict[str, object]:
    """Returns what a listing shows of a job beside its state: on how many nodes of what, since when, and how long."""
    properties = job.document.get("properties") or {}
    return {
        "nodes": properties.get("nodeCount"),
        "cluster": str((properties.get("cluster") or {}).get("id") or "").rpartition("/")[2],
        "submitted": moment(properties.get("creationTime")),
        "took": took(job.started, job.ended or datetime.now(timezone.utc)) if job.started else "",
    }


def details(job: Job) -> dict[str, object]:
    """Returns what is shown of one job by itself; of a later run, its number."""
    found, shown = _RUN.fullmatch(job.name), where(job)
    run = {"run": f"{int(found[2])} of {found[1]}"} if found else {}
    times = {"started": job.started, "ended": job.ended, "took": shown.pop("took")}
    place = {"experiment": job.experiment.name, "workspace": job.workspace.name, "group": job.group.name}
    return {**run, **job._facts(), "why": "; ".join(job._reasons()), **shown, "ranks": job.spec.ranks, **times, **place}


def content(spec: JobSpec, accounts: Mapping[str, StorageAccount]) -> dict[str, str]:
    """Returns the checksums of the files on the shares that a job names, by their paths.

    Files of unknown checksum, such as those that a job wrote, are left out, except for the script itself.

    Args:
        spec: what the job consists of.
        accounts: the storage accounts that it mounts, by name.
    """
    script = script_of(spec.task)
    found = {}
    for path in dict.fromkeys(_named(spec)):
        mount, inside = locate(path, spec.mounts)
        account = accounts.get(mount.account) if mount else None
        if mount and account and inside:
            checksum = _checksum(account, mount.share, inside, always=path == script)
            found.update({f"{mount.path}/{inside}": checksum} if checksum else {})
    return found


def noted(body: Body, more: Sequence[Document]) -> Body:
    """Returns the body that creates a job, with more variables."""
    variables = [*body["properties"].get("environmentVariables", ()), *more]
    return {"properties": {**body["properties"], "environmentVariables": variables}} if more else body


def notes(found: Mapping[str, str], *, unique: bool = False) -> list[Body]:
    """Returns the variables that the client gives a job.

    Args:
        found: the checksums of its files.
        unique: makes it another job than any that is equal to it otherwise.
    """
    files = [{"name": CONTENT, "value": json.dumps(dict(found), sort_keys=True)}] if found else []
    return [*files, *([{"name": RUN, "value": uuid.uuid4().hex}] if unique else [])]


def notes_of(document: Document) -> list[Body]:
    """Returns the variables that the client gave an existing job."""
    variables = (document.get("properties") or {}).get("environmentVariables") or ()
    return [{"name": one["name"], "value": one.get("value")} for one in variables if one["name"] in (CONTENT, RUN)]


def _named(spec: JobSpec) -> Iterator[str]:
    """Yields the paths below mounts that a job's command lines name."""
    task = spec.task
    lines = [getattr(task, name, "") for name in ("script", "args", "command")] + [spec.preparation or ""]
    for line in lines:
        try:
            words = shlex.split(str(line))
        except ValueError:  # an open quote: the shell will say so
            words = str(line).split()
        for word in words:
            yield from (found.rstrip(";") for found in _BELOW_A_MOUNT.findall(word))


def _checksum(account: StorageAccount, share: str, path: str, *, always: bool) -> str:
    try:
        with account._asking(f"asked for {path!r}"):
            file = account.share(share)._client().get_file_client(path).get_file_properties()
    except ServiceError:  # not there, or a directory: whoever needs it will say so
        return ""
    known = known_md5(file).hex()
    return known[:_DIGITS] or (f"etag:{file.etag}" if always else "")


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Returns the paths whose content differs; one that is not known on both sides is not compared."""
    return [path for path in sorted(before.keys() & now.keys()) if before[path] != now[path]]


def has_ended(job: Job, spec: JobSpec) -> ConflictError:
    """Returns the error for a job that is created again after it has ended.

    Args:
        job: the one that exists.
        spec: what it was to be created with, its ``content`` filled in.
    """
    code = f", exit code {job.exit_code}" if job.exit_code else ""
    when = f" at {job.ended:%Y-%m-%d %H:%M:%S %Z}" if job.ended else ""
    how = f"{job.state}{code}"
    what = f"job {job.name!r} exists and has ended ({how}){when}, {_difference(job, spec)}. Nothing was started"
    python = "run it again under the next number with rerun=True, delete the old one first with replace=True"
    shell = "run it again under the next number with --rerun, delete the old one first with --replace"
    return ConflictError(f"{what}: {python}, or give another name", code="JobExists", target=job.id).told(
        f"{what}: {shell}, or give another --name"
    )


def has_changed(job: Job, spec: JobSpec) -> ConflictError | None:
    """Returns the error for a job that has not ended and runs other files; None if it runs the same."""
    files = changed(job.spec.content, spec.content)
    if not files:
        return None
    what = f"job {job.name!r} is {job.state} with an earlier version of {', '.join(files)}. Nothing was started"
    return ConflictError(
        f"{what}: run the new one beside it with rerun=True, or instead of it with replace=True",
        code="JobExists",
        target=job.id,
    ).told(f"{what}: run the new one beside it with --rerun, or instead of it with --replace")


def _difference(job: Job, spec: JobSpec) -> str:
    """Says how an existing job differs from one that was to be created."""
    old = job.spec
    if old != _as_shown(spec):
        return "with another specification"
    files = changed(old.content, spec.content)
    if files:
        return (
            f"with the same specification; since then {', '.join(files)} {'has' if len(files) == 1 else 'have'} changed"
        )
    return "with the same specification"


def _as_shown(spec: JobSpec) -> JobSpec:
    """Returns a spec as the service shows it: values of secrets are not, defaults are filled in."""
    hidden = evolve(spec, secrets=dict.fromkeys(spec.secrets, ""))
    return JobSpec._from_job(hidden._request("-", {}))
