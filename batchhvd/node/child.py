"""A child of a node's runner: a process group and its output."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time

from batchhvd.node.output import OutputPipe, last_lines
from batchhvd.node.processes import die_with_parent, memory_kills

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from batchhvd.node.folder.document import RankRecord
    from batchhvd.node.output import LogFile

# What a rank of Horovod or PyTorch says that fails because another one is gone.
_LOST = re.compile(
    r"HorovodInternalError|has been shut down|Connection (closed|reset) by peer|Broken pipe|DistNetworkError|"
    r"ncclRemoteError|remote process exited"
)
_OUT_OF_MEMORY = re.compile(r"^(MemoryError|.*std::bad_alloc)", flags=re.MULTILINE)


class Child:
    """A process group and its output: a rank, or the preparation.

    Args:
        rank: its number; -1 for the preparation.
        command: a shell command line.
        variables: its whole environment.
        directory: its working directory.
        logs: the files for its standard output and its standard error.
        enter: what the child does before it starts the shell, including the change to its directory; None to do no more
            than that change.
        stdin: its standard input; by default it has none.
    """

    def __init__(
        self,
        rank: int,
        command: str,
        variables: dict[str, str],
        directory: Path,
        logs: Sequence[LogFile],
        enter: Callable[[], None] | None = None,
        stdin: int = subprocess.DEVNULL,
    ) -> None:
        parent = os.getpid()

        def before() -> None:
            die_with_parent(parent)
            if enter is not None:
                enter()

        self.process = subprocess.Popen(
            ["/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh", "-c", command],
            env=variables,
            cwd=directory if enter is None else None,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=before,  # safe: there is only one thread while children are created
        )
        self._files = [file for file in (self.process.stdout, self.process.stderr) if file is not None]
        self._last = bytearray()
        self._both = [OutputPipe(file.fileno(), log, self._last) for file, log in zip(self._files, logs, strict=True)]
        self.pipes = list(self._both)  # those that have not ended
        for pipe in self.pipes:
            os.set_blocking(pipe.descriptor, False)
        self.rank, self.pid = rank, self.process.pid
        self.kills = memory_kills()
        self.record = _first_record(rank, self.pid)
        self.exit: int | None = None
        self.excused = False  # its work is done, and it is ended because it would never end by itself
        self.ended_at: float | None = None

    @property
    def written(self) -> int:
        """How many bytes it has written so far."""
        return sum(pipe.count for pipe in self._both)

    @property
    def is_over(self) -> bool:
        """Whether it has ended and all its output is written."""
        return self.ended_at is not None and not self.pipes

    @property
    def seconds_over(self) -> float:
        """How many seconds ago it ended; 0 while it runs."""
        return 0.0 if self.ended_at is None else time.monotonic() - self.ended_at

    @property
    def how(self) -> str:
        """How it ended, in words."""
        if self.excused:
            return "was ended, because all ranks but the parameter servers are done"
        number = (self.exit or 0) - 128  # the shell of the job's command ends with this code if its child was killed
        if number in signal.valid_signals():
            return f"was killed by {signal.Signals(number).name}"
        return f"ended with exit code {self.exit}"

    @property
    def is_victim(self) -> bool:
        """Whether it says that it fails because another rank is gone."""
        return _LOST.search("\n".join(self.record["tail"])) is not None

    @property
    def last_output(self) -> str:
        """The last part of what it wrote."""
        return self._last.decode("utf-8", "replace")

    def ended(self, status: int, killed_by_us: bool) -> None:
        """Records how it ended, from the kernel's wait status."""
        code = os.waitstatus_to_exitcode(status)
        self.process.returncode = code
        self.ended_at = time.monotonic()
        self.exit = 0 if self.excused else code if code >= 0 else 128 - code
        self.record["ended"] = time.time()
        self.record["exit"] = self.exit
        self.record["signal"] = -code if code < 0 and not self.excused else None
        self.record["memory"] = not killed_by_us and code == -signal.SIGKILL and memory_kills() > self.kills

    def close(self) -> None:
        """Records the last lines, after all output was read."""
        if 128 < (self.exit or 0) <= 128 + signal.NSIG:  # by a signal, its own or its shell's child's
            for pipe in self._both:
                pipe.end_line()
        self.record["tail"] = last_lines(self._last)
        if self.exit and _OUT_OF_MEMORY.search("\n".join(self.record["tail"][-3:])):
            self.record["memory"] = True
        for file in self._files:
            file.close()

    def signal_group(self, number: int) -> None:
        """Sends a signal to the whole process group, unless its first process has ended."""
        if self.ended_at is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)


def _first_record(rank: int, pid: int) -> RankRecord:
    return {
        "rank": rank,
        "pid": pid,
        "started": time.time(),
        "ended": None,
        "exit": None,
        "signal": None,
        "memory": False,
        "tail": [],
    }
