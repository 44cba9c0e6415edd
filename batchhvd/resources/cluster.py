"""A cluster: nodes of one kind, a fixed number or as many as its jobs need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, cast

from attrs import asdict, define, evolve, field, frozen

from batchhvd.errors import NotFoundError, ResourceFailedError
from batchhvd.resources.base import Operations, Resource
from batchhvd.resources.values.node_login import NodeLogin
from batchhvd.spec.cluster import AutoScale, ClusterSpec
from batchhvd.wire.connection import AGAIN
from batchhvd.wire.entrance import entrance
from batchhvd.wire.facts.states import AllocationState, AllocationWord, ProvisioningState, VmPriority, VmPriorityWord
from batchhvd.wire.models import Document, wire
from batchhvd.wire.reasons import Reason, reasons
from batchhvd.wire.waiting import Report, wait_until

if TYPE_CHECKING:
    from typing_extensions import Self

    from batchhvd.advice.explain import ClusterFacts, Verdict
    from batchhvd.resources.group import ResourceGroup
    from batchhvd.resources.workspace import Workspace

_ADMINISTRATOR = "batchai"
"""The administrator if the spec names none: the description requires one; the local service does not create it."""


@frozen
class NodeCounts:
    """How many nodes are in which state; they add up to the nodes that the cluster has."""

    idle: int = 0
    running: int = 0
    preparing: int = 0
    leaving: int = 0
    unusable: int = 0

    @property
    def total(self) -> int:
        """All nodes."""
        return self.idle + self.running + self.preparing + self.leaving + self.unusable

    def __str__(self) -> str:
        """Names the states that have nodes, such as ``"3 idle, 1 running"``."""
        return ", ".join(f"{count} {state}" for state, count in asdict(self).items() if count) or "no nodes"


@define(eq=False, repr=False, slots=False)
class Cluster(Resource):
    """A cluster.

    Attributes:
        state: ``"resizing"`` or ``"steady"``.
        nodes: how many nodes are in which state.
        target: how many nodes it should have, or the limits between which it scales.
        vm_size: the kind of machine, in upper case.
        priority: ``"dedicated"`` or ``"lowpriority"``.
        errors: what the service reports as wrong with it.
    """

    state: AllocationState | AllocationWord = field(init=False)
    nodes: NodeCounts = field(init=False)
    target: int | AutoScale = field(init=False)
    vm_size: str = field(init=False)
    priority: VmPriority | VmPriorityWord = field(init=False)
    errors: tuple[Reason, ...] = field(init=False)

    kind: ClassVar[str] = "cluster"
    _plural: ClassVar[str] = "clusters"
    _segment: ClassVar[str] = "/clusters"
    _operations: ClassVar[Operations] = Operations("batchai", "clusters", "list_by_workspace")

    @property
    def workspace(self) -> Workspace:
        """The workspace that it belongs to."""
        return cast("Workspace", self._parent)

    @property
    def group(self) -> ResourceGroup:
        """The resource group that it belongs to."""
        return self.workspace.group

    def wait(self, *, timeout: float | None = None, report: Report | None = None) -> Self:
        """Waits until the cluster is steady and all its nodes are usable.

        Ctrl-C ends only the wait.

        Args:
            timeout: seconds, or None for a week.
            report: is called with a line each time the state changes.

        Raises:
            ResourceFailedError: it could not be created, or will not get its nodes.
            WaitTimeoutError: the time is over; the cluster keeps resizing.
        """
        what = f"cluster {self.name!r} to be ready"
        return wait_until(
            self.refresh,
            Cluster._ready,
            timeout=timeout,
            describe=lambda cluster: f"{cluster.state}, {cluster.nodes}",
            what=what,
            clock=self._session.clock,
            pace=self._connection.pace,
            report=report,
        )

    def resize(self, nodes: int | AutoScale) -> Self:
        """Changes the number of nodes, or the limits to scale between; returns while nodes still come or go.

        Args:
            nodes: how many; 0 frees them all and keeps the cluster.

        Raises:
            NotFoundError: the cluster does not exist.
            SpecError: the number is negative.
        """
        scale = ClusterSpec(vm_size="any", nodes=nodes).to_document()["properties"]["scaleSettings"]
        with self._asking("resized"):
            body = {"properties": {"scaleSettings": scale}}
            model = self._connection.batchai.clusters.update(*self._path, parameters=body, **AGAIN)
        return self._load(wire(model))

    def entrance(self, node: int = 0, *, terminal: bool = False) -> list[str]:
        """Returns the words before a command line with which it runs in a node: in its job, or in the idle node.

        They are for a program on the service's machine. An idle node has the cluster's mounts.

        Args:
            node: the node's number, from 0.
            terminal: whether the command's input and output are a terminal.

        Raises:
            SpecError: the service is not one of this machine.
            NotFoundError: the cluster does not exist, or has no such node.
            ConflictError: the node cannot be entered now; on Slurm, only nodes of running jobs can.
        """
        return entrance(self._connection, "cluster", self.id, node, terminal=terminal, name=self.name)

    def logins(self) -> list[NodeLogin]:
        """Returns how each node is entered by SSH, and the fingerprint of its host key.

        Raises:
            NotFoundError: the cluster does not exist.
        """
        with self._asking("asked for its nodes"):
            found = self._connection.batchai.clusters.list_remote_login_information(*self._path, **AGAIN)
            return [NodeLogin.of(wire(login)) for login in found]

    def explain(self, node: str | None = None) -> Verdict:
        """Says why the cluster, or one of its nodes, is as it is, with the evidence and what to do next.

        Args:
            node: a node's name as the logs show it, or None for the whole cluster.

        Raises:
            NotFoundError: the cluster or the node does not exist.
        """
        from batchhvd.advice import explain  # late: most programs never ask

        facts = self.refresh()._known()
        if node is None:
            return explain.of_cluster(facts)
        return explain.of_node(facts, node) or self._sound(node)

    def _sound(self, node: str) -> Verdict:
        from batchhvd.advice import explain

        names = self._node_names()
        if node not in names:
            raise NotFoundError(
                f"cluster {self.name!r} has no node {node!r}. Give one of its nodes: {', '.join(names) or 'none'}",
                code="NodeNotFound",
                target=self.id,
            )
        return explain.of_sound_node(self._known(), node)

    def _node_names(self) -> list[str]:
        return [login.node for login in self.logins()]

    def _known(self) -> ClusterFacts:
        from batchhvd.advice.explain import ClusterFacts

        most = self.target.maximum if isinstance(self.target, AutoScale) else self.target
        return ClusterFacts(self.id, self.name, self.provisioning, self.state, most, asdict(self.nodes), self.errors)

    def _ready(self) -> bool:
        if self.provisioning == ProvisioningState.FAILED or (self.state == AllocationState.STEADY and self.errors):
            raise self._failure()
        wanted = self.nodes.total if isinstance(self.target, AutoScale) else self.target
        if self.state == AllocationState.STEADY and self.nodes.unusable:
            raise self._failure()
        return self.state == AllocationState.STEADY and self.nodes.idle + self.nodes.running == wanted

    def _failure(self) -> ResourceFailedError:
        reasons = self._reasons() or [f"it has {self.nodes}"]
        what = f"cluster {self.name!r} will not be ready: {'; '.join(reasons)}"
        then = "resize it, or delete it and create it again"
        error = ResourceFailedError(
            f"{what}. Ask its explain() for the reason, {then}", resource=self.id, reasons=reasons
        )
        return error.told(f"{what}. `batchhvd cluster explain {self.name}` shows the reason; {then}")

    def _create(self, spec: ClusterSpec, keys: Mapping[str, str], timeout: float) -> Self:
        body = evolve(spec, user=spec.user or _ADMINISTRATOR)._request(keys)
        return self._created(
            lambda: self._connection.batchai.clusters.begin_create(*self._path, parameters=body), timeout
        )

    def _load(self, document: Document) -> Self:
        properties = document.get("properties") or {}
        self.state = cast("AllocationState", AllocationState.read(str(properties.get("allocationState") or "")))
        self.nodes = _counts(properties.get("nodeStateCounts") or {})
        self.target = _target(properties.get("scaleSettings") or {})
        self.vm_size = str(properties.get("vmSize") or "").upper()
        self.priority = cast("VmPriority", VmPriority.read(str(properties.get("vmPriority") or "")))
        self.errors = reasons(properties.get("errors") or ())
        return super()._load(document)

    def _facts(self) -> dict[str, object]:
        return {"state": self.state, "nodes": str(self.nodes), "target": self.target, "vm_size": self.vm_size}

    def _where(self) -> dict[str, object]:
        return {"group": self.group.name, "workspace": self.workspace.name}

    def _details(self) -> dict[str, object]:
        keys = {login.host_key for login in self.logins()} - {None}
        return {**self._where(), **self._facts(), "priority": self.priority, "host_key": ", ".join(map(str, keys))}

    def _reasons(self) -> list[str]:
        return [str(reason) for reason in self.errors]


def _counts(counts: Document) -> NodeCounts:
    return NodeCounts(
        idle=counts.get("idleNodeCount") or 0,
        running=counts.get("runningNodeCount") or 0,
        preparing=counts.get("preparingNodeCount") or 0,
        leaving=counts.get("leavingNodeCount") or 0,
        unusable=counts.get("unusableNodeCount") or 0,
    )


def _target(scale: Document) -> int | AutoScale:
    auto = scale.get("autoScale")
    if auto:
        low, high = auto.get("minimumNodeCount") or 0, auto.get("maximumNodeCount") or 0
        return AutoScale(low, high, min(max(auto.get("initialNodeCount") or 0, low), high))
    return int((scale.get("manual") or {}).get("targetNodeCount") or 0)
