"""Containers of blobs: files that people and jobs both reach, under names with slashes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from attrs import define, field

from batchhvd.errors import NotFoundError
from batchhvd.resources.base import Parent, Resource
from batchhvd.resources.values.file_entry import FileEntry
from batchhvd.resources.values.listing import Listing, files
from batchhvd.spec.mounts import Volume
from batchhvd.transfer.blobs import download_blobs, upload_blobs
from batchhvd.transfer.copy import Transfer
from batchhvd.transfer.meter import TransferProgress
from batchhvd.transfer.selection import fixed_folder, inside, is_pattern, matches, names_a_file, target_here, targets
from batchhvd.transfer.sources import select
from batchhvd.wire.models import Document

if TYPE_CHECKING:
    from azure.storage.blob import ContainerClient
    from typing_extensions import Self

    from batchhvd.resources.group import ResourceGroup
    from batchhvd.resources.storage_account import StorageAccount


@define(eq=False, repr=False, slots=False)
class Container(Resource):
    """A container of blobs.

    Attributes:
        modified: when the container itself was last changed, or None.
    """

    modified: datetime | None = field(init=False)
    kind: ClassVar[str] = "container"
    _plural: ClassVar[str] = "containers"
    _segment: ClassVar[str] = "/blobServices/default/containers"

    @property
    def account(self) -> StorageAccount:
        """The storage account that it belongs to."""
        return cast("StorageAccount", self._parent)

    @property
    def group(self) -> ResourceGroup:
        """The resource group that it belongs to."""
        return self.account.group

    def files(self, prefix: str = "") -> Listing[FileEntry]:
        """Lists the blobs whose names begin so, in the order of their names; nothing is sent before it is read.

        Args:
            prefix: how the names begin; "" for all.

        Raises:
            NotFoundError: the container does not exist.
        """
        return files(lambda: self._files(prefix))

    def _files(self, prefix: str) -> Iterator[FileEntry]:
        with self._asking(f"listed at {prefix!r}"):
            for blob in self._client().list_blobs(name_starts_with=prefix or None):
                yield FileEntry(blob.name, blob.size, blob.last_modified, open=partial(self._read_blob, blob.name))

    def mount(self, path: str = "") -> Volume:
        """Returns the container as a job sees it, without sending a request; it goes into ``JobSpec.volumes``.

        Args:
            path: the directory below ``$AZ_BATCHAI_JOB_MOUNT_ROOT`` where it is mounted; "" for the container's name.
        """
        settings = {"accountName": self.account.name, "containerName": self.name}
        return Volume("azureBlobFileSystems", path or self.name, settings)

    def upload(
        self,
        source: str | os.PathLike[str],
        to: str = "",
        *,
        parallel: int = 8,
        progress: TransferProgress | None = None,
    ) -> Transfer:
        """Copies a file, a folder or all files that match a pattern to the container; unchanged files are skipped.

        Args:
            source: a local file, folder, or pattern such as ``"data/**/*.npz"``.
            to: how the blobs' names begin, a directory; for one file also its new name, with the same suffix.
            parallel: how many files are copied at once.
            progress: is called with the bytes done and the total.

        Raises:
            SpecError: the local file does not exist or cannot be read, or two files would have one name.
            NotFoundError: the container does not exist.
        """
        found, place = select(source), inside(to)
        files = targets(found.files, place)
        if len(found.files) == 1 and not found.folders:
            [(name, path)] = found.files.items()
            files = [(path, place)] if "/" not in name and names_a_file(to, name) else files
        found.warn()
        with self._asking("given files"):
            return upload_blobs(self._client(), files, parallel=parallel, progress=progress)

    def download(
        self,
        path: str,
        to: str | os.PathLike[str] = ".",
        *,
        parallel: int = 8,
        progress: TransferProgress | None = None,
    ) -> Transfer:
        """Copies a blob, all below a directory, or all that match a pattern from the container; unchanged are skipped.

        Args:
            path: a blob's name, a directory, or a pattern such as ``"cifar/**/*.h5"``.
            to: the local folder; for one blob also its new path, if no folder has this name.
            parallel: how many blobs are copied at once.
            progress: is called with the bytes done and the total.

        Raises:
            NotFoundError: the container has no such blob; nothing is written here.
            SpecError: a local file or folder cannot be written.
        """
        path = inside(path)
        with self._asking(f"asked for {path!r}"):
            return download_blobs(self._client(), self._targets(path, to), parallel=parallel, progress=progress)

    def file_exists(self, path: str) -> bool:
        """Says whether the container has a blob of a name."""
        with self._asking(f"searched for {path!r}"):
            return bool(self._client().get_blob_client(path).exists())

    def delete_file(self, path: str) -> None:
        """Deletes a blob; does nothing if it is gone already."""
        with suppress(NotFoundError), self._asking(f"cleared of {path!r}"):
            self._client().delete_blob(path)

    def _targets(self, path: str, to: str | os.PathLike[str]) -> list[tuple[str, Path]]:
        """Returns the blobs that a name, a directory or a pattern selects, with their paths here."""
        if path and self._client().get_blob_client(path).exists():
            folder = Path(to).is_dir() or os.fspath(to).endswith("/")
            return [(path, target_here(to, path.rpartition("/")[2]) if folder else Path(to))]
        above = fixed_folder(path) if is_pattern(path) else path
        entries = self.files(f"{above}/" if above else "")
        names = [entry.path for entry in entries if not is_pattern(path) or matches(entry.path, path)]
        if not names:
            what = f"container {self.name!r} has no blob at {path!r}"
            raise NotFoundError(f"{what}. List it with container.files()", target=path)
        start = above if is_pattern(path) else path.rpartition("/")[0]
        return [(name, target_here(to, name[len(start) :].lstrip("/"))) for name in names]

    def _read_blob(self, path: str) -> Iterator[bytes]:
        with self._asking(f"asked for {path!r}"):
            yield from self._client().get_blob_client(path).download_blob().chunks()

    def _client(self) -> ContainerClient:
        return self.account._blob_service().get_container_client(self.name)

    def _load(self, document: Document) -> Self:
        self.modified = (document.get("properties") or {}).get("lastModified")
        return super()._load(document)

    def _facts(self) -> dict[str, object]:
        return {"account": self.account.name}

    @classmethod
    def _pages(cls, parent: Parent) -> Iterable[object]:
        return cast("StorageAccount", parent)._list_containers()

    def _read(self) -> Document:
        found = self._client().get_container_properties()
        return {"name": self.name, "properties": {"lastModified": found.last_modified}}

    def _remove(self) -> None:
        self._client().delete_container()
