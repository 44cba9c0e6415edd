"""An experiment: jobs that belong together."""

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
    """An experiment: jobs that belong together."""

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
        """Submits a job, or returns the existing one with the same content; it waits in the queue until nodes are free.

        The keys of the storage accounts that it mounts are looked up and sent along; the spec does not keep them.

        Args:
            name: its name.
            spec: what the job consists of.
            cluster: where it runs.
            timeout: seconds to wait for the service to accept it; ``Job.wait`` waits for the job.

        Raises:
            NotFoundError: a storage account that it mounts does not exist.
            ConflictError: a job of this name exists with other content.
            BadRequestError: the service rejected the job; ``target`` names the field.
        """
        body = spec._request(cluster.id, self._keys(spec))
        job = Job(self, name)
        return job._created(lambda: self._connection.batchai.jobs.begin_create(*job._path, parameters=body), timeout)

    def plan_job(self, name: str, spec: JobSpec, *, cluster: Cluster) -> Plan:
        """Says what a job would do and what would make it fail, without creating it.

        A service of batchhvd checks the job as if it were created, and reports what it would reject. Other services
        cannot do so without creating the job; the plan then has ``checked`` False and a warning.

        Args:
            name: the name it would have.
            spec: what the job consists of.
            cluster: where it would run.
        """
        return plan.make(spec, name, Survey(self, cluster))

    def job(self, name: str) -> Job:
        """Returns a handle to a job without sending a request."""
        return Job(self, name)

    def jobs(self) -> Listing[Job]:
        """Lists the experiment's jobs."""
        return children(Job, self)

    def _keys(self, spec: JobSpec) -> dict[str, str]:
        return {name: find_account(self.group, name).read_key() for name in spec._accounts()}

    def _create(self, timeout: float) -> Self:
        return self._created(lambda: self._connection.batchai.experiments.begin_create(*self._path), timeout)
