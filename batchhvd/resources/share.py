"""File shares: directories and files that people and jobs both reach."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast
from urllib.parse import urlsplit

from attrs import define, evolve, field

from batchhvd.errors import ConflictError, NotFoundError
from batchhvd.resources.base import Parent, Resource
from batchhvd.resources.values.file_entry import FileEntry
from batchhvd.resources.values.listing import Listing, files
from batchhvd.spec.mounts import Mount
from batchhvd.transfer import copy as transfer
from batchhvd.transfer.copy import Transfer
from batchhvd.transfer.meter import TransferProgress
from batchhvd.transfer.selection import fixed_folder, inside, is_pattern, matches, names_a_file, target_here, targets
from batchhvd.transfer.sources import Sources, select
from batchhvd.wire.models import Document

if TYPE_CHECKING:
    from azure.storage.fileshare import ShareClient
    from typing_extensions import Self

    from batchhvd.resources.group import ResourceGroup
    from batchhvd.resources.storage_account import StorageAccount


@define(eq=False, repr=False, slots=False)
class FileShare(Resource):
    """A file share: directories and files that people and jobs both reach.

    Attributes:
        quota: the size limit in GiB.
        modified: when the share itself was last changed, or None.
    """

    quota: int = field(init=False)
    modified: datetime | None = field(init=False)
    kind: ClassVar[str] = "share"
    _plural: ClassVar[str] = "file shares"
    _segment: ClassVar[str] = "/fileServices/default/shares"

    @property
    def account(self) -> StorageAccount:
        """The storage account that it belongs to."""
        return cast("StorageAccount", self._parent)

    @property
    def group(self) -> ResourceGroup:
        """The resource group that it belongs to."""
        return self.account.group

    def create_directory(self, path: str) -> None:
        """Creates a directory and those above it; does nothing if it exists.

        Args:
            path: from the share's root, such as ``"cifar/logs"``.
        """
        parts = inside(path).split("/") if inside(path) else []
        for end in range(1, len(parts) + 1):
            self._create_one("/".join(parts[:end]))

    def delete_directory(self, path: str) -> None:
        """Deletes a directory and everything in it; does nothing if it is gone already.

        Raises:
            NotFoundError: the share does not exist.
        """
        path = path.strip("/")
        with suppress(NotFoundError):
            for entry in list(self.files(path)):
                (self.delete_directory if entry.is_directory else self.delete_file)(entry.path)
        with self._clearing(path):
            self._client().get_directory_client(path).delete_directory()

    def directory_exists(self, path: str) -> bool:
        """Says whether the share has a directory at a path.

        Raises:
            NotFoundError: the share does not exist.
        """
        with self._asking(f"searched for {path!r}"):
            return self._client().get_directory_client(path.strip("/")).exists()

    def files(self, directory: str = "", *, recursive: bool = False) -> Listing[FileEntry]:
        """Lists a directory's files and directories by name; nothing is sent before it is read.

        Args:
            directory: from the share's root; "" for the root.
            recursive: also the content of the directories below.

        Raises:
            NotFoundError: the directory does not exist.
        """
        return files(lambda: self._files(directory, recursive))

    def _files(self, directory: str, recursive: bool) -> Iterator[FileEntry]:
        with self._asking(f"listed at {directory!r}"):
            options = ["timestamps", "Etag"]
            found = list(self._client().list_directories_and_files(directory or None, include=options))
        for item in sorted(found, key=lambda entry: str(entry.name)):
            path = f"{directory.strip('/')}/{item.name}".lstrip("/")
            if item.is_directory:
                yield FileEntry(path, 0, item.last_modified, is_directory=True)
                yield from self._files(path, True) if recursive else ()
            else:
                size = getattr(item, "size", 0)  # the packages' annotation knows of directories only
                yield FileEntry(path, size, item.last_modified, open=partial(self._read_file, path))

    def mount(self, path: str = "") -> Mount:
        """Returns the share as a job sees it, without sending a request.

        Args:
            path: the directory below ``$AZ_BATCHAI_JOB_MOUNT_ROOT`` where it is mounted; "" for the share's name.
        """
        made = Mount(self.account.name, self.name, path or self.name)
        # A local service's address changes with each start; Azure's own form, the default, stays, and the service knows
        # it. National clouds have another.
        endpoint = self.account._document and self.account.endpoint
        national = endpoint and ".file." in (urlsplit(endpoint).hostname or "")
        return evolve(made, url=f"{endpoint}/{self.name}") if national else made

    def upload(
        self,
        source: str | os.PathLike[str],
        to: str = "",
        *,
        parallel: int = 8,
        progress: TransferProgress | None = None,
    ) -> Transfer:
        """Copies a file, a folder or all files that match a pattern to the share; unchanged files are skipped.

        An interrupted upload continues from where it stopped when it is repeated. Files found by a pattern keep their
        folders from its first wildcard on. A link to a file counts as the file; a link to a folder or to nothing, a
        pipe, a socket or a device is left out and named in a warning before anything is sent.

        Args:
            source: a local file, folder, or pattern such as ``"data/**/*.npz"``.
            to: the directory in the share, created if missing; for one file also its new path, with the same suffix (or
                any, if the file has none) and if no directory has this name.
            parallel: how many files are copied at once.
            progress: is called with the bytes done and the total.

        Raises:
            SpecError: the local file does not exist or cannot be read, or two files would have one path in the share.
            NotFoundError: the share does not exist.
        """
        found = select(source)
        files, folders = self._placed(found, to)
        found.warn()
        return self._send(files, folders, parallel, progress)

    def download(
        self,
        path: str,
        to: str | os.PathLike[str] = ".",
        *,
        parallel: int = 8,
        progress: TransferProgress | None = None,
    ) -> Transfer:
        """Copies a file, a directory or all files that match a pattern from the share; unchanged files are skipped.

        A file appears under its name only when it is complete and checked. Links that a job made are as in ``upload``:
        those to files count as files, those to directories are not listed.

        Args:
            path: a file, a directory, or a pattern such as ``"cifar/**/*.h5"``, from the share's root.
            to: the local folder; for one file also its new path, if no folder has this name.
            parallel: how many files are copied at once.
            progress: is called with the bytes done and the total.

        Raises:
            NotFoundError: the share has no such file; nothing is written here.
            SpecError: a local file or folder cannot be written.
        """
        path = inside(path)
        with self._asking(f"asked for {path!r}"):
            files, folders = self._targets(path, to)
            return transfer.download(self._client(), files, folders=folders, parallel=parallel, progress=progress)

    def file_exists(self, path: str) -> bool:
        """Says whether the share has a file at a path.

        Raises:
            NotFoundError: the share does not exist.
        """
        with self._asking(f"searched for {path!r}"):
            return self._client().get_file_client(path.strip("/")).exists()

    def delete_file(self, path: str) -> None:
        """Deletes a file; does nothing if it is gone already.

        Raises:
            NotFoundError: the share does not exist.
        """
        with self._clearing(path):
            self._client().get_file_client(path.strip("/")).delete_file()

    @contextmanager
    def _clearing(self, path: str) -> Iterator[None]:
        """Translates the errors of a deletion; that something is gone already is not an error."""
        try:
            with self._asking(f"cleared of {path!r}"):
                yield
        except NotFoundError as error:
            if error.code == "ShareNotFound":
                raise

    def _read_file(self, path: str) -> Iterator[bytes]:
        with self._asking(f"asked for {path!r}"):
            yield from self._client().get_file_client(path).download_file().chunks()

    def _put(self, path: str, content: bytes) -> None:
        """Writes a small file, so that the old or the new content is there whole at any moment."""
        with self._asking(f"given {path!r}"):
            new = self._client().get_file_client(f"{path}.{os.urandom(8).hex()}.new")  # two programs may do so at once
            new.upload_file(content)
            new.rename_file(path, overwrite=True)

    def _send(
        self,
        files: list[tuple[Path, str]],
        folders: Sequence[str] = (),
        parallel: int = 8,
        progress: TransferProgress | None = None,
    ) -> Transfer:
        """Uploads files to their paths in the share."""
        with self._asking("given files"):
            return transfer.upload(
                self._client(),
                files,
                make_folder=self.create_directory,
                folders=folders,
                parallel=parallel,
                progress=progress,
            )

    def _placed(self, found: Sources, to: str) -> tuple[list[tuple[Path, str]], list[str]]:
        """Returns what is uploaded with its paths in the share: files, and folders without files."""
        place = inside(to)
        if len(found.files) == 1 and not found.folders:
            [(name, path)] = found.files.items()
            new = "/" not in name and names_a_file(to, name) and not self.directory_exists(place)
            if new:
                return [(path, place)], []
        files = targets(found.files, place, case_matters=self._connection.loopback)
        return files, [inside(f"{place}/{folder}") for folder in found.folders]

    def _targets(self, path: str, to: str | os.PathLike[str]) -> tuple[list[tuple[str, Path]], list[Path]]:
        """Returns what is downloaded with its paths here: files, and directories, which may be empty."""
        if path and self._client().get_file_client(path).exists():
            name = path.rpartition("/")[2]
            folder = Path(to).is_dir() or os.fspath(to).endswith("/")
            return [(path, target_here(to, name) if folder else Path(to))], []
        entries, above = self._selected(path)
        if all(entry.is_directory for entry in entries):
            what, above = f"share {self.name!r} has no file at {path!r}", path.rpartition("/")[0]
            command = shlex.join(["batchhvd", "share", "files", self.name, *([above] if above else [])])
            raise NotFoundError(f"{what}. List it with share.files({above!r})", target=path).told(
                f"{what}. List it with `{command}`"
            )
        here = [(entry, target_here(to, entry.path[len(above) :].lstrip("/"))) for entry in entries]
        files = [(entry.path, target) for entry, target in here if not entry.is_directory]
        return files, [target for entry, target in here if entry.is_directory]

    def _selected(self, path: str) -> tuple[list[FileEntry], str]:
        """Returns what a directory's path or a pattern selects, and the part of those paths to leave out."""
        if not path or self._client().get_directory_client(path).exists():
            return list(self.files(path, recursive=True)), path.rpartition("/")[0]
        if not is_pattern(path):
            return [], ""
        above = fixed_folder(path)
        found = self.files(above, recursive=True)
        return [entry for entry in found if not entry.is_directory and matches(entry.path, path)], above

    def _client(self) -> ShareClient:
        account = self.account
        return self._connection.share(f"{account._file_endpoint()}/{self.name}", account.name, account.read_key())

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
        return {"account": self.account.name}

    @classmethod
    def _pages(cls, parent: Parent) -> Iterable[object]:
        return cast("StorageAccount", parent)._list_shares()

    def _read(self) -> Document:
        found = self._client().get_share_properties()
        return {"name": self.name, "properties": {"lastModified": found.last_modified, "quota": found.quota}}

    def _remove(self) -> None:
        self._client().delete_share()
