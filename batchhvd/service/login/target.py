"""What lies behind a port: a node, who may enter it, and how a program is started there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from attrs import frozen

from batchhvd.engines.fleet import Fleet
from batchhvd.errors import BatchHvdError
from batchhvd.node import archive
from batchhvd.service.login import host_key
from batchhvd.service.login.account import has_password, key_data
from batchhvd.service.login.job_key import PUBLIC_KEY
from batchhvd.service.mounts import links
from batchhvd.service.mounts import model as mounts
from batchhvd.service.store.cluster import StoredCluster
from batchhvd.service.store.job import StoredJob
from batchhvd.service.store.records import ACTIVE, Store
from batchhvd.wire.facts.mount_roots import CLUSTER_ROOT


class ClosedError(Exception):
    """A node cannot be entered now; the message says why."""


@frozen
class Ground:
    """What all nodes have in common.

    Attributes:
        root: the service's folder.
        store: all state.
        engine: the engine of new tasks, by name.
        directories: the directories of the machine that may be mounted.
    """

    root: Path
    store: Store
    engine: str
    directories: Sequence[str] = ()


@frozen
class NodeTarget:
    """A node of a cluster, as the store describes it at the moment of each question.

    Attributes:
        ground: what it has in common with the others.
        cluster: the key of its cluster.
        node: its name.
    """

    ground: Ground
    cluster: str
    node: str

    # -- who --

    def is_administrator(self, user: str) -> bool:
        """Whether a user name is the administrator's."""
        account = self._found().properties.get("userAccountSettings") or {}
        return bool(user) and account.get("adminUserName") == user

    def takes_passwords(self) -> bool:
        """Whether the cluster has a password."""
        return bool(self._login().get("password"))

    def has_password(self, user: str, password: str) -> bool:
        """Whether a password opens the node for a user; takes the same time whether or not there is such a user."""
        right = has_password(self._login(), password)
        return self.is_administrator(user) and right

    def has_key(self, user: str, data: bytes) -> bool:
        """Whether a public key opens the node: the administrator's, or that of the job that runs on it."""
        known = {key_data(self._login().get("key", ""))} if self.is_administrator(user) else set()
        job = self._job()
        if job is not None:
            known.add(_job_key(Path(job.folder)))
        return data in known - {b""}

    def host_key(self) -> str:
        """Returns the host key of the cluster, in OpenSSH's form."""
        found = self._found()
        return host_key.private_key(self.ground.root, found.id, found.record.number)

    def _login(self) -> dict[str, str]:
        return dict(self._found().record.private.get("login", {}))

    # -- where --

    def entrance(self, *, terminal: bool) -> list[str]:
        """Returns the words before a command line with which it runs in the node: in its job, or in the idle node.

        Raises:
            ClosedError: the node cannot be entered now.
        """
        job = self._job()
        try:
            if job is not None:
                fleet = Fleet.remembered(self.ground.engine, self.ground.root / "engines.json")
                return fleet.entrance(job.handle, job.nodes.index(self.node), terminal=terminal)
            if self.ground.engine != "processes":
                raise ClosedError(f"{self.node} has no job; with {self.ground.engine}, only the nodes of jobs exist")
            return self._idle()
        except (BatchHvdError, links.MountError, OSError) as error:
            raise ClosedError(f"{self.node} cannot be entered: {error}") from error

    @property
    def is_here(self) -> bool:
        """Whether the node is this machine, so that its ports are those of this machine."""
        job = self._job()
        name = job.handle.partition("!")[0] if job is not None else self.ground.engine
        return name == "processes"

    def _idle(self) -> list[str]:
        """Returns the same for a node without a job: its own folder with the cluster's mounts, on this machine."""
        cluster, folder = self._found(), host_key.folder(self.ground.root) / "nodes" / self.node
        mounted = mounts.every({}, cluster.properties)
        found = links.targets(self.ground.store, self.ground.root, mounted, cluster.keys, self.ground.directories)
        for mount, target in found.items():
            link = folder / "cluster" / mount.path
            link.parent.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(target)
        for name in ("cluster", "temp"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        own = {CLUSTER_ROOT: str(folder / "cluster"), "AZ_BATCHAI_NODE_NAME": self.node}
        return archive.alone(str(folder / "temp"), own)

    def _found(self) -> StoredCluster:
        record = self.ground.store.get(self.cluster)
        if record is None or record.type != "clusters" or StoredCluster.of(record).is_deleting:
            raise ClosedError("the cluster does not exist any more")
        return StoredCluster.of(record)

    def _job(self) -> StoredJob | None:
        """Returns the job that runs on the node, or None."""
        jobs = map(StoredJob.of, self.ground.store.all_of(ACTIVE))
        mine = (job for job in jobs if job.cluster == self.cluster and self.node in job.nodes and job.handle)
        return next(mine, None)


def _job_key(folder: Path) -> bytes:
    try:
        return key_data((folder / PUBLIC_KEY).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return b""
