"""The meeting point of a task's ranks: node 0 opens it, the others look for it."""

from __future__ import annotations

import os

from batchhvd.node.folder.records import read_meeting, write_json
from batchhvd.node.folder.state import Launch
from batchhvd.node.launch import pytorch
from batchhvd.node.launch.ports import KeptPort
from batchhvd.node.rendezvous import (
    Rendezvous,
    interfaces,
    loopback,
    outgoing,
    reachable,
    rendezvous_variables,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from batchhvd.node.place import TaskPlace
    from batchhvd.node.supervisor import Supervisor

# Ranks that share few cores take very different times to import their framework; Horovod's own limit is 30 s.
_PATIENCE = {"HOROVOD_GLOO_TIMEOUT_SECONDS": "300"}


class Meeting:
    """The meeting point of Horovod's or PyTorch's ranks.

    Args:
        place: the node's place in the task.
        supervisor: looks after the node while it waits.
    """

    def __init__(self, place: TaskPlace, supervisor: Supervisor) -> None:
        self.place, self.supervisor = place, supervisor
        self._server: Rendezvous | None = None
        self._master: KeptPort | None = None

    def find(self) -> dict[str, str]:
        """Returns the variables that tell the ranks where the meeting point is.

        Raises:
            StoppedError: the task was stopped before there was one.
        """
        by_torch = self.place.launch == Launch.PYTORCH
        if not by_torch and (not self.place.is_horovod or sum(self.place.ranks) == 1):
            return {}
        address, port, interface = self._make(by_torch) if self.place.index == 0 else self._look(by_torch)
        self.supervisor.journal.note(f"ranks meet at {address}:{port}; this node reaches it by {interface}")
        if by_torch:
            return pytorch.meeting_variables(address, port, interface, self.place.own, self._file())
        patience = _PATIENCE | self.place.chosen("HOROVOD_GLOO_TIMEOUT_SECONDS")
        return {**patience, **rendezvous_variables(address, port, interface)}

    def open(self) -> None:
        """Begins to answer, if the meeting point is on this node; earlier connections have waited in the kernel."""
        if self._server is not None:
            self._server.start()

    def _file(self) -> Path | None:
        """Returns the file in which PyTorch's ranks meet: another one each time that the task is started."""
        again = os.environ.get("SLURM_RESTART_COUNT") or "0"
        path = self.place.folder / "shared" / f"pytorch-{again}"
        return path if pytorch.meets_by_file(self.place.own, self.place.folder) else None

    def _make(self, by_torch: bool) -> tuple[str, int, str]:
        on_loopback = self.place.loopback
        self._server = server = Rendezvous("127.0.0.1" if on_loopback else "0.0.0.0")
        own = [(loopback(), "127.0.0.1")] if on_loopback else interfaces()
        wanted = self.place.own.get("HOROVOD_GLOO_IFACE")
        own.sort(key=lambda pair: pair[0] != wanted)
        addresses = [address for _, address in own]
        path = self.place.folder / "rendezvous.json"
        record = {"addresses": addresses, "port": server.port, "name": server.name}
        if not by_torch:
            write_json(path, record)
            return addresses[0], server.port, own[0][0]
        self._master = KeptPort()
        write_json(path, {**record, "master": self._master.port})
        return addresses[0], self._master.port, own[0][0]

    def _look(self, by_torch: bool) -> tuple[str, int, str]:
        found: list[tuple[str, int]] = []
        self.supervisor.attend_or_stop(lambda: self._reach(found, by_torch))
        address, port = found[0]
        return address, port, loopback() if self.place.loopback else outgoing(address)

    def _reach(self, found: list[tuple[str, int]], by_torch: bool) -> bool:
        """Adds the first address at which node 0 answers, and returns whether there is one."""
        where = read_meeting(self.place.folder)
        if where is None:
            return False
        for address in where["addresses"]:
            if self.place.loopback or reachable(address, where["port"], where["name"]):
                found.append((address, where["master"] if by_torch else where["port"]))
                return True
        return False
