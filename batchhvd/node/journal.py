"""What a node says of itself: its record, its execution log, and the word that stops the task."""

from __future__ import annotations

import contextlib
import os
import time

from batchhvd.node.output import LogFile
from batchhvd.node.processes import ticks
from batchhvd.node.records import declare, node_path, read_stop, write_json
from batchhvd.node.state import NodeState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from batchhvd.node.document import NodeRecord, StopRecord


class Journal:
    """What a node says of itself, in the task's folder and among the job's logs.

    Args:
        folder: the task's folder.
        index: the node's number.
        name: the node's name.
        host: the machine's name, as the other nodes know it.
        guard: the process number of the node's guard.

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

    def open(self, logs: Path) -> None:
        """Begins the node's execution log."""
        self._room.write_bytes(b"\0" * 65536)
        self._log = LogFile(logs / f"execution-{self.name}.log")

    def give_room(self) -> None:
        """Gives disk space up that was kept so that the records still fit when the disk is full."""
        self._room.unlink(missing_ok=True)

    def note(self, text: str) -> None:
        """Writes a line into the node's execution log."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
        with contextlib.suppress(OSError):  # a full share must not keep the node from ending its ranks
            if self._log is not None:
                self._log.write(f"{stamp}Z {text}\n".encode())

    def save(self) -> None:
        """Writes the record."""
        write_json(node_path(self.folder, self.index), self.record)

    def stop(self) -> StopRecord | None:
        """Returns why the task was stopped, or None while it goes on."""
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
        """Tells all nodes to end, because of this one; the arguments are as those of ``declare``."""
        self.record["reason"], self.record["error"] = reason, error
        words = {"node": self.name, "error": error}
        first = declare(self.folder, reason, **words, rank=rank, exit_code=code, tail=tail, stacks=stacks)
        self.note(f"{error}; {'all nodes are told to end' if first else 'the task was ending already'}")

    def end(self) -> None:
        """Completes the record; whoever reads that the node has ended may read all logs."""
        self.give_room()
        stop = self.stop()
        self.record["state"], self.record["ended"] = NodeState.ENDED, time.time()
        if stop is not None and not self.record["reason"]:
            self.record["reason"], self.record["error"] = stop["reason"], stop["error"]
        self.note(f"node ended: {self.record['error'] or self.record['reason'] or 'well'}")
        self.save()
