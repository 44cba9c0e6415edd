"""A resource group: workspaces and storage accounts that are deleted together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, cast

from attrs import define, field

from batchhvd.resources.base import Operations, Resource, children
from batchhvd.resources.storage_account import StorageAccount
from batchhvd.resources.values.listing import Listing
from batchhvd.resources.workspace import Workspace
from batchhvd.wire.models import Document, wire

if TYPE_CHECKING:
    from typing_extensions import Self

    from batchhvd.resources.session import Session


@define(eq=False, repr=False, slots=False)
class ResourceGroup(Resource):
    """A resource group: everything in it is deleted together.

    Attributes:
        location: its region, such as ``"eastus"``.
        tags: its tags.
    """

    location: str = field(init=False)
    tags: Mapping[str, str] = field(init=False)
    kind: ClassVar[str] = "group"
    _plural: ClassVar[str] = "resource groups"
    _segment: ClassVar[str] = "/resourceGroups"
    _operations: ClassVar[Operations] = Operations("resources", "resource_groups", "list")
    _kinds: ClassVar[tuple[type[Resource], ...]] = (Workspace, StorageAccount)

    @property
    def session(self) -> Session:
        """The session that it is reached by."""
        return cast("Session", self._parent)

    def create_workspace(
        self, name: str, *, location: str | None = None, tags: Mapping[str, str] | None = None, timeout: float = 600.0
    ) -> Workspace:
        """Creates a workspace, or returns the existing one.

        Args:
            name: its name.
            location: its region; None for the group's.
            tags: its tags.
            timeout: seconds to wait for it.
        """
        return Workspace(self, name)._create(location or self._place(), tags or {}, timeout)

    def workspace(self, name: str) -> Workspace:
        """Returns a handle to a workspace without sending a request."""
        return Workspace(self, name)

    def workspaces(self) -> Listing[Workspace]:
        """Lists the group's workspaces."""
        return children(Workspace, self)

    def create_storage_account(
        self,
        name: str,
        *,
        location: str | None = None,
        sku: str = "Standard_LRS",
        kind: str = "StorageV2",
        timeout: float = 600.0,
    ) -> StorageAccount:
        """Creates a storage account, or returns the existing one.

        Args:
            name: its name, 3 to 24 lower-case letters and digits, unique in the service.
            location: its region; None for the group's.
            sku: its redundancy, in Azure's words.
            kind: ``"StorageV2"``, or ``"FileStorage"`` for premium file shares, with a SKU such as ``"Premium_LRS"``.
            timeout: seconds to wait for it.
        """
        return StorageAccount(self, name)._create(location or self._place(), sku, kind, timeout)

    def storage_account(self, name: str) -> StorageAccount:
        """Returns a handle to a storage account without sending a request."""
        return StorageAccount(self, name)

    def storage_accounts(self) -> Listing[StorageAccount]:
        """Lists the group's storage accounts."""
        return children(StorageAccount, self)

    def _place(self) -> str:
        return self.location

    def _create(self, location: str, tags: Mapping[str, str]) -> Self:
        body = {"location": location, "tags": dict(tags)}
        with self._asking("created"):
            return self._load(wire(self._connection.resources.resource_groups.create_or_update(self.name, body)))

    def _load(self, document: Document) -> Self:
        self.location = str(document.get("location") or "")
        self.tags = dict(document.get("tags") or {})
        return super()._load(document)

    def _facts(self) -> dict[str, object]:
        return {"location": self.location, **super()._facts()}
