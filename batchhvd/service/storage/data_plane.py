"""What the services for files and for blobs have in common: a disk, a gate, worker threads, links."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from batchhvd.service.storage.disk import names
from batchhvd.service.storage.disk.disk import Disk
from batchhvd.service.storage.protocol import sas
from batchhvd.service.storage.protocol.gate import Gate
from batchhvd.service.storage.protocol.request import Target, is_name
from batchhvd.service.storage.whole import policies

T = TypeVar("T")
Keys = Callable[[str], "Sequence[str] | None"]
"""Returns an account's base64 keys, or None for an account that does not exist."""

_WORKERS = 16  # threads that wait for the disk


class DataPlane:
    """A service of all storage accounts on plain directories; a container of blobs counts as a share.

    Args:
        disk: where the shares lie.
        keys: returns an account's keys.
        service: ``file`` or ``blob``.
    """

    def __init__(self, disk: Disk, keys: Keys, service: str) -> None:
        self._disk, self._service = disk, service
        self._gate = Gate(keys, disk.now, lambda target: policies(disk, target))
        for account in disk.kept_accounts():
            if not keys(account):  # it was deleted, and the service killed before this was
                disk.forget_account(account)
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix=f"{service}s")

    def sas(self, account: str, share: str, path: str, permission: str, expiry: float) -> str:
        """Returns the query string of a link to a file, or to a whole share if ``path`` is "".

        Args:
            account: the storage account.
            share: the share's name.
            path: the file's path in the share, decoded.
            permission: letters of ``rcwdl``.
            expiry: seconds since 1970 at which the link ends.

        Raises:
            ServiceError: the account does not exist.
        """
        return self.links(account, share, permission, expiry)(path)

    def links(self, account: str, share: str, permission: str, expiry: float) -> Callable[[str], str]:
        """Returns what does the same as ``sas`` for one path after another, without looking for the key each time."""
        key = self._gate.key(account)

        def link(path: str) -> str:
            target = Target(account, share, tuple(name for name in path.split("/") if name), service=self._service)
            return sas.mint(key, target, permission, expiry)

        return link

    def names(self, folder: Path, last: str, most: int) -> list[str]:
        """Returns names in a directory that come after a last one ("" for the beginning), some at most, in order.

        Raises:
            OSError: it cannot be read.
        """
        return names.after(names.names_in(folder), os.fsencode(last), b"", most)

    def directory(self, account: str, share: str) -> Path | None:
        """Returns the directory of a share, or None if the share does not exist."""
        if not is_name(account, share):
            return None
        path = self._disk.share(Target(account, share))
        return path if path.is_dir() else None

    def forget(self, account: str) -> None:
        """Deletes the snapshots, deleted shares and settings of an account that does not exist any more."""
        self._disk.forget_account(account)

    def close(self) -> None:
        """Ends the worker threads and closes the sidecar."""
        self._workers.shutdown()
        self._disk.close()

    async def _read(self, fd: int, length: int, position: int) -> bytes:
        return await self._in_worker(os.pread, fd, length, position)

    def _in_worker(self, function: Callable[..., T], *arguments: object) -> asyncio.Future[T]:
        """Runs what may wait for the disk in a thread, so that no other request waits for it."""
        return asyncio.get_running_loop().run_in_executor(self._workers, function, *arguments)
