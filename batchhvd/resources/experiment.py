"""An experiment: jobs that are looked at together."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from attrs import define

from batchhvd.advice import plan
from batchhvd.advice.plan import Plan
from batchhvd.resources.base import Listing, Operations, Resource, children
from batchhvd.resources.cluster import Cluster
from batchhvd.resources.job import Job
from batchhvd.resources.storage_account import find_account
from batchhvd.resources.survey import Survey
from batchhvd.spec.job import JobSpec

if TYPE_CHECKING:
    from typing_extensions import Self

    from batchhvd.resources.group import ResourceGroup
    from batchhvd.resources.workspace import Workspace


@define(eq=False, repr=False, slots=False)
class Experiment(Resource):
    """An experiment: jobs that are looked at together."""

    kind: ClassVar[str] = "experiment"
    _plural: ClassVar[str] = "experiments"
    _segment: ClassVar[str] = "/experiments"
    _operations: ClassVar[Operations] = Operations("batchai", "experiments", "list_by_workspace")
    _kinds: ClassVar[tuple[type[Resource], ...]] = (Job,)

    @property
    def workspace(self) -> Workspace:
        """The workspace that it belongs to."""
        return cast("Workspace", self._parent)

    @property
    def group(self) -> ResourceGroup:
        """The resource group that it belongs to."""
        return self.workspace.group

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
        body = spec._request(cluster.id, self._keys(spec))
        job = Job(self, name)
        return job._created(lambda: self._connection.batchai.jobs.begin_create(*job._path, parameters=body), timeout)

    def plan_job(self, name: str, spec: JobSpec, *, cluster: Cluster) -> Plan:
        """Says what a job would do, and what would make it fail; creates nothing.

        A service of batchhvd checks the job as if it were created and says what it would reject. Another one could not
        be asked without creating the job; then the plan has ``checked`` False and a warning.

        Args:
            name: the name it would have.
            spec: what it is made of.
            cluster: where it would run.
        """
        return plan.make(spec, name, Survey(self, cluster))

    def job(self, name: str) -> Job:
        """Returns a handle on a job, running or not; asks nobody."""
        return Job(self, name)

    def jobs(self) -> Listing[Job]:
        """Lists the experiment's jobs."""
        return children(Job, self)

    def _keys(self, spec: JobSpec) -> dict[str, str]:
        return {name: find_account(self.group, name).read_key() for name in spec._accounts()}

    def _create(self, timeout: float) -> Self:
        return self._created(lambda: self._connection.batchai.experiments.begin_create(*self._path), timeout)
