"""Where the file service keeps its data: the shares' directories, and beside them its own ``.files`` folder.

    <root>/<account>/<share>/     a share: exactly what its users and jobs put there
    <root>/.files/sidecar.sqlite  metadata, content headers, quotas
    <root>/.files/staging/        files being made: they enter the share by a rename, complete or not at all
    <root>/.files/trash/          deleted shares, until their files are removed

No account can be called ``.files``. Staging must lie on the file system of the shares.
"""

from __future__ import annotations

import os
import shutil
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from attrs import frozen

from batchhvd.service.files.disk.sidecar import Facts, Sidecar
from batchhvd.service.files.disk.tree import Spot
from batchhvd.service.files.protocol.refusal import refusal
from batchhvd.service.files.protocol.request import Target


@frozen
class Staged:
    """A file being created outside the share.

    Attributes:
        fd: the open file.
        path: its path.
    """

    fd: int
    path: Path

    def enter(self, place: Spot) -> os.stat_result:
        """Puts the file in its place, over what was there, and returns what the system knows of it."""
        os.rename(self.path, place.name, dst_dir_fd=place.fd)
        return os.fstat(self.fd)


class Disk:
    """The directories of all accounts and what is noted beside them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._own = root / ".files"
        self._own.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.rmtree(self._own / "staging", ignore_errors=True)  # left by a service that was killed, as is the trash
        for name in ("staging", "trash"):
            (self._own / name).mkdir(exist_ok=True)
        self._remove(list((self._own / "trash").iterdir()))
        self.sidecar = Sidecar(self._own / "sidecar.sqlite")

    def account(self, target: Target) -> Path:
        """Returns the directory of an account's shares, which may not exist."""
        return self._root / target.account

    def share(self, target: Target) -> Path:
        """Returns a share's directory, which may not exist."""
        return self._root / target.account / target.share

    def facts(self, target: Target, path: str, about: os.stat_result) -> Facts:
        """Returns what is noted of an entry, by its path with links resolved."""
        return self.sidecar.get(_key(target), path, about.st_ino)

    def note(self, target: Target, path: str, about: os.stat_result, facts: Facts) -> None:
        """Notes facts of an entry in place of those noted before."""
        self.sidecar.put(_key(target), path, about.st_ino, facts)

    def forget(self, target: Target, path: str) -> None:
        """Drops what is noted of an entry."""
        self.sidecar.forget(_key(target), path)

    def move(self, target: Target, old: str, new: str) -> None:
        """Moves what is noted of an entry, and of all below it, to another path."""
        self.sidecar.move(_key(target), old, new)

    @contextmanager
    def stage(self) -> Iterator[Staged]:
        """Creates a file to be filled and then moved into a share; if it was not moved, it is deleted at the end."""
        path = self._own / "staging" / uuid.uuid4().hex
        # Executable, as on a mount whose fileMode is the description's default, 0777.
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o777)
        try:
            yield Staged(fd, path)
        finally:
            os.close(fd)
            with suppress(FileNotFoundError):
                path.unlink()

    def remove_share(self, target: Target) -> None:
        """Deletes a share: other requests stop seeing it at once, its files are removed after that."""
        doomed = self._own / "trash" / uuid.uuid4().hex
        try:
            os.rename(self.share(target), doomed)
        except FileNotFoundError:
            raise refusal("ShareNotFound") from None
        self.sidecar.forget_share(_key(target))
        self._remove([doomed])

    @staticmethod
    def _remove(folders: Sequence[Path]) -> None:
        """Removes directories in the background; what is left when the service ends is removed by the next one."""

        def work() -> None:
            for folder in folders:
                shutil.rmtree(folder, ignore_errors=True)

        threading.Thread(target=work, name="deleted shares", daemon=True).start()

    def check_room(self, target: Target, more: int) -> None:
        """Refuses a request that would let a share grow beyond the limit that a fire drill has set.

        Raises:
            ServiceError: 413, the share's files would have more bytes in all than the limit.
        """
        if more <= 0:
            return
        share = self.share(target)
        limit = self.facts(target, "", share.stat()).get("limit")
        if limit is not None and _length(share) + more > limit:
            raise refusal("ShareSizeLimitReached")

    def close(self) -> None:
        """Closes the sidecar."""
        self.sidecar.close()


def _length(folder: Path) -> int:
    """Returns how many bytes the files of a tree have in all; links are not followed."""
    size = 0
    for _, _, names, fd in os.fwalk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # a job has deleted it meanwhile
                size += os.stat(name, dir_fd=fd, follow_symlinks=False).st_size
    return size


def _key(target: Target) -> str:
    return f"{target.account}/{target.share}"
