"""Layers: what a preparation has changed on a machine, kept so that it runs there only once."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import os
import re
import time

from batchhvd.node.sandbox.mounting import remove

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_KEPT = 30 * 86400  # seconds that a layer is kept after its last use
_FORM = "2"  # earlier layers may lack what their preparation wrote into a job's own folders


class Layer:
    """A prepared layer: a folder, and a lock beside it that every node which uses the layer holds until it ends.

    Attributes:
        path: the folder.
        changes: what the preparation has changed, in the form of a view's changes.
        lock_file: the file of the lock.
        done: a file that exists once the preparation has succeeded.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.changes, self.done = path, path / "changes", path / "done"
        self.lock_file = path.with_suffix(".lock")
        self.lock = os.open(self.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @property
    def is_done(self) -> bool:
        """Whether its preparation has succeeded."""
        return self.done.exists()

    @property
    def is_forgotten(self) -> bool:
        """Whether it has not been used for a long time and is not in use now; if so, it stays locked for removal."""
        return time.time() - self.path.stat().st_mtime > _KEPT and self._locked(fcntl.LOCK_EX)

    def take(self) -> bool:
        """Tries to lock it, shared with others if it is done, otherwise exclusively; returns whether it could."""
        if self._locked(fcntl.LOCK_SH):
            if self.is_done:
                return True
            fcntl.flock(self.lock, fcntl.LOCK_UN)
        return self._locked(fcntl.LOCK_EX)

    def share(self) -> None:
        """Records that it was used now, and lets others use it too."""
        os.utime(self.path)
        fcntl.flock(self.lock, fcntl.LOCK_SH)

    def output(self) -> Iterator[bytes]:
        """Yields what the preparation has written to standard output, then to standard error."""
        for name in ("stdout", "stderr"):
            yield (self.path / name).read_bytes()

    def moved(self) -> Layer:
        """Moves the folder to a name that no other node looks for, releases this layer, and returns the new one."""
        own = Layer(self.path.with_name(f"{self.path.name}-{os.urandom(6).hex()}"))
        fcntl.flock(own.lock, fcntl.LOCK_EX)
        self.path.rename(own.path)
        self.close()
        return own

    def remove(self) -> None:
        """Removes the folder."""
        remove(self.path)

    def close(self) -> None:
        """Releases the lock."""
        os.close(self.lock)

    def _locked(self, kind: int) -> bool:
        try:
            fcntl.flock(self.lock, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def forget_old(layers: Path) -> None:
    """Removes the layers that have not been used for a long time."""
    for done in layers.glob("*/done"):
        layer = Layer(done.parent)
        if layer.is_forgotten:
            layer.remove()
        layer.close()


def layer_name(command: str, variables: Mapping[str, str]) -> str:
    """Returns a name derived from a preparation and from everything that decides what it does on this machine."""
    used = sorted(name for name in set(re.findall(r"\w+", command, flags=re.ASCII)) if name in variables)
    facts = [_FORM, command, variables.get("PATH", ""), *(f"{name}={variables[name]}" for name in used)]
    for folder in variables.get("PATH", "").split(":"):
        places = [folder, *glob.glob(f"{glob.escape(os.path.dirname(folder))}/lib/python3*/site-packages")]
        facts += [f"{place} {os.stat(place).st_mtime_ns}" for place in places if place and os.path.isdir(place)]
    digest = hashlib.sha256("\0".join(facts).encode("utf-8", "surrogateescape"))
    with contextlib.suppress(OSError), open("/var/lib/dpkg/status", "rb") as file:
        digest.update(file.read())
    return digest.hexdigest()[:32]
