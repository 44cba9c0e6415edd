"""A workspace: clusters and experiments that belong together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, cast

from attrs import define, field

from batchhvd.errors import SpecError
from batchhvd.resources.base import Operations, Resource, children
from batchhvd.resources.cluster import Cluster
from batchhvd.resources.experiment import Experiment
from batchhvd.resources.storage_account import find_account
from batchhvd.resources.values.listing import Listing
from batchhvd.spec.cluster import AutoScale, ClusterSpec
from batchhvd.wire.models import Document

if TYPE_CHECKING:
    from typing_extensions import Self

    from batchhvd.resources.group import ResourceGroup


@define(eq=False, repr=False, slots=False)
class Workspace(Resource):
    """A workspace: clusters and experiments that belong together.

    Attributes:
        location: its region.
        tags: its tags.
    """

    location: str = field(init=False)
    tags: Mapping[str, str] = field(init=False)
    kind: ClassVar[str] = "workspace"
    _plural: ClassVar[str] = "workspaces"
    _segment: ClassVar[str] = "/providers/Microsoft.BatchAI/workspaces"
    _operations: ClassVar[Operations] = Operations("batchai", "workspaces", "list_by_resource_group")
    _kinds: ClassVar[tuple[type[Resource], ...]] = (Cluster, Experiment)

    @property
    def group(self) -> ResourceGroup:
        """The resource group that it belongs to."""
        return cast("ResourceGroup", self._parent)

    def create_experiment(self, name: str, *, timeout: float = 600.0) -> Experiment:
        """Creates an experiment, or returns the existing one."""
        return Experiment(self, name)._create(timeout)

    def experiment(self, name: str) -> Experiment:
        """Returns a handle to an experiment without sending a request."""
        return Experiment(self, name)

    def experiments(self) -> Listing[Experiment]:
        """Lists the workspace's experiments."""
        return children(Experiment, self)

    def create_cluster(
        self,
        name: str,
        spec: ClusterSpec | None = None,
        *,
        vm_size: str = "",
        nodes: int | AutoScale = 1,
        timeout: float = 600.0,
    ) -> Cluster:
        """Creates a cluster, or returns the existing one; returns before its nodes are ready.

        Args:
            name: its name.
            spec: everything that describes a cluster; ``vm_size`` and ``nodes`` are the short form.
            vm_size: the kind of machine, such as ``"Standard_NC6"``; to the local service it is only a name.
            nodes: how many, or the limits between which it scales.
            timeout: seconds to wait for the service to accept it; ``Cluster.wait`` waits for the nodes.

        Raises:
            SpecError: neither a spec nor a size is given, or both are.
        """
        if (spec is None) == (not vm_size):
            raise SpecError(
                "a cluster needs either a spec or a vm_size", remedy='give one of them, such as vm_size="Standard_NC6"'
            )
        chosen = spec or ClusterSpec(vm_size=vm_size, nodes=nodes)
        keys = {account: find_account(self.group, account).read_key() for account in chosen._accounts()}
        return Cluster(self, name)._create(chosen, keys, timeout)

    def cluster(self, name: str) -> Cluster:
        """Returns a handle to a cluster without sending a request."""
        return Cluster(self, name)

    def clusters(self) -> Listing[Cluster]:
        """Lists the workspace's clusters."""
        return children(Cluster, self)

    def _create(self, location: str, tags: Mapping[str, str], timeout: float) -> Self:
        body = {"location": location, "tags": dict(tags)}
        return self._created(
            lambda: self._connection.batchai.workspaces.begin_create(*self._path, parameters=body), timeout
        )

    def _load(self, document: Document) -> Self:
        self.location = str(document.get("location") or "")
        self.tags = dict(document.get("tags") or {})
        return super()._load(document)

    def _facts(self) -> dict[str, object]:
        return {"location": self.location, **super()._facts()}
