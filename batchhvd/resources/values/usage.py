"""What the ranks of a running job use: processors, memory, graphics processors."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from attrs import frozen

from batchhvd.errors import ConflictError

MEASURE = "--measure"  # instead of a program, as in ``batchhvd.node.enter``


@frozen
class RankUsage:
    """What one rank uses.

    Attributes:
        node: its node's name.
        rank: its number; -1 for the preparation of the node.
        cpu: how many processors it has used since the last look; 1.0 is one of them, all the time.
        cpus: how many processors its node may use.
        memory: bytes; what its processes share with others counts in part.
        processes: how many processes it has.
        gpus: the GPUs of the node that it uses, by number.
    """

    node: str
    rank: int
    cpu: float
    cpus: int
    memory: int
    processes: int
    gpus: tuple[int, ...]


@frozen
class GpuUsage:
    """What is used of one GPU, by whomever.

    Attributes:
        node: its node's name.
        gpu: its number.
        busy: percent of the time in which it was computing.
        memory: bytes in use.
        total: bytes that it has.
    """

    node: str
    gpu: int
    busy: int
    memory: int
    total: int


@frozen
class Usage:
    """One look at all nodes of a job.

    Attributes:
        ranks: what each rank uses, in their order.
        gpus: the GPUs; none where there is no ``nvidia-smi``.
        missing: why nodes could not be measured, one sentence each.
    """

    ranks: tuple[RankUsage, ...]
    gpus: tuple[GpuUsage, ...]
    missing: tuple[str, ...] = ()


def follow(entrances: Sequence[Callable[[], list[str]]], interval: float) -> Iterator[Usage]:
    """Yields a look at all nodes again and again, until the last of them has ended.

    Args:
        entrances: for each node, what returns the words that enter it.
        interval: seconds between two looks.

    Raises:
        ConflictError: no node can be measured; the message says why.
    """
    processes = [_started(entrance(), interval) for entrance in entrances]
    seen, missing = False, dict[int, str]()
    try:
        while True:
            lines = [process.stdout.readline() if process.stdout else "" for process in processes]
            for index, (line, process) in enumerate(zip(lines, processes, strict=True)):
                if not line and process.wait() and index not in missing:
                    missing[index] = _reason(process)
            if not any(lines):
                break
            seen = True
            yield _look([json.loads(line) for line in lines if line], tuple(missing.values()))
    finally:
        for process in processes:
            process.terminate()
            process.communicate()
    if not seen:
        told = "; ".join(dict.fromkeys(missing.values())) or "the job has ended"
        raise ConflictError(f"what the job uses cannot be measured: {told}", code="NotMeasured")


def _started(words: Sequence[str], interval: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*words, MEASURE, str(interval)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for this program
    )


def _reason(process: subprocess.Popen[str]) -> str:
    said = process.stderr.read().strip() if process.stderr else ""
    return (said.splitlines() or [f"its program ended with {process.returncode}"])[-1].removeprefix("batchhvd: ")


def _look(nodes: Sequence[Mapping[str, object]], missing: tuple[str, ...]) -> Usage:
    ranks = [
        RankUsage(
            str(node["node"]),
            rank["rank"],
            rank["cpu"],
            int(str(node["cpus"])),
            rank["memory"],
            rank["processes"],
            tuple(rank["gpus"]),
        )
        for node in nodes
        for rank in _listed(node["ranks"])
    ]
    gpus = [
        GpuUsage(str(node["node"]), card["gpu"], card["use"], card["memory"], card["total"])
        for node in nodes
        for card in _listed(node["gpus"])
    ]
    return Usage(tuple(sorted(ranks, key=lambda one: one.rank)), tuple(gpus), missing)


def _listed(found: object) -> Sequence[dict[str, Any]]:
    return found if isinstance(found, list) else ()
