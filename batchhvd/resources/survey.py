"""Looks at the service for a plan: which clusters, shares and files are there. Creates nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, field

from batchhvd.errors import BadRequestError, NotFoundError
from batchhvd.resources.cluster import Cluster
from batchhvd.resources.share import FileShare
from batchhvd.resources.storage_account import find_account
from batchhvd.spec.cluster import AutoScale
from batchhvd.spec.mounts import Mount

if TYPE_CHECKING:
    from batchhvd.resources.group import ResourceGroup


@define
class Survey:
    """What ``plan.make`` asks about; each share is looked for once.

    Attributes:
        group: the resource group whose storage accounts are looked at first.
        on: the cluster that the job would run on.
    """

    group: ResourceGroup
    on: Cluster
    _shares: dict[tuple[str, str], FileShare | None] = field(factory=dict, init=False)

    @property
    def local(self) -> bool:
        """Whether it is the service of this machine."""
        return self.group._connection.loopback

    def cluster(self) -> tuple[str, str, int] | None:
        """Returns the cluster's name, kind of machine and how many nodes it can have; None where it is not there."""
        if not self.on.exists():
            return None
        most = self.on.target.maximum if isinstance(self.on.target, AutoScale) else self.on.target
        return self.on.name, self.on.vm_size, most

    def has_share(self, mount: Mount) -> bool:
        """Says whether a mount's account and share are there."""
        return self._share(mount) is not None

    def has_file(self, mount: Mount, path: str) -> bool | None:
        """Says whether a share has a file or folder; None where it has no such share."""
        share = self._share(mount)
        return None if share is None else not path or share.file_exists(path) or share.directory_exists(path)

    def _share(self, mount: Mount) -> FileShare | None:
        known = (mount.account, mount.share)
        if known not in self._shares:
            self._shares[known] = self._find(mount)
        return self._shares[known]

    def _find(self, mount: Mount) -> FileShare | None:
        try:
            return find_account(self.group, mount.account).share(mount.share).refresh()
        except (NotFoundError, BadRequestError):  # refused: no share can have such a name
            return None
