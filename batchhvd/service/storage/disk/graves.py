"""Shares that were deleted and can be restored: moved with their snapshots, and with what is noted of them.

What is noted goes first, in one transaction; the directories follow it. So a service that was killed in between knows
at its next start which way they were going.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from attrs import frozen

from batchhvd.service.storage.disk.sidecar import Sidecar

VERSION = re.compile(r"[0-9A-F]{16}")
"""What distinguishes deleted shares of one name."""


@frozen
class Plot:
    """The places of a share that is being deleted or restored.

    Attributes:
        share: its directory while it lives.
        snapshots: that of its snapshots.
        grave: the directory that both are in while it is deleted.
        key: under which it is noted while it lives.
        buried: and while it is deleted.
    """

    share: Path
    snapshots: Path
    grave: Path
    key: str
    buried: str

    def bury(self, sidecar: Sidecar) -> None:
        """Deletes the share, for the time being."""
        self.grave.mkdir(parents=True)
        sidecar.rename_all(self.key, self.buried)
        self.follow_down()

    def restore(self, sidecar: Sidecar) -> None:
        """Restores the share; its grave is empty then."""
        sidecar.rename_all(self.buried, self.key)
        self.follow_up()

    def follow_down(self) -> None:
        """Moves what has not been moved yet into the grave."""
        _move(self.snapshots, self.grave / "snapshots")
        _move(self.share, self.grave / "share")

    def follow_up(self) -> None:
        """Moves what has not been moved yet out of the grave."""
        self.share.parent.mkdir(parents=True, exist_ok=True)
        self.snapshots.parent.mkdir(parents=True, exist_ok=True)
        _move(self.grave / "share", self.share)
        _move(self.grave / "snapshots", self.snapshots)


def settle(plots: Iterator[Plot], sidecar: Sidecar, discard: Callable[[Path], None]) -> None:
    """Ends what a killed service had begun: a share that is noted as deleted is moved there, another one back."""
    for plot in plots:
        if plot.buried in sidecar.shares(plot.buried):
            plot.follow_down()
        else:
            plot.follow_up()
            discard(plot.grave)


def _move(folder: Path, place: Path) -> None:
    if not place.exists():
        with suppress(FileNotFoundError):
            os.rename(folder, place)
