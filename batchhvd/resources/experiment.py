"""An experiment: jobs that are looked at together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from attrs import define

from batchhvd.advice import plan
from batchhvd.advice.plan import Plan
from batchhvd.resources.base import Listing, Poller, Resource
from batchhvd.resources.cluster import Cluster
from batchhvd.resources.job import Job
from batchhvd.resources.storage_account import find_account
from batchhvd.resources.survey import Survey
from batchhvd.spec.job import JobSpec
from batchhvd.wire.models import Document, wire

if TYPE_CHECKING:
    from typing_extensions import Self


@define(eq=False, repr=False, slots=False)
class Experiment(Resource):
    """An experiment: jobs that are looked at together."""

    kind: ClassVar[str] = "experiment"
    _segment: ClassVar[str] = "/experiments"

    def create_job(self, name: str, spec: JobSpec, *, cluster: Cluster, timeout: float = 600.0) -> Job:
        """Submits a job, or returns the one that is there with the same content; it queues until nodes are free.

        The keys of the storage accounts that it mounts are looked up and sent along; the spec keeps none.

        Args:
            name: its name.
            spec: what it is made of.
            cluster: where it runs.
            timeout: seconds to wait for the service to take it; ``Job.wait`` waits for the job.

        Raises:
            NotFoundError: a storage account that it mounts is not there.
            ConflictError: there is a job of this name with other content.
            BadRequestError: the service found something wrong; ``target`` says where.
        """
        body = spec.request(cluster.id, self._keys(spec))
        job = Job(self, name)
        return job._created(lambda: self.connection.batchai.jobs.begin_create(*job._path, parameters=body), timeout)

    def plan(self, spec: JobSpec, cluster: Cluster, *, name: str = "job") -> Plan:
        """Says what a job would do, and what would make it fail; creates nothing.

        Args:
            spec: what it is made of.
            cluster: where it would run.
            name: the name it would have.
        """
        return plan.make(spec, name, Survey(self.parent.parent, cluster))

    def job(self, name: str) -> Job:
        """Returns a handle on a job, running or not; asks nobody."""
        return Job(self, name)

    def jobs(self) -> Listing[Job]:
        """Lists the experiment's jobs."""
        return Listing(
            lambda: self.connection.batchai.jobs.list_by_experiment(*self._path),
            lambda document: Job(self, document["name"])._load(document),
            lambda: self._asking("searched for jobs"),
        )

    def _keys(self, spec: JobSpec) -> dict[str, str]:
        group = self.parent.parent
        return {name: find_account(group, name).read_key() for name in spec.accounts()}

    def _create(self, timeout: float) -> Self:
        return self._created(lambda: self.connection.batchai.experiments.begin_create(*self._path), timeout)

    def _children(self) -> Iterator[Resource]:
        yield from self.jobs()

    def _read(self) -> Document:
        return wire(self.connection.batchai.experiments.get(*self._path))

    def _remove(self) -> Poller:
        poller: Poller = self.connection.batchai.experiments.begin_delete(*self._path)
        return poller
