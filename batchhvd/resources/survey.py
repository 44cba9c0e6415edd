"""Looks at the service for a plan: what it would reject, and what exists. Creates nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, field

from batchhvd.errors import BadRequestError, ConflictError, NotFoundError, ServiceError
from batchhvd.resources import runs
from batchhvd.resources.cluster import Cluster
from batchhvd.resources.job import Job
from batchhvd.resources.share import FileShare
from batchhvd.resources.storage_account import StorageAccount, find_account
from batchhvd.spec.cluster import AutoScale
from batchhvd.spec.job import JobSpec
from batchhvd.spec.mounts import Mount
from batchhvd.wire.facts import additions
from batchhvd.wire.facts.containers import HEADER, Containers
from batchhvd.wire.facts.documents import Body
from batchhvd.wire.facts.states import ENDED
from batchhvd.wire.models import PipelineAnswer, wire

if TYPE_CHECKING:
    from batchhvd.resources.experiment import Experiment

_NO_KEY = "AA=="  # stands for the key of a missing account: the service reports that itself


def _said(error: ServiceError) -> tuple[str, ...]:
    return tuple(str(detail["message"]) for detail in error.details) or (str(error),)


def _ended(job: Job) -> tuple[str, ...]:
    return (f"job {job.name!r} exists and has ended ({job.state})",) if job.state in ENDED else ()


@define
class Survey:
    """What ``plan.make`` needs to know; each account and share is looked up once.

    Attributes:
        experiment: the experiment that the job would belong to.
        on: the cluster that the job would run on.
        containers: what the service does with container images, once ``refusals`` was asked.
    """

    experiment: Experiment
    on: Cluster
    _accounts: dict[str, StorageAccount | None] = field(factory=dict, init=False)
    _shares: dict[tuple[str, str], FileShare | None] = field(factory=dict, init=False)
    _knows_dry_runs: bool = field(default=False, init=False)
    _preparation: str = field(default="", init=False)
    containers: Containers = field(factory=Containers, init=False)

    @property
    def cluster_name(self) -> str:
        """The name of the cluster that the job would run on, whether it exists or not."""
        return self.on.name

    @property
    def local(self) -> bool:
        """Whether it is the service of this machine."""
        return self.experiment._connection.loopback

    def cluster(self) -> tuple[str, str, int] | None:
        """Returns the cluster's name, VM size and the most nodes that it can have; None if it does not exist."""

        def note(answer: PipelineAnswer) -> None:
            self._knows_dry_runs = "x-batchhvd-service" in answer.http_response.headers

        try:
            with self.on._asking("read"):
                model = self.on._connection.batchai.clusters.get(*self.on._path, raw_response_hook=note)
        except NotFoundError:
            return None
        target = self.on._load(wire(model)).target
        return self.on.name, self.on.vm_size, target.maximum if isinstance(target, AutoScale) else target

    def refusals(self, spec: JobSpec, name: str) -> tuple[str, ...] | None:
        """Returns what the service would reject; None if it does not know dry runs, and would create the job.

        ``cluster`` must be called first: its answer tells which service it is.
        """
        if not self._knows_dry_runs:
            return None
        job = Job(self.experiment, name)
        body = spec._request(self.on.id, {account: self._key(account) for account in spec._accounts()})
        try:
            self._try(job, body)
        except ConflictError as error:
            return self._taken(job, body, error)
        except (BadRequestError, NotFoundError) as error:
            return _said(error)
        return _ended(job)

    def _try(self, job: Job, body: Body) -> None:
        """Sends the request that would create a job; an existing one that is the same fills the handle."""

        def note(answer: PipelineAnswer) -> None:
            self.containers = Containers.of_header(answer.http_response.headers.get(HEADER, ""))

        options = {"polling": False, "headers": {"x-batchhvd-dry-run": "true"}, "raw_response_hook": note}
        with job._asking("created"):
            made = job._connection.batchai.jobs.begin_create(*job._path, parameters=body, **options)
            job._load(wire(made.result()))
        self._preparation = str(additions.of(job.document.get("properties") or {}).get(additions.PREPARATION, ""))

    def _taken(self, job: Job, body: Body, conflict: ConflictError) -> tuple[str, ...]:
        """Returns what is wrong if a job of this name may exist."""
        if not job.exists():
            return _said(conflict)
        if job.state in ENDED:
            return _ended(job)
        try:
            self._try(job, runs.noted(body, runs.notes_of(job.document)))  # as ``create_job`` repeats it
        except ConflictError:
            return _said(conflict)
        return ()

    def preparation(self) -> str:
        """Returns where the job's preparation would run, "" if the service has not said it; after ``refusals``."""
        return self._preparation

    def has_share(self, mount: Mount) -> bool:
        """Says whether a mount's account and share exist."""
        return self._share(mount) is not None

    def has_file(self, mount: Mount, path: str) -> bool | None:
        """Says whether a share has a file or directory; None if the share does not exist."""
        share = self._share(mount)
        return None if share is None else not path or share.file_exists(path) or share.directory_exists(path)

    def _key(self, account: str) -> str:
        found = self._account(account)
        return found.read_key() if found else _NO_KEY

    def _account(self, name: str) -> StorageAccount | None:
        if name not in self._accounts:
            try:
                self._accounts[name] = find_account(self.experiment.group, name)
            except (NotFoundError, BadRequestError):  # rejected: no account can have such a name
                self._accounts[name] = None
        return self._accounts[name]

    def _share(self, mount: Mount) -> FileShare | None:
        known = (mount.account, mount.share)
        if known not in self._shares:
            self._shares[known] = self._find(mount)
        return self._shares[known]

    def _find(self, mount: Mount) -> FileShare | None:
        account = self._account(mount.account)
        try:
            return account.share(mount.share).refresh() if account else None
        except (NotFoundError, BadRequestError):  # rejected: no share can have such a name
            return None
