"""File shares as a file system of fsspec: ``batchhvd://SHARE/path`` for pandas, Keras, PyTorch and others.

fsspec finds it by itself (the entry point ``fsspec.specs``). A file that is written appears when it is closed, at its
full size: it is uploaded beside its place, under a name that begins with a dot and ends with ``.part``, and renamed.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from batchhvd.errors import SpecError

if TYPE_CHECKING:
    from azure.storage.fileshare import ShareClient, ShareDirectoryClient, ShareFileClient, ShareServiceClient

RANGE_BYTES = 4 << 20
"""The most bytes of one write request; source: the reference of Put Range."""

_OPTIONS: dict[str, Any] = {"use_env_settings": False}  # a service on this machine needs no proxy
_CODES = {"DirectoryNotEmpty": errno.ENOTEMPTY, "ShareSizeLimitReached": errno.ENOSPC}
_Info = dict[str, Any]


class ShareFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """The shares of one storage account; the first part of a path is the share.

    Args:
        connection_string: leads to the account; None for an account of the service of this machine.
        account: the account's name, if the service of this machine has several.
        root: the folder of that service; None for the default one.
        **options: further options of fsspec.
    """

    protocol = "batchhvd"
    root_marker = ""

    def __init__(
        self,
        connection_string: str | None = None,
        account: str | None = None,
        root: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if connection_string and (account or root):
            raise SpecError("account and root choose an account of this machine", remedy="leave connection_string away")
        self._text, self._account, self._root = connection_string, account, root

    @cached_property
    def _service(self) -> ShareServiceClient:
        from azure.storage.fileshare import ShareServiceClient

        if self._text:
            local: dict[str, Any] = (
                _OPTIONS if re.search(r"//(127\.0\.0\.1|([a-z0-9.]*\.)?localhost)[:/;]", self._text) else {}
            )
            return ShareServiceClient.from_connection_string(self._text, **local)
        endpoint, key = self._local()
        return ShareServiceClient(endpoint, credential=key, **_OPTIONS)

    def _local(self) -> tuple[str, str]:
        """Returns endpoint and key of an account of this machine's service."""
        from batchhvd import local

        accounts = [each for group in local(self._root).groups() for each in group.storage_accounts()]
        found = [each for each in accounts if self._account in (None, each.name)]
        if len(found) != 1:
            names = ", ".join(each.name for each in accounts) or "none"
            raise SpecError(
                f"batchhvd:// needs one storage account; the service of this machine has {names}",
                remedy="name it in the storage options: account=…, or give connection_string=…",
            )
        return found[0].endpoint, found[0].read_key()

    # -- what is there -------------------------------------------------------------------------------------------------

    def info(self, path: str, **options: Any) -> _Info:
        """Returns name, size in bytes (0 for a directory), type, time of the last write and ETag."""
        path = self._strip_protocol(path)
        with _as_os_errors(path):
            if "/" not in path:
                found: Any = self._share(path).get_share_properties() if path else None
                return _described(path, found, is_directory=True)
            try:
                return _described(path, self._file(path).get_file_properties(), is_directory=False)
            except ResourceNotFoundError:
                return _described(path, self._directory(path).get_directory_properties(), is_directory=True)

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        """Returns what a directory, a share or the account holds; a file holds itself."""
        path = self._strip_protocol(path)
        try:
            with _as_os_errors(path):
                found = list(self._listed(path))
        except FileNotFoundError:
            found = [self.info(path)]  # it is a file, or nothing
        return found if detail else [each["name"] for each in found]

    def _listed(self, path: str) -> Iterator[_Info]:
        if not path:
            for share in self._service.list_shares():
                yield _described(str(share.name), share, is_directory=True)
            return
        for each in self._directory(path).list_directories_and_files(include=["timestamps", "Etag"]):
            yield _described(f"{path}/{each.name}", each, is_directory=bool(each.is_directory))

    def modified(self, path: str) -> datetime:
        """Returns the time of the last write."""
        moment: datetime = self.info(path)["mtime"]
        return moment

    def ukey(self, path: str) -> str:
        """Returns what changes when the file changes."""
        return str(self.info(path)["etag"])

    # -- changes -------------------------------------------------------------------------------------------------------

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        """Creates a directory, or a share."""
        path = self._strip_protocol(path)
        if create_parents and "/" in path:
            self.makedirs(self._parent(path), exist_ok=True)
        with _as_os_errors(path):
            self._share(path).create_share() if "/" not in path else self._directory(path).create_directory()

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Creates a directory and those above it, the share too."""
        path = self._strip_protocol(path)
        if not path or self.isdir(path):
            if path and not exist_ok:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            return
        try:
            self.mkdir(path)
        except FileExistsError:  # made by somebody else meanwhile
            if not exist_ok:
                raise

    def rmdir(self, path: str) -> None:
        """Deletes an empty directory or share."""
        path = self._strip_protocol(path)
        with _as_os_errors(path):
            if "/" in path:
                self._directory(path).delete_directory()
                return
            if next(iter(self._listed(path)), None):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
            self._share(path).delete_share()

    def _rm(self, path: str) -> None:
        path = self._strip_protocol(path)
        if self.isdir(path):
            self.rmdir(path)
            return
        with _as_os_errors(path):
            self._file(path).delete_file()

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        """Copies a file within the account; the service does it."""
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
            return
        with _as_os_errors(path1):
            self._file(path2).start_copy_from_url(self._file(path1).url)

    # -- bytes ---------------------------------------------------------------------------------------------------------

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        """Returns a file's bytes, from ``start`` to before ``end`` as in a slice."""
        path = self._strip_protocol(path)
        with _as_os_errors(path):
            if start is None and end is None:
                return self._file(path).download_file().readall()
            size = self.info(path)["size"]
            first, last, _ = slice(start, end).indices(size)
            return self._file(path).download_file(offset=first, length=last - first).readall() if last > first else b""

    def _open(self, path: str, mode: str = "rb", **options: Any) -> ShareFile:
        return ShareFile(self, path, mode, **options)

    # -- clients -------------------------------------------------------------------------------------------------------

    def _share(self, path: str) -> ShareClient:
        return self._service.get_share_client(path)

    def _directory(self, path: str) -> ShareDirectoryClient:
        share, _, rest = path.partition("/")
        return self._share(share).get_directory_client(rest)

    def _file(self, path: str) -> ShareFileClient:
        share, _, rest = path.partition("/")
        if not rest:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return self._share(share).get_file_client(rest)


class ShareFile(AbstractBufferedFile):  # type: ignore[misc]  # fsspec has no types
    """An open file of a share."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        with _as_os_errors(self.path):
            return bytes(self.fs._file(self.path).download_file(offset=start, length=end - start).readall())

    def _initiate_upload(self) -> None:
        self.fs._file(self.path)  # a share is not a file
        directory, _, name = self.path.rpartition("/")
        self._written = 0
        self._beside = self.fs._file(f"{directory}/.{name[:200]}.{os.urandom(4).hex()}.part")
        with _as_os_errors(self.path):
            self._beside.create_file(0)
            if self.mode == "ab":
                self._keep(self.fs.cat_file(self.path) if self.fs.exists(self.path) else b"")

    def _upload_chunk(self, final: bool = False) -> bool:
        with _as_os_errors(self.path):
            self._keep(self.buffer.getvalue())
        if final and self.autocommit:
            self.commit()
        return True

    def _keep(self, data: bytes) -> None:
        if data:
            self._beside.resize_file(self._written + len(data))
        for start in range(0, len(data), RANGE_BYTES):
            piece = data[start : start + RANGE_BYTES]
            self._beside.upload_range(piece, offset=self._written, length=len(piece))
            self._written += len(piece)

    def commit(self) -> None:
        """Puts what was written in its place."""
        with _as_os_errors(self.path):
            self._beside.rename_file(self.path.partition("/")[2], overwrite=True)

    def discard(self) -> None:
        """Forgets what was written."""
        with _as_os_errors(self.path):
            self._beside.delete_file()


def _described(path: str, found: Any, *, is_directory: bool) -> _Info:
    """Returns what fsspec calls an info, from the properties of a share, a directory or a file."""
    return {
        "name": path,
        "size": 0 if is_directory else found.size,
        "type": "directory" if is_directory else "file",
        "mtime": getattr(found, "last_modified", None),
        "etag": getattr(found, "etag", None),
    }


@contextmanager
def _as_os_errors(path: str) -> Iterator[None]:
    """Turns what the storage client raises into what Python's own files raise."""
    try:
        yield
    except ResourceNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error
    except HttpResponseError as error:
        said = str(getattr(error.error_code, "value", error.error_code)) if hasattr(error, "error_code") else ""
        exists = errno.EEXIST if isinstance(error, ResourceExistsError) else errno.EIO
        number = errno.EACCES if error.status_code in (401, 403) else _CODES.get(said, exists)
        raise OSError(number, f"{os.strerror(number)} ({said or error.status_code})", path) from error
