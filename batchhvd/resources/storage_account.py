"""Storage accounts and the keys that open their shares and containers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, cast

from attrs import define, field

from batchhvd.errors import ConflictError, NotFoundError
from batchhvd.resources.base import Operations, Resource, children
from batchhvd.resources.container import Container
from batchhvd.resources.share import FileShare
from batchhvd.resources.values.listing import Listing
from batchhvd.wire.connection import AGAIN
from batchhvd.wire.models import Document, wire

if TYPE_CHECKING:
    from azure.storage.blob import BlobServiceClient
    from typing_extensions import Self

    from batchhvd.resources.group import ResourceGroup


@define(eq=False, repr=False, slots=False)
class StorageAccount(Resource):
    """A storage account: file shares, containers of blobs, and the keys that open them.

    Attributes:
        location: its region.
        endpoint: URL of its file service.
        blob_endpoint: URL of its blob service; "" if there is none.
        key: one of its keys, base64; "" before ``read_key``; never shown.
    """

    location: str = field(init=False)
    endpoint: str = field(init=False)
    blob_endpoint: str = field(init=False)
    key: str = field(default="", init=False, repr=False)
    kind: ClassVar[str] = "storage account"
    _plural: ClassVar[str] = "storage accounts"
    _segment: ClassVar[str] = "/providers/Microsoft.Storage/storageAccounts"
    _operations: ClassVar[Operations] = Operations(
        "storage", "storage_accounts", "list_by_resource_group", get="get_properties", delete="delete"
    )
    _kinds: ClassVar[tuple[type[Resource], ...]] = (FileShare, Container)

    @property
    def group(self) -> ResourceGroup:
        """The resource group that it belongs to."""
        return cast("ResourceGroup", self._parent)

    def create_share(self, name: str) -> FileShare:
        """Creates a file share, or returns the existing one.

        Args:
            name: its name, 3 to 63 lower-case letters, digits and single hyphens.
        """
        share = FileShare(self, name)
        try:
            with share._asking("created"):
                share._client().create_share()
        except ConflictError as error:
            if error.code != "ShareAlreadyExists":
                raise
        return share.refresh()

    def share(self, name: str) -> FileShare:
        """Returns a handle to a file share without sending a request."""
        return FileShare(self, name)

    def shares(self) -> Listing[FileShare]:
        """Lists the account's file shares."""
        return children(FileShare, self)

    def create_container(self, name: str) -> Container:
        """Creates a container of blobs, or returns the existing one.

        Args:
            name: its name, 3 to 63 lower-case letters, digits and single hyphens.
        """
        container = Container(self, name)
        try:
            with container._asking("created"):
                container._client().create_container()
        except ConflictError as error:
            if error.code != "ContainerAlreadyExists":
                raise
        return container.refresh()

    def container(self, name: str) -> Container:
        """Returns a handle to a container of blobs without sending a request."""
        return Container(self, name)

    def containers(self) -> Listing[Container]:
        """Lists the account's containers of blobs."""
        return children(Container, self)

    def read_key(self) -> str:
        """Reads one of the account's keys from the service, once for this handle, and returns it.

        Raises:
            NotFoundError: the account does not exist.
        """
        if not self.key:
            with self._asking("asked for its keys"):
                answer = self._connection.storage.storage_accounts.list_keys(*self._path, **AGAIN)
            keys = wire(answer).get("keys") or []
            self.key = str(keys[0].get("value") or "") if keys else ""
        return self.key

    def _file_endpoint(self) -> str:
        return self.endpoint

    def _list_shares(self) -> Iterator[Document]:
        client = self._connection.share_service(self._file_endpoint(), self.name, self.read_key())
        for found in client.list_shares():
            yield {"name": found.name, "properties": {"lastModified": found.last_modified, "quota": found.quota}}

    def _blob_service(self) -> BlobServiceClient:
        if not self.blob_endpoint:
            raise NotFoundError(f"storage account {self.name!r} has no blob service here", target=self.id)
        return self._connection.blob_service(self.blob_endpoint, self.name, self.read_key())

    def _list_containers(self) -> Iterator[Document]:
        for found in self._blob_service().list_containers() if self.blob_endpoint else ():
            yield {"name": found.name, "properties": {"lastModified": found.last_modified}}

    def _create(self, location: str, sku: str, kind: str, timeout: float) -> Self:
        body = {"location": location, "sku": {"name": sku}, "kind": kind}
        return self._created(lambda: self._connection.storage.storage_accounts.begin_create(*self._path, body), timeout)

    def _load(self, document: Document) -> Self:
        properties = document.get("properties") or {}
        self.location = str(document.get("location") or "")
        self.endpoint = str((properties.get("primaryEndpoints") or {}).get("file") or "").rstrip("/")
        self.blob_endpoint = str((properties.get("primaryEndpoints") or {}).get("blob") or "").rstrip("/")
        return super()._load(document)

    def _facts(self) -> dict[str, object]:
        return {"location": self.location, **super()._facts()}


def find_account(group: ResourceGroup, name: str) -> StorageAccount:
    """Returns the storage account of a name: in the group, otherwise anywhere in the subscription.

    Raises:
        NotFoundError: the subscription has no account of this name.
    """
    account = group.storage_account(name)
    if account.exists():
        return account
    with group._asking("searched for storage accounts"):
        for model in group._connection.storage.storage_accounts.list():
            found = wire(model)
            if str(found.get("name")).lower() == name.lower():
                place = group.session.group(str(found["id"]).split("/")[4])
                return place.storage_account(name)._load(found)
    what = f"this subscription has no storage account {name!r}, which the job mounts"
    raise NotFoundError(
        f"{what}. Create it with group.create_storage_account(), or correct the name", target=account.id
    ).told(f"{what}. Create it with `batchhvd storage create {name}`, or correct the name")
