"""Runs Slurm's commands; a slow one holds up nobody: it goes on in the background, and its answer is fetched later."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

from batchhvd.errors import EngineMissingError

T = TypeVar("T")

PACKAGE = "slurm-client"
LONGEST = 120.0  # seconds until a command is given up; busy controllers take a minute and more to answer
_SETTING = ("SBATCH_", "SQUEUE_", "SINFO_", "SACCT_", "SCANCEL_")  # of the shell that started the service
_log = logging.getLogger(__name__)


class SlurmCommands:
    """Slurm's commands.

    Args:
        bin: their folder, "" to find them in PATH.
        wait: for how many seconds a caller waits for an answer before it gets None and asks again later.

    Raises:
        EngineMissingError: sbatch or squeue is not installed.
    """

    def __init__(self, bin: str, wait: float) -> None:
        self._bin, self._wait = bin, wait
        self._pending: dict[object, Future[object]] = {}
        for name in ("sbatch", "squeue"):
            self._need(name)
        dropped = sorted(name for name in os.environ if name.startswith(_SETTING))
        if dropped:
            _log.warning("not passed on to Slurm: %s; use the engine's options instead", ", ".join(dropped))

    def _need(self, name: str) -> None:
        if not self.has(name):
            where = f"in {self._bin}" if self._bin else "in PATH"
            message = f"{name} was not found {where}; on Debian and Ubuntu: apt-get install {PACKAGE}"
            raise EngineMissingError(message, engine="slurm", command=name)

    def has(self, name: str) -> bool:
        """Says whether a command is installed."""
        return shutil.which(name, path=self._bin or None) is not None

    def path(self, name: str) -> str:
        """Returns the path of a command, or its name if it is not installed."""
        return shutil.which(name, path=self._bin or None) or name

    def run(self, name: str, *arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end; exit code 124 if it takes too long, 127 if it is not installed, as in a shell.

        Variables such as ``SBATCH_PARTITION`` would beat the options in a batch script; they are left out.
        """
        command = [self.path(name), *arguments]
        environment = {name: value for name, value in os.environ.items() if not name.startswith(_SETTING)}
        try:
            return subprocess.run(
                command, input=text, capture_output=True, text=True, timeout=LONGEST, check=False, env=environment
            )
        except FileNotFoundError:
            return subprocess.CompletedProcess(command, 127, "", f"{name} was not found")
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, 124, "", f"{name}: timed out after {LONGEST:.0f} s")

    def soon(self, key: object, call: Callable[[], T]) -> T | None:
        """Returns what a call returns, or None if it has not ended; the same key fetches the same call's result later.

        Only the first caller waits.
        """
        future = self._pending.get(key)
        if future is None:
            future = self._pending[key] = _begun(call)
            wait([future], self._wait)
        if not future.done():
            return None
        del self._pending[key]
        return future.result()  # type: ignore[return-value]

    def aside(self, name: str, *arguments: str) -> None:
        """Runs a command in the background; nobody waits for its answer."""
        _begun(lambda: self.run(name, *arguments))


def _begun(call: Callable[[], object]) -> Future[object]:
    """Begins a call in a thread of its own: however many commands hang, no other waits, and no end of this process."""
    future: Future[object] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=work, name="slurm", daemon=True).start()
    return future
