"""Storage accounts and the file shares in them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from attrs import define, evolve, field, frozen

from batchhvd.errors import ConflictError, NotFoundError
from batchhvd.resources.base import Document, Listing, Resource, wire
from batchhvd.spec.mounts import Mount
from batchhvd.transfer import copy as transfer
from batchhvd.transfer.copy import Transfer, TransferProgress
from batchhvd.transfer.selection import fixed_folder, is_pattern, local_files, matches, target_here, target_in_share
from batchhvd.wire.connection import AGAIN

if TYPE_CHECKING:
    from azure.storage.fileshare import ShareClient
    from typing_extensions import Self


@define(eq=False, repr=False, slots=False)
class StorageAccount(Resource):
    """A storage account: file shares, and the keys that open them.

    Attributes:
        location: its region; "" before the first answer.
        endpoint: URL of its file service; "" before the first answer.
        key: one of its keys, base64; "" before ``read_key``; never shown.
    """

    location: str = field(default="", init=False)
    endpoint: str = field(default="", init=False)
    key: str = field(default="", init=False, repr=False)
    kind: ClassVar[str] = "storage account"
    _segment: ClassVar[str] = "/providers/Microsoft.Storage/storageAccounts"

    def create_share(self, name: str) -> FileShare:
        """Creates a file share, or returns the one that is there.

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
        """Returns a handle on a file share; asks nobody."""
        return FileShare(self, name)

    def shares(self) -> Listing[FileShare]:
        """Lists the account's file shares."""
        return Listing(
            self._list_shares,
            lambda document: FileShare(self, document["name"])._load(document),
            lambda: self._asking("searched for file shares"),
        )

    def read_key(self) -> str:
        """Reads one of the account's keys from the service, once for this handle, and returns it.

        Raises:
            NotFoundError: there is no such account.
        """
        if not self.key:
            with self._asking("asked for its keys"):
                answer = self.connection.storage.storage_accounts.list_keys(*self._path, **AGAIN)
            keys = wire(answer).get("keys") or []
            self.key = str(keys[0].get("value") or "") if keys else ""
        return self.key

    def _file_endpoint(self) -> str:
        return self.endpoint or self.refresh().endpoint

    def _list_shares(self) -> Iterator[dict[str, Any]]:

        client = self.connection.share_service(self._file_endpoint(), self.name, self.read_key())
        for found in client.list_shares():
            yield {"name": found.name, "properties": {"lastModified": found.last_modified, "quota": found.quota}}

    def _create(self, location: str, sku: str, timeout: float) -> Self:
        body: Any = {"location": location, "sku": {"name": sku}, "kind": "StorageV2"}
        return self._created(lambda: self.connection.storage.storage_accounts.begin_create(*self._path, body), timeout)

    def _load(self, document: Document) -> Self:
        properties = document.get("properties") or {}
        self.location = str(document.get("location") or "")
        self.endpoint = str((properties.get("primaryEndpoints") or {}).get("file") or "").rstrip("/")
        return super()._load(document)

    def _facts(self) -> dict[str, object]:
        return {"location": self.location, **super()._facts()}

    def _children(self) -> Iterator[Resource]:
        yield from self.shares()

    def _read(self) -> Document:
        return wire(self.connection.storage.storage_accounts.get_properties(*self._path))

    def _remove(self) -> None:
        self.connection.storage.storage_accounts.delete(*self._path)


def find_account(group: Resource, name: str) -> StorageAccount:
    """Returns the storage account of a name: in the group, else wherever the subscription has it.

    Raises:
        NotFoundError: the subscription has none of this name.
    """
    account = StorageAccount(group, name)
    if account.exists():
        return account
    with group._asking("searched for storage accounts"):
        for model in group.connection.storage.storage_accounts.list():
            found = wire(model)
            if str(found.get("name")).lower() == name.lower():
                place = type(group)(group.connection, str(found["id"]).split("/")[4])
                return StorageAccount(place, name)._load(found)
    raise NotFoundError(
        f"there is no storage account {name!r} in this subscription, and the job mounts it. Create it with "
        "group.create_storage(), or correct the name",
        status=404,
        code="ResourceNotFound",
        target=account.id,
    )


@frozen
class Entry:
    """A file or a folder of a share.

    Attributes:
        path: its path from the share's root.
        folder: whether it is a folder.
        size: bytes; 0 for a folder.
        modified: when it was last written, or None where the service did not say.
    """

    path: str
    folder: bool
    size: int = 0
    modified: datetime | None = None

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


@define(eq=False, repr=False, slots=False)
class FileShare(Resource):
    """A file share: folders and files that people and jobs both reach.

    Attributes:
        quota: the size limit in GiB; 0 before the first answer.
        modified: when the share itself was last changed, or None.
    """

    quota: int = field(default=0, init=False)
    modified: datetime | None = field(default=None, init=False)
    kind: ClassVar[str] = "share"
    _segment: ClassVar[str] = "/fileServices/default/shares"

    def create_directory(self, path: str) -> None:
        """Creates a directory and those above it; one that is there already is fine.

        Args:
            path: from the share's root, such as ``"cifar/logs"``.
        """
        parts = [part for part in path.split("/") if part not in ("", ".")]
        for end in range(1, len(parts) + 1):
            self._create_one("/".join(parts[:end]))

    def list(self, folder: str = "", *, recursive: bool = False) -> Iterator[Entry]:
        """Lists a folder's files and folders by name.

        Args:
            folder: from the share's root; "" for the root.
            recursive: also what is in the folders below.

        Raises:
            NotFoundError: there is no such folder.
        """
        with self._asking(f"listed at {folder!r}"):
            found = list(self._client().list_directories_and_files(folder or None, include=["timestamps", "Etag"]))
        for item in sorted(found, key=lambda item: str(item.name)):
            path = f"{folder.strip('/')}/{item.name}".lstrip("/")
            yield Entry(path, bool(item.is_directory), getattr(item, "size", 0) or 0, item.last_modified)
            if recursive and item.is_directory:
                yield from self.list(path, recursive=True)

    def mount(self, path: str = "") -> Mount:
        """Returns the share as a job sees it; asks nobody.

        Args:
            path: the directory below ``$AZ_BATCHAI_JOB_MOUNT_ROOT`` where it is mounted; "" for the share's name.
        """
        made = Mount(self.parent.name, self.name, path or self.name)
        # A local service's address changes with each start; Azure's own form, the default, stays, and the service knows
        # it. National clouds have another.
        national = ".file." in (urlsplit(self.parent.endpoint).hostname or "")
        return evolve(made, url=f"{self.parent.endpoint}/{self.name}") if national else made

    def upload(
        self,
        source: str | os.PathLike[str],
        to: str = "",
        *,
        parallel: int = 8,
        progress: TransferProgress | None = None,
    ) -> Transfer:
        """Copies a file, a folder or all that fits a pattern to the share; what is there unchanged stays as it is.

        An upload that was cut goes on where it stopped when it is repeated.

        Args:
            source: a local file, folder, or pattern such as ``"data/**/*.npz"``.
            to: the folder in the share, made where it is missing; for one file also its new path, with the same ending.
            parallel: how many files at once.
            progress: takes bytes done and bytes in all.

        Raises:
            SpecError: there is no such local file.
            NotFoundError: there is no such share.
        """
        files = target_in_share(local_files(source), to)
        with self._asking(f"given {os.fspath(source)!r}"):
            make = self.create_directory
            return transfer.upload(self._client(), files, make_folder=make, parallel=parallel, progress=progress)

    def download(
        self,
        path: str,
        to: str | os.PathLike[str] = ".",
        *,
        parallel: int = 8,
        progress: TransferProgress | None = None,
    ) -> Transfer:
        """Copies a file, a folder or all that fits a pattern from the share; what is here unchanged stays as it is.

        A file appears under its name when it is whole and checked, not before.

        Args:
            path: a file, a folder, or a pattern such as ``"cifar/**/*.h5"``, from the share's root.
            to: the local folder; for one file also its new path, where there is no folder of this name.
            parallel: how many files at once.
            progress: takes bytes done and bytes in all.

        Raises:
            NotFoundError: the share has nothing of this name; nothing is left here.
        """
        path = path.strip("/")
        with self._asking(f"asked for {path!r}"):
            targets = self._targets(path, to)
            return transfer.download(self._client(), targets, parallel=parallel, progress=progress)

    def has(self, path: str) -> bool:
        """Says whether the share has a file or folder at a path.

        Raises:
            NotFoundError: there is no such share.
        """
        path = path.strip("/")
        with self._asking(f"searched for {path!r}"):
            client = self._client()
            return client.get_file_client(path).exists() or client.get_directory_client(path).exists()

    def delete_file(self, path: str) -> None:
        """Deletes a file; one that is gone already is fine."""
        try:
            with self._asking(f"cleared of {path!r}"):
                self._client().get_file_client(path.strip("/")).delete_file()
        except NotFoundError as error:
            if error.code == "ShareNotFound":
                raise

    def _targets(self, path: str, to: str | os.PathLike[str]) -> Sequence[tuple[str, Path]]:
        if path and self._client().get_file_client(path).exists():
            name = path.rpartition("/")[2]
            return [(path, target_here(to, name) if Path(to).is_dir() or os.fspath(to).endswith("/") else Path(to))]
        if not path or self._client().get_directory_client(path).exists():
            above = path.rpartition("/")[0]
            names = [entry.path for entry in self.list(path, recursive=True) if not entry.folder]
        elif is_pattern(path):
            above = fixed_folder(path)
            found = self.list(above, recursive=True)
            names = [entry.path for entry in found if not entry.folder and matches(entry.path, path)]
        else:
            names, above = [], ""
        if not names:
            raise NotFoundError(
                f"share {self.name!r} has no file at {path!r}. Look with share.list({path.rpartition('/')[0]!r})",
                status=404,
                code="ResourceNotFound",
                target=path,
            )
        return [(name, target_here(to, name[len(above) :].lstrip("/"))) for name in names]

    def _client(self) -> ShareClient:
        account: StorageAccount = self.parent
        return self.connection.share(f"{account._file_endpoint()}/{self.name}", account.name, account.read_key())

    def _create_one(self, path: str) -> None:
        try:
            with self._asking(f"given the directory {path!r}"):
                self._client().create_directory(path)
        except ConflictError as error:
            if error.code != "ResourceAlreadyExists" or not self._client().get_directory_client(path).exists():
                raise

    def _load(self, document: Document) -> Self:
        properties = document.get("properties") or {}
        self.quota = int(properties.get("quota") or 0)
        self.modified = properties.get("lastModified")
        return super()._load(document)

    def _facts(self) -> dict[str, object]:
        return {"account": self.parent.name}

    def _read(self) -> Document:
        found = self._client().get_share_properties()
        return {"name": self.name, "properties": {"lastModified": found.last_modified, "quota": found.quota}}

    def _remove(self) -> None:
        self._client().delete_share()
