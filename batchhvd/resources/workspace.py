"""The parents: a resource group holds workspaces and storage accounts, a workspace clusters and experiments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from attrs import define, field

from batchhvd.advice import plan
from batchhvd.advice.plan import Plan
from batchhvd.errors import SpecError
from batchhvd.resources.base import Document, Listing, Poller, Resource, wire
from batchhvd.resources.cluster import Cluster
from batchhvd.resources.job import Job
from batchhvd.resources.storage import StorageAccount, find_account
from batchhvd.resources.survey import Survey
from batchhvd.spec.cluster import AutoScale, ClusterSpec
from batchhvd.spec.job import JobSpec

if TYPE_CHECKING:
    from typing_extensions import Self


@define(eq=False, repr=False, slots=False)
class ResourceGroup(Resource):
    """A resource group: what is deleted together.

    Attributes:
        location: the region it was made for, such as ``"eastus"``; "" before the first answer.
        tags: its tags.
    """

    location: str = field(default="", init=False)
    tags: Mapping[str, str] = field(factory=dict, init=False)
    kind: ClassVar[str] = "group"

    @property
    def id(self) -> str:
        """The group's id."""
        return f"/subscriptions/{self.connection.subscription}/resourceGroups/{self.name}"

    def create_workspace(
        self, name: str, *, location: str | None = None, tags: Mapping[str, str] | None = None, timeout: float = 600.0
    ) -> Workspace:
        """Creates a workspace, or returns the one that is there.

        Args:
            name: its name.
            location: its region; None for the group's.
            tags: its tags.
            timeout: seconds to wait for it.
        """
        return Workspace(self, name)._create(location or self._place(), tags or {}, timeout)

    def workspace(self, name: str) -> Workspace:
        """Returns a handle on a workspace; asks nobody."""
        return Workspace(self, name)

    def workspaces(self) -> Listing[Workspace]:
        """Lists the group's workspaces."""
        return Listing(
            lambda: self.connection.batchai.workspaces.list_by_resource_group(self.name),
            lambda document: Workspace(self, document["name"])._load(document),
            lambda: self._asking("searched for workspaces"),
        )

    def create_storage(
        self, name: str, *, location: str | None = None, sku: str = "Standard_LRS", timeout: float = 600.0
    ) -> StorageAccount:
        """Creates a storage account, or returns the one that is there.

        Args:
            name: its name, 3 to 24 lower-case letters and digits, unlike any other's.
            location: its region; None for the group's.
            sku: its redundancy, in Azure's words.
            timeout: seconds to wait for it.
        """
        return StorageAccount(self, name)._create(location or self._place(), sku, timeout)

    def storage(self, name: str) -> StorageAccount:
        """Returns a handle on a storage account; asks nobody."""
        return StorageAccount(self, name)

    def storages(self) -> Listing[StorageAccount]:
        """Lists the group's storage accounts."""
        return Listing(
            lambda: self.connection.storage.storage_accounts.list_by_resource_group(self.name),
            lambda document: StorageAccount(self, document["name"])._load(document),
            lambda: self._asking("searched for storage accounts"),
        )

    def _place(self) -> str:
        return self.location or self.refresh().location

    def _create(self, location: str, tags: Mapping[str, str]) -> Self:
        body = {"location": location, "tags": dict(tags)}
        with self._asking("created"):
            return self._load(wire(self.connection.resources.resource_groups.create_or_update(self.name, body)))

    def _load(self, document: Document) -> Self:
        self.location = str(document.get("location") or "")
        self.tags = dict(document.get("tags") or {})
        return super()._load(document)

    def _facts(self) -> dict[str, object]:
        return {"location": self.location, **super()._facts()}

    def _children(self) -> Iterator[Resource]:
        yield from self.workspaces()
        yield from self.storages()

    def _read(self) -> Document:
        return wire(self.connection.resources.resource_groups.get(self.name))

    def _remove(self) -> Poller:
        poller: Poller = self.connection.resources.resource_groups.begin_delete(self.name)
        return poller


@define(eq=False, repr=False, slots=False)
class Workspace(Resource):
    """A workspace: clusters and experiments that belong together.

    Attributes:
        location: its region; "" before the first answer.
        tags: its tags.
    """

    location: str = field(default="", init=False)
    tags: Mapping[str, str] = field(factory=dict, init=False)
    kind: ClassVar[str] = "workspace"
    _segment: ClassVar[str] = "/providers/Microsoft.BatchAI/workspaces"

    def create_experiment(self, name: str, *, timeout: float = 600.0) -> Experiment:
        """Creates an experiment, or returns the one that is there."""
        return Experiment(self, name)._create(timeout)

    def experiment(self, name: str) -> Experiment:
        """Returns a handle on an experiment; asks nobody."""
        return Experiment(self, name)

    def experiments(self) -> Listing[Experiment]:
        """Lists the workspace's experiments."""
        return Listing(
            lambda: self.connection.batchai.experiments.list_by_workspace(*self._path),
            lambda document: Experiment(self, document["name"])._load(document),
            lambda: self._asking("searched for experiments"),
        )

    def create_cluster(
        self,
        name: str,
        spec: ClusterSpec | None = None,
        *,
        vm_size: str = "",
        nodes: int | AutoScale = 1,
        timeout: float = 600.0,
    ) -> Cluster:
        """Creates a cluster, or returns the one that is there; returns while its nodes are still coming.

        Args:
            name: its name.
            spec: all that a cluster can be told; ``vm_size`` and ``nodes`` are the short way.
            vm_size: the kind of machine, such as ``"Standard_NC6"``; to the local service a word, its nodes are here.
            nodes: how many, or the limits between which it scales by itself.
            timeout: seconds to wait for the service to take it; ``Cluster.wait`` waits for the nodes.

        Raises:
            SpecError: neither a spec nor a size is given, or both.
        """
        if (spec is None) == (not vm_size):
            raise SpecError(
                "a cluster is made of a spec or of a vm_size", remedy='give one of them, as vm_size="Standard_NC6"'
            )
        chosen = spec or ClusterSpec(vm_size=vm_size, nodes=nodes)
        keys = {account: find_account(self.parent, account).read_key() for account in chosen.accounts()}
        return Cluster(self, name)._create(chosen, keys, timeout)

    def cluster(self, name: str) -> Cluster:
        """Returns a handle on a cluster; asks nobody."""
        return Cluster(self, name)

    def clusters(self) -> Listing[Cluster]:
        """Lists the workspace's clusters."""
        return Listing(
            lambda: self.connection.batchai.clusters.list_by_workspace(*self._path),
            lambda document: Cluster(self, document["name"])._load(document),
            lambda: self._asking("searched for clusters"),
        )

    def _create(self, location: str, tags: Mapping[str, str], timeout: float) -> Self:
        body = {"location": location, "tags": dict(tags)}
        return self._created(
            lambda: self.connection.batchai.workspaces.begin_create(*self._path, parameters=body), timeout
        )

    def _load(self, document: Document) -> Self:
        self.location = str(document.get("location") or "")
        self.tags = dict(document.get("tags") or {})
        return super()._load(document)

    def _facts(self) -> dict[str, object]:
        return {"location": self.location, **super()._facts()}

    def _children(self) -> Iterator[Resource]:
        yield from self.clusters()
        yield from self.experiments()

    def _read(self) -> Document:
        return wire(self.connection.batchai.workspaces.get(*self._path))

    def _remove(self) -> Poller:
        poller: Poller = self.connection.batchai.workspaces.begin_delete(*self._path)
        return poller


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
