"""Where the file service keeps its data: the shares' directories, and beside them its own ``.files`` folder.

    <root>/<account>/<share>/                     a share: exactly what its users and jobs put there
    <root>/.files/sidecar.sqlite                  metadata, content headers, quotas, permissions
    <root>/.files/staging/                        files being made: a rename takes them into the share when complete
    <root>/.files/snapshots/<account>/<share>/    its snapshots, each a directory named like its time
    <root>/.files/deleted/<account>/<share>/      shares that can be restored, each a directory named like its version
    <root>/.files/trash/                          deleted shares and snapshots, until their files are removed

No account can be called ``.files``. Staging must lie on the file system of the shares.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from attrs import define

from batchhvd.service.storage.disk.graves import Plot, settle
from batchhvd.service.storage.disk.room import Room, length
from batchhvd.service.storage.disk.sidecar import Facts, Sidecar
from batchhvd.service.storage.disk.tree import Spot
from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.request import TakesLong, Target


@define
class Staged:
    """A file being created outside the share.

    Attributes:
        fd: the open file.
        path: its path.
        entered: whether it has left that place.
    """

    fd: int
    path: Path
    entered: bool = False

    def enter(self, place: Spot) -> os.stat_result:
        """Puts the file in its place, over what was there, and returns what the system knows of it."""
        os.rename(self.path, place.name, dst_dir_fd=place.fd)
        self.entered = True
        return os.fstat(self.fd)


class Disk:
    """The directories of all accounts and what is noted beside them.

    Args:
        root: the directory that holds ``<account>/<share>/``.
        now: the clock, seconds since 1970.
        kept_days: says for how many days an account's deleted shares can be restored; 0 for not at all.
        sku: says which SKU an account has, as far as that is one of file shares.
    """

    def __init__(
        self,
        root: Path,
        now: Callable[[], float] = time.time,
        kept_days: Callable[[str], int] = lambda _: 0,
        sku: Callable[[str], str] = lambda _: "",
    ) -> None:
        self._root = root
        self.now = now
        self.sku = sku
        self.kept_days = kept_days
        self._own = root / ".files"
        self._own.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.rmtree(self._own / "staging", ignore_errors=True)  # left by a service that was killed, as is the trash
        for name in ("staging", "trash"):
            (self._own / name).mkdir(exist_ok=True)
        self._remove(list((self._own / "trash").iterdir()))
        self.sidecar = Sidecar(self._own / "sidecar.sqlite")
        self._room = Room()
        self._quotas: dict[str, int | None] = {}  # by share, so that not every range asks the sidecar
        self._eras: dict[str, str] = {}  # by share, its last snapshot: what is written then is noted for comparisons
        self._noting = threading.RLock()
        self.snapshotting = threading.Lock()
        for account in _names(self._own / "deleted"):
            settle((self.plot(*each) for each in self.plots(account)), self.sidecar, self.discard)
        self._forget_halves()

    def account(self, target: Target) -> Path:
        """Returns the directory of an account's shares, which may not exist."""
        return self._root / target.account

    def share(self, target: Target) -> Path:
        """Returns the directory of a share or of its snapshot, which may not exist."""
        if target.snapshot:
            return self.snapshots(target) / target.snapshot
        return self._root / target.account / target.share

    def snapshots(self, target: Target) -> Path:
        """Returns the directory of a share's snapshots, which may not exist."""
        return self._own / "snapshots" / target.account / target.share

    def deleted(self, target: Target) -> Path:
        """Returns the directory of an account's deleted shares or of those of one name, which may not exist."""
        return self._own / "deleted" / target.account / target.share

    def key(self, target: Target) -> str:
        """Returns the name under which facts of a share, of its snapshot or of an account are noted."""
        return f"{target.account}/{target.share}{target.snapshot and f'@{target.snapshot}'}"

    def facts(self, target: Target, path: str, about: os.stat_result) -> Facts:
        """Returns what is noted of an entry, by its path with links resolved."""
        return self.sidecar.get(self.key(target), path, about.st_ino)

    def note(self, target: Target, path: str, about: os.stat_result, facts: Facts) -> None:
        """Notes facts of an entry in place of those noted before."""
        if not path:
            self._quotas.pop(self.key(target), None)
        self.sidecar.put(self.key(target), path, about.st_ino, facts)

    @contextmanager
    def noting(self, *, hurried: bool = False) -> Iterator[None]:
        """Keeps others from noting anything while facts are read, changed and noted again.

        Raises:
            TakesLong: the request is a hurried one, and another has the turn.
        """
        if not self._noting.acquire(blocking=not hurried):
            raise TakesLong
        try:
            yield
        finally:
            self._noting.release()

    def account_facts(self, target: Target) -> Facts:
        """Returns what is noted of an account."""
        return self.sidecar.get(f"{target.account}/", "", 0)

    def note_account(self, target: Target, facts: Facts) -> None:
        """Notes facts of an account in place of those noted before."""
        self.sidecar.put(f"{target.account}/", "", 0, facts)

    def forget(self, target: Target, path: str) -> None:
        """Drops what is noted of an entry."""
        self.sidecar.forget(self.key(target), path)

    def move(self, target: Target, old: str, new: str) -> None:
        """Moves what is noted of an entry, and of all below it, to another path."""
        self.sidecar.move(self.key(target), old, new)

    def begin_era(self, target: Target, snapshot: str) -> None:
        """Notes that a snapshot is being taken: whatever is written from now on may be missing from it."""
        self._eras[self.key(target)] = snapshot

    def touch(self, target: Target, about: os.stat_result, first: int, last: int) -> None:
        """Notes that a stretch of a file was written or cleared, if the share has a snapshot to compare it with."""
        key = self.key(target)
        if key not in self._eras:
            self._eras[key] = max(_names(self.snapshots(target)), default="")
        if self._eras[key]:
            self.sidecar.touch(key, about.st_ino, self._eras[key], (first, last))

    def forget_eras(self, target: Target) -> None:
        """Drops what was noted of writes that no snapshot can be compared with any more."""
        first = min(_names(self.snapshots(target)), default="")
        self.sidecar.forget_touched(self.key(target), first or "\U0010ffff")
        if not first:
            self._eras.pop(self.key(target), None)

    @contextmanager
    def stage(self) -> Iterator[Staged]:
        """Creates a file to be filled and then moved into a share; if it was not moved, it is deleted at the end."""
        path = self._own / "staging" / uuid.uuid4().hex
        # Executable, as on a mount whose fileMode is the description's default, 0777.
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o777)
        staged = Staged(fd, path)
        try:
            yield staged
        finally:
            os.close(fd)
            if not staged.entered:
                with suppress(FileNotFoundError):
                    path.unlink()

    @contextmanager
    def stage_folder(self) -> Iterator[Path]:
        """Creates a directory to be filled and then moved; if it was not moved, it is deleted at the end."""
        path = self._own / "staging" / uuid.uuid4().hex
        path.mkdir()
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def remove(self, folder: Path, key: str) -> None:
        """Deletes a share or snapshot: other requests stop seeing it at once, its files are removed after that."""
        doomed = self._own / "trash" / uuid.uuid4().hex
        try:
            os.rename(folder, doomed)
        except FileNotFoundError:
            raise refusal("ShareSnapshotNotFound" if "@" in key else "ShareNotFound") from None
        self.sidecar.forget_share(key)
        self._quotas.pop(key, None)
        self._eras.pop(key, None)
        self._remove([doomed])

    @staticmethod
    def _remove(folders: Sequence[Path]) -> None:
        """Removes directories in the background; what is left when the service ends is removed by the next one."""

        def work() -> None:
            for folder in folders:
                shutil.rmtree(folder, ignore_errors=True)

        threading.Thread(target=work, name="deleted shares", daemon=True).start()

    def plot(self, target: Target, version: str) -> Plot:
        """Returns the places of a share, living and deleted."""
        live, grave = Target(target.account, target.share), self.deleted(target) / version
        return Plot(self.share(live), self.snapshots(live), grave, self.key(live), f"{self.key(live)}!{version}")

    def bury(self, target: Target, version: str) -> None:
        """Deletes a share with its snapshots so that it can be restored."""
        self.plot(target, version).bury(self.sidecar)
        self._quotas.clear()
        self._eras.clear()

    def restore(self, target: Target, version: str) -> None:
        """Restores a deleted share with its snapshots."""
        plot = self.plot(target, version)
        plot.restore(self.sidecar)
        self._eras.clear()
        self.discard(plot.grave)

    def plots(self, account: str) -> Iterator[tuple[Target, str]]:
        """Yields the deleted shares of an account with their versions."""
        for name in sorted(_names(self.deleted(Target(account)))):
            for version in sorted(_names(self.deleted(Target(account, name)))):
                yield Target(account, name), version

    def discard(self, folder: Path) -> None:
        """Deletes a directory of which nothing is noted."""
        doomed = self._own / "trash" / uuid.uuid4().hex
        os.rename(folder, doomed)
        self._remove([doomed])

    def forget_account(self, account: str) -> None:
        """Deletes what is kept of an account beside its shares: its next bearer finds nothing of the last one's."""
        for kind in ("snapshots", "deleted"):
            with suppress(FileNotFoundError):
                self.discard(self._own / kind / account)
        self.sidecar.forget_account(account)
        self._quotas.clear()
        self._eras.clear()

    def kept_accounts(self) -> set[str]:
        """Returns the accounts of which anything is kept beside their shares."""
        return {name for kind in ("snapshots", "deleted") for name in _names(self._own / kind)}

    def check_room(self, target: Target, more: int) -> None:
        """Refuses a request that would let a share's files be longer than a fire drill permits, or exceed its quota.

        Raises:
            ServiceError: 413, the share would take more than its quota, or its files would have more bytes in all than
                the drill's limit.
        """
        if more <= 0:
            return
        share = self.share(target)
        try:
            limit = self.facts(target, "", share.stat()).get("limit")
        except FileNotFoundError:
            raise refusal("ShareNotFound") from None
        if limit is not None and length(share) + more > limit:
            raise refusal("ShareSizeLimitReached")
        self.check_quota(target, more)

    def check_quota(self, target: Target, more: int) -> None:
        """Refuses a request that would let a share take more of the disk than its quota."""
        share, key = self.share(target), self.key(target)
        if key not in self._quotas:
            with suppress(FileNotFoundError):
                self._quotas[key] = self.facts(target, "", share.stat()).get("quota")
        quota = self._quotas.get(key)
        if quota is not None and not self._room.fits(share, more, quota << 30):
            raise refusal("ShareSizeLimitReached", f"Its quota is {quota} GiB.")

    def close(self) -> None:
        """Closes the sidecar."""
        self.sidecar.close()

    def _forget_halves(self) -> None:
        """Drops what is noted of snapshots and deleted shares that a killed service did not get to, or got rid of."""
        for key in self.sidecar.shares(""):
            share, _, stamp = key.partition("@")
            name, _, version = share.partition("!")
            folder = (
                self._own / "deleted" / name / version / "share" if version else self._own / "snapshots" / name / stamp
            )
            if (version or stamp) and not folder.is_dir():
                self.sidecar.forget_share(key)


def _names(folder: Path) -> list[str]:
    return os.listdir(folder) if folder.is_dir() else []
