"""The place of a node and its ranks in their task, and what their processes learn about it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from batchhvd.node.folder.state import Launch
from batchhvd.node.launch import mpi, tensorflow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from batchhvd.node.folder.document import TaskDocument

# Sources: Slurm's documentation of generic resources, NVIDIA's, AMD's and Intel's of their runtimes.
_DEVICES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
_NONE = ("", "-1", "NoDevFiles")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})", flags=re.ASCII)


class TaskPlace:
    """The place of a node in its task, and what its processes learn about it.

    Args:
        task: the task.
        folder: the task's folder.
        index: the node's number, from 0.
        loopback: whether all nodes are this machine.

    Attributes:
        base: the variables that a process finds: those of the runner, or those of the task's image.
    """

    def __init__(self, task: TaskDocument, folder: Path, index: int, loopback: bool) -> None:
        self.task, self.folder, self.index, self.loopback = task, folder, index, loopback
        self.name = task["nodes"][index]
        self.ranks = list(task["ranks"])
        self.own = task["environment"]
        self.temporary = folder / "temp" / str(index)
        self.base: Mapping[str, str] = os.environ

    @property
    def launch(self) -> str:
        """How the ranks are started: a ``Launch``."""
        return self.task["launch"]

    @property
    def is_horovod(self) -> bool:
        """Whether the ranks get Horovod's variables."""
        return self.launch == Launch.HOROVOD

    @property
    def starts_ranks(self) -> bool:
        """Whether each node starts its own ranks, and not a launcher on node 0 all of them."""
        return self.launch not in (Launch.MPI, Launch.SINGLE)

    @property
    def roles(self) -> list[str]:
        """What each rank is, for TensorFlow; empty for all others."""
        return self.task.get("roles") or []

    def is_server(self, rank: int) -> bool:
        """Whether a rank is a parameter server, which never ends by itself."""
        return bool(self.roles) and self.roles[rank] == tensorflow.SERVER

    def variables(self) -> dict[str, str]:
        """Returns the environment of every process on this node, secrets included."""
        found = dict(self.base)
        found |= {"AZ_BATCHAI_TASK_INDEX": str(self.index), "AZ_BATCHAI_JOB_TEMP": str(self.temporary)}
        found |= {"AZ_BATCHAI_JOB_TEMP_DIR": str(self.temporary.parent), "AZ_BATCHAI_NODE_NAME": self.name}
        literal = self.task.get("literal", ())
        for name, value in self.own.items():
            found[name] = value if name in literal else expand(value, found)
        one = self.loopback and len(self.task["nodes"]) > 1
        for name, value in (self.threads() | (mpi.ON_ONE_MACHINE if one else {})).items():
            found.setdefault(name, value)
        found.update(self.task["secrets"], BATCHHVD_NODE=f"{self.folder}:{self.index}")
        return found

    def threads(self) -> dict[str, str]:
        """Returns how many threads each rank may use: an equal share of the machine's cores."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        ranks = sum(self.ranks) if self.loopback else self.ranks[self.index]
        count = str(max(1, cores // max(1, ranks)))
        return {"OMP_NUM_THREADS": count, "TF_NUM_INTRAOP_THREADS": count, "TF_NUM_INTEROP_THREADS": "1"}

    def devices(self, rank: int, local: int) -> dict[str, str]:
        """Returns which GPUs a rank uses: its share of those that a batch system or the starter's own shell chose.

        If nobody chose, the machine's: none if the VM size has none, otherwise in turn.
        """
        if "AZ_BATCHAI_NUM_GPUS" not in self.own:
            return {}
        if self.is_server(rank):
            return {"CUDA_VISIBLE_DEVICES": "", "AZ_BATCHAI_NUM_GPUS": "0"} | self.chosen("CUDA_VISIBLE_DEVICES")
        if chosen := allotted():
            return self._dealt(chosen, rank if self.loopback else local, local)
        there = len(gpus())
        count = min(there, int(self.own["AZ_BATCHAI_NUM_GPUS"]))
        found = {"AZ_BATCHAI_NUM_GPUS": str(count)}
        if count == 0:
            found["CUDA_VISIBLE_DEVICES"] = ""
        elif self.starts_ranks:
            turn = (rank if self.loopback else local) % there
            devices = [str(number) for number in range(there)]
            found["CUDA_VISIBLE_DEVICES"] = ",".join(self._share(devices, turn, local)[: max(count, local + 1)])
        return found | self.chosen("CUDA_VISIBLE_DEVICES")

    def _share(self, devices: Sequence[str], turn: int, local: int) -> list[str]:
        """Returns the devices that a rank sees: its own one, or for PyTorch, whose ranks choose, its node's."""
        if self.launch != Launch.PYTORCH:
            return [devices[turn % len(devices)]]
        first = (turn - local) % len(devices)
        return [*devices[first:], *devices[:first]]

    def _dealt(self, lists: Mapping[str, Sequence[str]], turn: int, local: int) -> dict[str, str]:
        """Returns a rank's device out of each list; processes that place their ranks themselves get whole lists."""
        found: dict[str, str] = {}
        for name, devices in lists.items():
            found["AZ_BATCHAI_NUM_GPUS"] = str(len(devices))
            share = self._share(devices, turn, local) if devices and self.starts_ranks else devices
            found[name] = ",".join(share)
            found |= self.chosen(name)
        return found

    def chosen(self, name: str) -> dict[str, str]:
        """Returns a variable if the job sets it itself."""
        return {name: self.own[name]} if name in self.own else {}

    def commands(self) -> list[tuple[int, int, str]]:
        """Returns rank, local rank and command of each process that this node starts."""
        if self.starts_ranks:
            first = sum(self.ranks[: self.index])
            return [(first + local, local, self._command(first + local)) for local in range(self.ranks[self.index])]
        if self.index != 0:
            return []
        return [(0, 0, self.task["command"] if self.task["launch"] == Launch.SINGLE else self.mpirun())]

    def _command(self, rank: int) -> str:
        return self.task["commands"][self.roles[rank]] if self.roles else self.task["command"]

    def mpirun(self) -> str:
        """Returns the command line of the engine's own launcher (``BATCHHVD_LAUNCHER``), or else of Open MPI's."""
        names = [*self.own, *self.task["secrets"], "OMP_NUM_THREADS", "BATCHHVD_NODE", *self.libraries()]
        ours = None if self.task.get("container") else os.environ.get("BATCHHVD_LAUNCHER")
        return mpi.command(self.task["command"], sum(self.ranks), self.folder / "hostfile", names, ours)

    def libraries(self) -> dict[str, str]:
        """Returns the variables of an MPI launcher that brings its own libraries; one in an image finds them itself."""
        if self.launch != Launch.MPI or self.task.get("container"):
            return {}
        found = mpi.libraries(self.variables().get("PATH", ""))
        return {name: value for name, value in found.items() if name not in self.own}


def horovod_variables(rank: int, ranks: Sequence[int], nodes: Sequence[str]) -> dict[str, str]:
    """Returns the variables that tell Horovod the place of a rank.

    Source: horovod/common/gloo/gloo_context.cc and horovod/runner/gloo_run.py of Horovod 0.28.1.

    Args:
        rank: the rank, from 0; the nodes get blocks of successive ranks.
        ranks: how many ranks each node has.
        nodes: the nodes' names, as many as ``ranks``.

    Raises:
        ValueError: no node has this rank.
    """
    node, local = _block(rank, ranks)
    peers = [index for index, count in enumerate(ranks) if count > local]
    return {
        "HOROVOD_RANK": str(rank),
        "HOROVOD_SIZE": str(sum(ranks)),
        "HOROVOD_LOCAL_RANK": str(local),
        "HOROVOD_LOCAL_SIZE": str(ranks[node]),
        "HOROVOD_CROSS_RANK": str(peers.index(node)),
        "HOROVOD_CROSS_SIZE": str(len(peers)),
        "HOROVOD_HOSTNAME": nodes[node],
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
    }


def _block(rank: int, ranks: Sequence[int]) -> tuple[int, int]:
    """Returns the node of a rank and its number among that node's ranks."""
    for node, count in enumerate(ranks):
        if rank < count:
            return node, rank
        rank -= count
    raise ValueError(f"rank must be below {sum(ranks)}, the number of ranks")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replaces ``$NAME`` and ``${NAME}`` by the variables' values, and leaves unknown names as they are."""
    return _VARIABLE.sub(lambda found: variables.get(found[1] or found[2], found[0]), text)


def allotted() -> dict[str, list[str]]:
    """Returns the devices that were chosen for this process, by the name of the variable that says so."""
    found = {name: os.environ[name] for name in _DEVICES if name in os.environ}
    return {name: [part for part in text.split(",") if part not in _NONE] for name, text in found.items()}


def gpus() -> list[str]:
    """Returns the device files of this machine's NVIDIA GPUs."""
    return [str(path) for path in Path("/dev").glob("nvidia[0-9]*")]
