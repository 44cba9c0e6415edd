"""What a node writes about itself: its record, its execution log, and the file that stops the task."""

from __future__ import annotations

import contextlib
import os
import time

from batchhvd.node.folder.records import declare, node_path, read_stop, write_json
from batchhvd.node.folder.state import NodeState
from batchhvd.node.output import LogFile
from batchhvd.node.processes import ticks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from batchhvd.node.folder.document import NodeRecord, StopRecord


class Journal:
    """What a node writes about itself, into the task's folder and the job's logs.

    Args:
        folder: the task's folder.
        index: the node's number, from 0.
        name: the node's name.
        host: the machine's name, as the other nodes know it.
        guard: the process id of the node's guard.

    Attributes:
        record: the node's record; ``save`` writes it.
    """

    def __init__(self, folder: Path, index: int, *, name: str, host: str, guard: int) -> None:
        self.folder, self.index, self.name = folder, index, name
        self._log: LogFile | None = None
        self._room = folder / f".room-{index}"
        own = os.getpid()
        self.record: NodeRecord = {
            "index": index,
            "node": name,
            "host": host,
            "pid": own,
            "ticks": ticks(own),
            "guard": {"pid": guard, "ticks": ticks(guard)},
            "started": time.time(),
            "ended": None,
            "state": NodeState.PREPARING,
            "preparation": None,
            "ranks": [],
            "reason": "",
            "error": "",
        }

    def open(self, log: Path) -> None:
        """Opens the node's execution log at a path, and reserves disk space for the records."""
        self._room.write_bytes(b"\0" * 65536)
        self._log = LogFile(log)

    def free_room(self) -> None:
        """Frees the reserved disk space, so that the records can still be written when the disk is full."""
        self._room.unlink(missing_ok=True)

    def note(self, text: str) -> None:
        """Writes a line into the node's execution log."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
        with contextlib.suppress(OSError):  # a full disk must not keep the node from ending its ranks
            if self._log is not None:
                self._log.write(f"{stamp}Z {text}\n".encode())

    def save(self) -> None:
        """Writes the record."""
        write_json(node_path(self.folder, self.index), self.record)

    def stop(self) -> StopRecord | None:
        """Returns why the task was stopped, or None if it was not."""
        return read_stop(self.folder)

    @property
    def is_stopped(self) -> bool:
        """Whether the task was stopped."""
        return self.stop() is not None

    def fail(
        self,
        reason: str,
        error: str,
        *,
        rank: int | None = None,
        code: int | None = None,
        tail: Sequence[str] = (),
        stacks: bool = False,
    ) -> None:
        """Stops the task because of this node; the arguments are those of ``declare``."""
        self.record["reason"], self.record["error"] = reason, error
        words = {"node": self.name, "error": error}
        first = declare(self.folder, reason, **words, rank=rank, exit_code=code, tail=tail, stacks=stacks)
        self.note(f"{error}; {'all nodes are told to end' if first else 'the task was ending already'}")

    def end(self) -> None:
        """Completes the record; when it says that the node has ended, all logs are complete."""
        self.free_room()
        stop = self.stop()
        self.record["state"], self.record["ended"] = NodeState.ENDED, time.time()
        if stop is not None and not self.record["reason"]:
            self.record["reason"], self.record["error"] = stop["reason"], stop["error"]
        self.note(f"node ended: {self.record['error'] or self.record['reason'] or 'well'}")
        self.save()
