"""Which rank left first, and why: a note that each rank leaves when it ends, and that the others show.

If a rank ends while others wait for it, these get Horovod's "has been shut down", which names nobody. So each rank that
ends puts a line into the rendezvous of the job, if there is one, and a rank that fails because of Horovod prints the
lines of those that ended before. A rank without a line was killed, or its node is lost.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from types import TracebackType
from typing import TypeAlias

#: Python's hook for exceptions that nobody catches.
Hook: TypeAlias = "Callable[[type[BaseException], BaseException, TracebackType | None], object]"

_LOST = ("has been shut down", "HorovodInternalError", "Connection closed by peer", "Connection reset by peer")
_LONGEST = 300
_SILENT = "ended without a word: it was killed, or its node is lost"
_VICTIM = "lost another rank"  # the note of a rank that is not the cause
_PATIENCE = 2.0  # seconds in which the others that fail for the same reason leave their notes


class Departures:
    """The notes of the ranks of one job.

    Args:
        rank, size: of this process.
        address, port: of the rendezvous.
    """

    def __init__(self, rank: int, size: int, address: str, port: int) -> None:
        self.rank = rank
        self.size = size
        self.address = address
        self.port = port
        self.written = False

    def leave(self, why: str) -> None:
        """Leaves this rank's note, once."""
        if not self.written:
            self.written = True
            self._ask("PUT", self.rank, why[:_LONGEST])

    def others(self) -> list[str]:
        """Returns a sentence for each rank that left first: with a note, or else without a word."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            notes = {rank: self._ask("GET", rank) for rank in range(self.size) if rank != self.rank}
            causes = [f"rank {rank} {note}" for rank, note in notes.items() if note not in ("", _VICTIM)]
            if causes or time.monotonic() > deadline:
                return causes or [f"rank {rank} {_SILENT}" for rank, note in notes.items() if not note]
            time.sleep(0.2)

    def _ask(self, method: str, rank: int, body: str = "") -> str:
        with contextlib.suppress(OSError, HTTPException):
            connection = HTTPConnection(self.address, self.port, timeout=3)
            connection.request(method, f"/batchhvd.left/rank{rank}", body.encode())
            answer = connection.getresponse()
            return answer.read().decode(errors="replace") if answer.status == 200 else ""
        return ""

    def explain(self, before: Hook) -> Hook:
        """Returns a hook that shows an exception as before, and then who left first; or notes the exception."""

        def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            before(kind, error, trace)
            text = f"{kind.__name__}: {error}"
            if not any(word in text for word in _LOST):
                self.leave(f"failed with {text.splitlines()[0]}")
                return
            self.leave(_VICTIM)
            for sentence in self.others():
                print(f"batchhvd: before this, {sentence}", file=sys.stderr, flush=True)

        return hook


def watch(rank: int, size: int) -> None:
    """Makes this process leave a note when it ends, and show those of others when it fails because of them."""
    address, port = (os.environ.get(f"HOROVOD_GLOO_RENDEZVOUS_{name}", "") for name in ("ADDR", "PORT"))
    if not address or not port.isdigit():
        return  # started by MPI, which has no rendezvous
    departures = Departures(rank, size, address, int(port))
    sys.excepthook = departures.explain(sys.excepthook)
    atexit.register(departures.leave, "had ended: it made fewer steps than the others")
