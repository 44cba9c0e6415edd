"""Where a job's preparation would run, said before there is a job: as the nodes themselves decide it."""

from __future__ import annotations

import subprocess
import sys
from functools import cached_property
from pathlib import Path

from attrs import define

from batchhvd.node.archive import FOLDER
from batchhvd.node.folder.state import PreparationPlace

_SECONDS = 20.0


@define(slots=False)
class PreparationAdvice:
    """Says where preparations run.

    Attributes:
        asked: where the service was told to run them, a ``PreparationPlace``.
        layers: the folder for their layers.
        here: whether nodes are processes of this machine; others decide for themselves.
    """

    asked: str
    layers: Path
    here: bool

    @cached_property
    def text(self) -> str:
        """Where, in words for people; found out once, as a node does it."""
        if self.asked == PreparationPlace.SKIP:
            return "skipped, because the service was started with --prepare skip"
        if self.asked == PreparationPlace.HOST:
            return "on the machine itself, because the service was started with --prepare host"
        if not self.here:
            return "on each node in a copy-on-write view of it (an overlay) if it allows that, otherwise skipped"
        why = self._why_not()
        return (
            f"skipped: no copy-on-write view is possible here: {why}" if why else "in a copy-on-write view (an overlay)"
        )

    def _why_not(self) -> str:
        command = [sys.executable, "-I", "-S", str(FOLDER), str(self.layers), "--why-not"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            return str(error)
        return done.stdout.strip()
