"""Ranks on this machine: starts N processes that Horovod sees as ranks of one job, and ends them together.

The nodes of a job have a runner of their own; this module is for what the trainer does by itself: verifying an
installation, the parity certificate, measurements.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from attrs import field, frozen

from batchhvd.errors import EngineError
from batchhvd.node.place import horovod_variables
from batchhvd.node.rendezvous import Rendezvous, loopback, rendezvous_variables

LOOPBACK = "127.0.0.1"
_GRACE = 3.0
_PAUSE = 0.05


def environment(rank: int, size: int, port: int, *, nodes: int = 1) -> dict[str, str]:
    """Returns the variables that tell a process which rank it is.

    Args:
        rank: from 0.
        size: ranks in all, a multiple of ``nodes``.
        port: the port of the rendezvous on loopback.
        nodes: how many nodes to simulate; the ranks are distributed to them in blocks.
    """
    place = horovod_variables(rank, [size // nodes] * nodes, [f"node{number}" for number in range(nodes)])
    return {**place, **rendezvous_variables(LOOPBACK, port, loopback())}


@frozen
class RankOutcome:
    """How a rank ended.

    Attributes:
        rank: its number, from 0.
        exit_code: as a shell shows it: 128 + n for signal n.
        output: what it wrote to stdout and stderr.
    """

    rank: int
    exit_code: int
    output: str = field(repr=False)


def run(
    command: Sequence[str],
    size: int,
    *,
    variables: Mapping[str, str] | None = None,
    nodes: int = 1,
    timeout: float = 600.0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[RankOutcome]:
    """Runs a command once for each rank and returns how the ranks ended, in their order.

    If a rank fails, the time is over, or this process is terminated, the other ranks are ended: SIGTERM to their
    process groups, SIGKILL three seconds later.

    Args:
        command: the same for all ranks.
        size: number of ranks. A single rank gets no rendezvous and none of Horovod's variables.
        variables: more environment variables; an empty value removes a variable.
        nodes: how many nodes to simulate.
        timeout: seconds.
        clock: monotonic time in seconds.
        sleep: waits so many seconds.

    Raises:
        EngineError: The time is over; ``output`` has the last lines of all ranks.
    """
    with TemporaryDirectory(prefix="batchhvd-ranks-") as folder, Rendezvous(LOOPBACK) as server, _terminable():
        logs = [Path(folder) / f"{rank}.log" for rank in range(size)]
        ranks = [
            _start(command, log, _variables(rank, size, server.port, nodes, variables or {}))
            for rank, log in enumerate(logs)
        ]
        try:
            late = _wait(ranks, clock() + timeout, clock, sleep)
        finally:
            _end(ranks, clock, sleep)
        outputs = [log.read_text(errors="replace") for log in logs]
    if late:
        raise _too_late(command, timeout, outputs)
    return [
        RankOutcome(rank, _code(process.returncode), text)
        for rank, (process, text) in enumerate(zip(ranks, outputs, strict=True))
    ]


@contextmanager
def _terminable() -> Iterator[None]:
    """Makes SIGTERM end this process as Ctrl-C does, so that its ranks, in sessions of their own, end with it."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python handles signals in the main thread only
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _variables(rank: int, size: int, port: int, nodes: int, more: Mapping[str, str]) -> dict[str, str]:
    place = environment(rank, size, port, nodes=nodes)
    # Settings of the user (HOROVOD_CYCLE_TIME, HOROVOD_TIMELINE) are kept; the place in another job is not.
    inherited = {name: value for name, value in os.environ.items() if name not in place}
    return {name: value for name, value in {**inherited, **(place if size > 1 else {}), **more}.items() if value != ""}


def _start(command: Sequence[str], log: Path, variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    with log.open("wb") as stream:
        return subprocess.Popen(
            list(command),
            env=dict(variables),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _wait(
    ranks: Sequence[subprocess.Popen[bytes]],
    deadline: float,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> bool:
    """Waits until all ranks have ended or one has failed; True if the time was over first."""
    while clock() < deadline:
        codes = [process.poll() for process in ranks]
        if all(code == 0 for code in codes) or any(code not in (0, None) for code in codes):
            return False
        sleep(_PAUSE)
    return True


def _end(ranks: Sequence[subprocess.Popen[bytes]], clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
    for process in ranks:
        _signal(process, signal.SIGTERM)
    deadline = clock() + _GRACE
    while clock() < deadline and any(process.poll() is None for process in ranks):
        sleep(_PAUSE)
    for process in ranks:
        _signal(process, signal.SIGKILL)
        process.wait()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    if process.poll() is None:
        os.killpg(process.pid, number)


def _code(returncode: int) -> int:
    return returncode if returncode >= 0 else 128 - returncode


def _too_late(command: Sequence[str], timeout: float, outputs: Sequence[str]) -> EngineError:
    tails = "\n".join(f"rank {rank}: {tail(text)}" for rank, text in enumerate(outputs))
    return EngineError(
        f"The ranks of {command[-1]} had not ended after {timeout:.0f} s and were stopped; their last lines: {tails}",
        engine="ranks",
        command=" ".join(command),
        output=tails,
    )


def tail(text: str, lines: int = 20) -> str:
    """Returns the last lines of a rank's output."""
    return "\n".join(text.rstrip().splitlines()[-lines:])


def answer(module: str, size: int, options: Sequence[str], *, timeout: float = 3600) -> str:
    """Runs a module on so many ranks and returns what rank 0 wrote to the file that ``--answer`` names.

    Args:
        module: its dotted name.
        size: number of ranks.
        options: more arguments, the same for all ranks.
        timeout: seconds.

    Raises:
        EngineError: A rank failed, or the time is over.
    """
    with TemporaryDirectory(prefix="batchhvd-answer-") as folder:
        path = Path(folder, "answer.json")
        command = python("-m", module, "--answer", str(path), *options)
        failed = [outcome for outcome in run(command, size, timeout=timeout) if outcome.exit_code]
        if failed:
            raise _failed(command, size, failed[0])
        return path.read_text()


def _failed(command: Sequence[str], size: int, outcome: RankOutcome) -> EngineError:
    return EngineError(
        f"rank {outcome.rank} of {size} failed with exit code {outcome.exit_code}: {tail(outcome.output)}",
        engine="ranks",
        command=" ".join(command),
        exit_code=outcome.exit_code,
        output=outcome.output,
    )


def sizes(text: str) -> list[int]:
    """Reads numbers of ranks from a command line, such as "1,2,4"."""
    return [int(part) for part in text.split(",")]


def python(*arguments: str) -> list[str]:
    """Returns the command that runs this interpreter with arguments."""
    return [sys.executable, *arguments]
