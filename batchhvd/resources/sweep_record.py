"""What is kept of a sweep: its definition in a file beside the logs, and its jobs' names.

The definition lies in the share that holds the logs, at ``sweeps/<experiment>/<sweep>.json``. Each job notes that place
in ``BATCHHVD_SWEEP``, so that the name of a sweep is enough to find it again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from attrs import evolve, field, frozen

from batchhvd.advice.plan import locate
from batchhvd.errors import NotFoundError, SpecError
from batchhvd.resources.storage_account import find_account
from batchhvd.spec.job import JobSpec
from batchhvd.sweeps import Point, Search, Stopping, search
from batchhvd.sweeps.stopping import rule
from batchhvd.wire.facts.job_variables import SWEEP

if TYPE_CHECKING:
    from batchhvd.resources.experiment import Experiment
    from batchhvd.resources.job import Job
    from batchhvd.resources.share import FileShare

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,49}")
_TRIAL = re.compile(r"(?P<sweep>.+)_(?P<number>[0-9]{4,})(?:-(?P<run>[0-9]{4,}))?")


@frozen
class Definition:
    """What a sweep tries.

    Attributes:
        spec: the job, with places for the values.
        points: the values of each trial.
        text: the space, for people.
        cluster: the name of the cluster that the jobs run on.
        at_once: how many jobs wait or run at the same time, or None for all.
        rule: by which trials are given up, or None.
        search: what chooses the points if they are not known from the start, or None; ``points`` is empty then.
        place: where it is kept: account, share and path, with slashes between them.
    """

    spec: JobSpec
    points: tuple[Point, ...]
    text: str
    cluster: str
    at_once: int | None = None
    rule: Stopping | None = None
    search: Search | None = None
    place: str = field(default="", eq=False)

    def __attrs_post_init__(self) -> None:
        most = self.at_once
        if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 1):
            raise SpecError(f"at_once must be a whole number of at least 1, not {most!r}", remedy="give one such as 4")
        if self.search and most is None:
            remedy = "give at_once, such as 4: a search learns from the trials that have ended"
            raise SpecError("a search cannot begin all its trials at once", remedy=remedy)

    def __len__(self) -> int:
        return self.search.trials if self.search else len(self.points)

    @property
    def names(self) -> tuple[str, ...]:
        """The names that each point has values for."""
        return self.search.names if self.search else tuple(self.points[0])

    def with_secrets(self) -> JobSpec:
        """Returns the spec if it has the values of its secrets.

        Raises:
            SpecError: it was read from the file, which holds no secret.
        """
        missing = [name for name, value in self.spec.secrets.items() if value is None or value == ""]
        if missing:
            remedy = "make the sweep again with the same spec, secrets included: it goes on where it was"
            raise SpecError(f"the values of {', '.join(missing)} are not kept with a sweep", remedy=remedy)
        return self.spec

    def document(self) -> dict[str, Any]:
        """Returns it as JSON, without keys and secrets."""
        described = self.rule.describe() if self.rule else None
        own = {"text": self.text, "cluster": self.cluster, "at_once": self.at_once, "rule": described}
        if self.search:
            own["search"] = self.search.describe()
        return {**own, "points": [dict(point) for point in self.points], "job": self.spec.to_document()}

    def same(self, other: Definition) -> bool:
        """Says whether another one tries the same; how many at once may differ."""
        return {**self.document(), "at_once": None} == {**other.document(), "at_once": None}

    def keep(self, experiment: Experiment, name: str) -> Definition:
        """Writes it, unless there is one of this name already, and returns the one that is kept."""
        share, path = _place(experiment, self.spec, name)
        place = f"{share.account.name}/{share.name}/{path}"
        if share.file_exists(path):
            return _read(share, path, place)
        share.create_directory(path.rpartition("/")[0])
        share._put(path, json.dumps(self.document(), indent=1).encode())
        return evolve(self, place=place)


def check_name(name: str) -> None:
    """Raises SpecError if a sweep cannot have this name, from which its jobs' names are made."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        remedy = "use at most 50 letters, digits, - and _, a letter or digit first"
        raise SpecError(f"{name!r} is no name of a sweep", remedy=remedy)


def run_name(sweep: str, number: int, before: str) -> str:
    """Returns the name of a trial's job: ``digits_0003``, and of its next runs ``digits_0003-0002``."""
    first = f"{sweep}_{number:04}"
    found = _TRIAL.fullmatch(before)
    return f"{first}-{int(found['run'] or 1) + 1:04}" if found else first


def latest(sweep: str, jobs: Iterable[Job], place: str = "") -> dict[int, Job]:
    """Returns the last job of each trial, by the trial's number.

    Args:
        sweep: the sweep's name.
        jobs: the experiment's jobs.
        place: where its definition is kept: a job that does not note it belongs to somebody else, whatever its name.
            "" for all jobs of fitting names.
    """
    found: dict[int, tuple[int, Job]] = {}
    for job in jobs:
        match = _TRIAL.fullmatch(job.name)
        ours = not place or variable(job, SWEEP).rpartition("#")[0].lower() == place.lower()
        if match and ours and match["sweep"].lower() == sweep.lower():
            number, run = int(match["number"]), int(match["run"] or 1)
            if number not in found or found[number][0] < run:
                found[number] = (run, job)
    return {number: job for number, (_, job) in found.items()}


def variable(job: Job, name: str) -> str:
    """Returns a variable of a job that was read, "" if it has none of this name."""
    variables = (job.document.get("properties") or {}).get("environmentVariables") or ()
    return next((str(entry.get("value") or "") for entry in variables if entry["name"] == name), "")


def find(experiment: Experiment, name: str) -> Definition:
    """Returns the definition of a sweep that has at least one job.

    Raises:
        NotFoundError: there is none of this name, or its file is gone.
    """
    for job in latest(name, experiment.jobs()).values():
        place = variable(job, SWEEP).rpartition("#")[0]
        account, _, rest = place.partition("/")
        share, _, path = rest.partition("/")
        if account and share and path:
            return _read(find_account(experiment.group, account).share(share), path, place)
    what = f"experiment {experiment.name!r} has no sweep {name!r}"
    raise NotFoundError(f"{what}. Make it with experiment.sweep()").told(
        f"{what}. Make it with `batchhvd sweep JOB_FILE`"
    )


def _place(experiment: Experiment, spec: JobSpec, name: str) -> tuple[FileShare, str]:
    """Returns the share that holds the logs, and the path of the definition in it."""
    mount, _ = locate(spec.logs, spec.mounts)
    if mount is None:
        remedy = "mount a share, and let logs be a directory on it"
        raise SpecError("a sweep keeps its definition beside the logs, which lie on no mounted share", remedy=remedy)
    share = find_account(experiment.group, mount.account).share(mount.share)
    return share, f"sweeps/{experiment.name}/{name}.json"


def _read(share: FileShare, path: str, place: str) -> Definition:
    text = b"".join(share._read_file(path))
    try:
        return _of(json.loads(text), place)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        remedy = "delete the file and make the sweep again; its jobs are kept"
        raise SpecError(
            f"{path} in share {share.name!r} is no definition of a sweep: {error}", remedy=remedy
        ) from error


def _of(document: Mapping[str, Any], place: str) -> Definition:
    points = tuple(dict(point) for point in document["points"])
    spec = JobSpec.from_document(document["job"])
    fixed = {"cluster": document["cluster"], "at_once": document["at_once"], "rule": rule(document["rule"])}
    fixed["search"] = search.described(document.get("search"))
    return Definition(spec, points, document["text"], place=place, **fixed)
