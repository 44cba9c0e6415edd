"""A copy-on-write view of the machine."""

from __future__ import annotations

import hashlib
import os
import re
import shutil

from batchhvd.node.sandbox.mounting import BIND, READ_ONLY, RECURSIVE, SHARED, mount, mount_points, remove, unmount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class MachineView:
    """The machine's files as they are, with all changes kept in a folder: an overlay over each mounted file system.

    Attributes:
        root: the directory that is the view's "/".
    """

    def __init__(self, place: Path, changes: Path, below: Path | None, binds: Sequence[Path]) -> None:
        """Mounts the view, or nothing if a part of it fails.

        Args:
            place: a folder for the mount points and nothing else.
            changes: the folder for the changes; neither on an overlay nor on NFS.
            below: the changes of another view, visible but never altered, or None.
            binds: directories that are the real ones inside the view too.

        Raises:
            OSError: the kernel refused a part of it.
        """
        self.place, self.root, self.changes, self.below = place, place / "root", changes, below
        self.mounted: list[str] = []
        self.scratch: list[Path] = []
        try:
            for point in mount_points():
                self._overlay(point)
            for shared in SHARED:
                self._mount(shared, self._inside(shared), flags=BIND | RECURSIVE)
            for path in binds:
                os.makedirs(self._inside(str(path)), exist_ok=True)
                self._mount(str(path), self._inside(str(path)), flags=BIND)
        except OSError:
            self.close()
            raise

    def _inside(self, path: str) -> str:
        return str(self.root) + path.rstrip("/")

    def _mount(self, source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
        mount(source, target, kind, flags, options)
        self.mounted.append(target)

    def _overlay(self, point: str) -> None:
        if not os.path.isdir(point):  # containers mount single files, such as /etc/resolv.conf
            return self._mount(point, self._inside(point), flags=BIND)
        name = hashlib.sha256(os.fsencode(point)).hexdigest()[:16]
        lower = point
        if self.below is not None and (self.below / name).is_dir():
            # Stacked, not side by side: the kernel refuses a lower layer that lies inside another one, here inside "/".
            lower = str(self.place / name)
            self._stack(point, self.below / name, lower, flags=READ_ONLY)
        return self._stack(lower, self.changes / name, self._inside(point))

    def _stack(self, lower: str, changes: Path, target: str, flags: int = 0) -> None:
        # Each mount has a work folder of its own: simultaneous mounts must not share one.
        upper, work = changes / "up", changes / f"work-{os.getpid()}"
        if not upper.exists():
            upper.mkdir(parents=True)
            shutil.copystat(lower, upper)
        work.mkdir(exist_ok=True)
        self.scratch.append(work)
        os.makedirs(target, exist_ok=True)
        paths = {"lowerdir": lower, "upperdir": str(upper), "workdir": str(work)}
        options = ",".join(f"{name}={_escape(path)}" for name, path in paths.items())
        self._mount("overlay", target, "overlay", flags, options)

    def enter(self, directory: Path) -> None:
        """Enters the view; for a child process that is about to start a program."""
        os.chroot(self.root)
        os.chdir(directory)

    def close(self) -> None:
        """Unmounts the view; what was changed in it stays in the folder for changes.

        Raises:
            OSError: something could not be unmounted.
        """
        while self.mounted:
            unmount(self.mounted.pop())
        for folder in (*self.scratch, self.place):
            remove(folder)


def _escape(path: str) -> str:
    return re.sub(r"([\\:,])", r"\\\1", path)
