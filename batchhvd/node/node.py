"""The runner of one node: everything that happens there, in order."""

from __future__ import annotations

import collections
import os
import socket
import time
from pathlib import Path

from batchhvd.node import log_names
from batchhvd.node.child import Child
from batchhvd.node.folder.records import has_ended, node_path, read_node, read_task
from batchhvd.node.folder.state import Launch, NodeState, StopReason
from batchhvd.node.journal import Journal
from batchhvd.node.launch import mpi, pytorch, tensorflow
from batchhvd.node.launch.ports import KeptPort
from batchhvd.node.meeting import Meeting
from batchhvd.node.output import LogFile, keep, moment
from batchhvd.node.place import TaskPlace, expand, horovod_variables
from batchhvd.node.processes import end_all
from batchhvd.node.supervisor import GRACE, Farewell, FolderGoneError, StoppedError, Supervisor
from batchhvd.node.watchdog import Watchdog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from batchhvd.node.contained import Contained
    from batchhvd.node.preparation import Preparation
    from batchhvd.node.sandbox.view import MachineView

_DOUBT = 0.3  # seconds; see Supervisor
_PAUSE = 0.1  # seconds between two looks at the other nodes' records
_SHOWN = 20  # names of files in a line of the log


class Node:
    """The runner of one node: starts the preparation and the ranks, and ends when they have ended or were stopped.

    Args:
        folder: the task's folder.
        index: the node's number, from 0.
        loopback: whether all nodes are this machine.
        guard: the process id of the node's guard.

    Raises:
        FileNotFoundError: the folder does not contain a task.
    """

    def __init__(self, folder: Path, index: int, loopback: bool, guard: int) -> None:
        task = read_task(folder)
        if task is None:
            raise FileNotFoundError(f"{folder} does not contain a task")
        self.folder, self.index, self.task = folder, index, task
        self.place = TaskPlace(task, folder, index, loopback or len(task["nodes"]) == 1)
        self.logs = Path(task["logs"])
        host = "127.0.0.1" if self.place.loopback else socket.gethostname()
        self.journal = Journal(folder, index, name=self.place.name, host=host, guard=guard)
        self.ports = [KeptPort() for _ in range(self.place.ranks[index])] if self.place.roles else []
        if self.ports:
            self.journal.record["ports"] = [kept.port for kept in self.ports]
        self.children: list[Child] = []
        self.watchdog = Watchdog(self.journal, self.children, task.get("stall_seconds"), task["stall_action"])
        doubt = 0.0 if loopback else _DOUBT
        grace = task.get("grace") or GRACE
        self.farewell = Farewell(grace, task.get("notice") or grace, bool(task.get("signalled")))
        self.supervisor = Supervisor(
            self.journal,
            self.watchdog,
            self.children,
            limit=task["wall_seconds"],
            doubt=doubt,
            farewell=self.farewell,
        )
        self._contained: Contained | None = None
        self._preparation: Preparation | None = None
        self._began: int | None = None  # when the ranks were started

    @property
    def view(self) -> MachineView | None:
        """The view of the machine for the ranks, or None if they see the machine itself."""
        return None if self._preparation is None else self._preparation.view

    def run(self) -> int:
        """Runs the node and returns the exit code: 0, or that of the first failure on this node."""
        self._open()
        try:
            self._contain()
            self._prepare()
            self._start()
            self.supervisor.attend(self._is_done)
        except FolderGoneError:
            self._end_container()
            end_all(os.getpid())
            return 1
        except StoppedError:
            self.journal.note("stopped before the ranks were started")
        except Exception as error:  # whatever it is, the task ends, and says why
            self.journal.free_room()
            self.journal.fail(StopReason.ENGINE, f"the node cannot continue: {error}")
        self._finish()
        code = next((child.exit for child in self.children if child.exit), 0)
        if code and self.farewell.shared:
            self._await_others()
        return code

    def _await_others(self) -> None:
        """Waits until the other nodes have ended, whose ranks the batch system would end after the first bad exit."""
        end = time.monotonic() + self.farewell.grace + 1
        others = set(range(len(self.task["nodes"]))) - {self.index}
        while others and time.monotonic() < end and (self.folder / "task.json").exists():
            others = {index for index in others if not has_ended(read_node(self.folder, index))}
            time.sleep(_PAUSE)

    def _open(self) -> None:
        self.place.temporary.mkdir(parents=True, exist_ok=True)
        self.logs.mkdir(parents=True, exist_ok=True)
        self.journal.open(self.logs / log_names.execution(self.task, self.index))
        names = (log_names.output(self.task, self.index, stream) for stream in ("stdout", "stderr"))
        self.outputs = [LogFile(self.logs / name) for name in names]
        self.supervisor.listen()
        count, attempt = len(self.task["nodes"]), self.task["attempt"] + int(os.environ.get("SLURM_RESTART_COUNT") or 0)
        host = self.journal.record["host"]
        self.journal.note(f"node {self.index + 1} of {count}, attempt {attempt}, on {host}")
        for notice in self.task["notices"]:
            self.journal.note(notice)

    def _contain(self) -> None:
        """Starts the task's container, if it has one."""
        if container := self.task.get("container"):
            from batchhvd.node.contained import Contained  # most tasks have none

            self._contained = Contained(container, self.place, self.supervisor)
            self._contained.run()

    def _end_container(self) -> None:
        if self._contained is not None:
            self._contained.close()

    def _prepare(self) -> None:
        if (command := self.task["preparation"]) is not None:
            # What it imports takes 8 ms, and most tasks have no preparation.
            from batchhvd.node.preparation import Preparation

            self._preparation = Preparation(command, self.place, self.supervisor, self._contained)
            self._preparation.run()

    def _start(self) -> None:
        """Starts this node's ranks, if it has any."""
        self._require_script()
        self._require_launcher()
        self._name_hosts()
        meeting = Meeting(self.place, self.supervisor)
        where = meeting.find()
        addresses = self._addresses() if self.place.roles else []
        self._began = moment(self.place.temporary)
        for rank, local, command in self.place.commands():
            self._start_rank(rank, local, command, where | self._own(rank, local, addresses))
        meeting.open()  # only now: children must be created while there is one thread
        self.journal.record["state"] = NodeState.RUNNING
        self.journal.record["ranks"] = [child.record for child in self.children]
        self.watchdog.begin()
        self.journal.save()
        self._record()

    def _record(self) -> None:
        """Writes what the run is made of, on node 0; the run goes on if that fails."""
        if self.index != 0 or not self.task.get("script"):
            return
        from batchhvd.node.provenance import record  # many tasks have no script

        try:
            missing = record.write(self.task, self.place.variables(), self.logs)
        except OSError as error:
            missing = str(error)
        if missing:
            self.journal.note(f"warning: this run may not be repeated later as it is: {missing}")

    def _start_rank(self, rank: int, local: int, command: str, where: dict[str, str]) -> None:
        variables = self.place.variables() | self.place.libraries() | self.place.devices(rank, local) | where
        directory, view = self.place.temporary, self.view
        enter = None if view is None else lambda: view.enter(directory)
        if self._contained is None:
            child = Child(rank, command, variables, directory, self.outputs, enter)
        else:
            child = self._contained.child(rank, command, variables, self.outputs)
        self.supervisor.take(child)
        self.journal.note(f"rank {rank} started as process {child.pid}")

    def _own(self, rank: int, local: int, addresses: list[str]) -> dict[str, str]:
        """Returns the variables that tell a rank its place among the others."""
        if self.place.is_horovod:
            return horovod_variables(rank, self.place.ranks, self.task["nodes"])
        if self.place.launch == Launch.PYTORCH:
            return pytorch.place_variables(self.index, local, self.place.ranks)
        if self.place.launch == Launch.TENSORFLOW:
            return tensorflow.role_variables(rank, self.place.roles, addresses)
        return {}

    def _addresses(self) -> list[str]:
        """Returns address and port of each process of TensorFlow, as soon as every node has recorded its own."""
        indices = range(len(self.task["nodes"]))
        self.supervisor.attend_or_stop(lambda: all(node_path(self.folder, index).exists() for index in indices))
        records = [record for index in indices if (record := read_node(self.folder, index)) is not None]
        return [f"{record['host']}:{port}" for record in records for port in record.get("ports", ())]

    def _require_launcher(self) -> None:
        """Fails the task at once if it needs an MPI launcher and there is none."""
        brought = os.environ.get("BATCHHVD_LAUNCHER") or self._contained is not None
        needed = self.place.launch == Launch.MPI and self.index == 0 and not brought
        path = self.place.variables().get("PATH", "")
        if needed and not mpi.is_there(path, None if self.view is None else self.view.root):
            self.journal.fail(StopReason.ENGINE, mpi.ABSENT, code=127)
            raise StoppedError

    def _require_script(self) -> None:
        """Fails the task at once if its script does not exist."""
        script = expand(self.task.get("script") or "", self.place.variables())
        root = Path("/") if self.view is None else self.view.root  # a preparation may have created it
        path = os.path.join(self.place.temporary, script)
        there = os.path.exists(path) or os.path.exists(f"{root}{path}")
        if script and not there and not (self._contained and self._contained.has(path)):
            self.journal.fail(StopReason.SCRIPT, f"the script {script} does not exist", code=127)
            raise StoppedError

    def _name_hosts(self) -> None:
        """Writes the host file for MPI, on node 0, as soon as every node has recorded its host."""
        if self.index != 0:
            return
        slots: dict[str, int] = collections.defaultdict(int)
        for host, count in zip(self._hosts(), self.place.ranks, strict=True):
            slots[host] += max(1, count)
        text = "".join(f"{host} slots={count}\n" for host, count in slots.items())
        (self.folder / "hostfile").write_text(text, encoding="utf-8")

    def _hosts(self) -> list[str]:
        indices = range(len(self.task["nodes"]))
        if self.place.loopback:
            return ["127.0.0.1" for _ in indices]
        self.supervisor.attend_or_stop(lambda: all(node_path(self.folder, index).exists() for index in indices))
        records = [read_node(self.folder, index) for index in indices]
        return ["" if record is None else record["host"] for record in records]

    def _is_done(self) -> bool:
        self._excuse_servers()
        if not all(child.is_over for child in self.children):
            return False
        if self.journal.is_stopped:
            return True
        if self.supervisor.suspect is not None:
            return False
        return all(has_ended(read_node(self.folder, other)) for other in self._waits_for())

    def _excuse_servers(self) -> None:
        """Ends the parameter servers of this node once all other ranks of the task have ended."""
        servers = [child for child in self.children if self.place.is_server(child.rank) and child.ended_at is None]
        if not servers or self.journal.is_stopped:
            return
        others = range(len(self.task["nodes"]))
        mine = all(child.ended_at is not None or child in servers for child in self.children)
        if mine and tensorflow.work_is_done(self.place.roles, [read_node(self.folder, index) for index in others]):
            self.supervisor.excuse(servers)

    def _waits_for(self) -> range:
        """Returns the nodes that must end before this one may."""
        if self.place.starts_ranks:  # node 0 is the meeting point until all others have ended
            return range(1, len(self.task["nodes"])) if self.index == 0 else range(0)
        return range(0) if self.index == 0 else range(1)  # nodes without ranks stay until node 0 has ended

    def _finish(self) -> None:
        """Ends all remaining processes of this node and completes the record."""
        self._end_container()
        end_all(os.getpid())
        if self._began is not None:
            self._keep_work(self._began)
        if self._preparation is not None:
            self._preparation.close()
        self.journal.end()

    def _keep_work(self, began: int) -> None:
        """Moves what the ranks have left in their working directory beside the logs; the directory will be removed."""
        free = (self.logs / f"work-{self.place.name}{number}" for number in ("", *(f"-{n}" for n in range(2, 1000))))
        target = next(path for path in free if not path.exists())
        try:
            names = keep(self.place.temporary, target, began)
        except OSError as error:
            self.journal.note(f"what the ranks left in {self.place.temporary} cannot be kept: {error}")
            return
        if names:
            shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
            self.journal.note(f"the working directory is removed; its files are kept in {target.name}: {shown}")
