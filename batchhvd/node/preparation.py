"""Runs a node's preparation, once for each distinct command, in a view of the machine that the ranks then share."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from batchhvd.node import log_names
from batchhvd.node.child import Child
from batchhvd.node.folder.state import PreparationPlace, StopReason
from batchhvd.node.output import LogFile, TwinLog
from batchhvd.node.processes import end_all
from batchhvd.node.sandbox.layer import Layer, forget_old, layer_name
from batchhvd.node.sandbox.mounting import mount, own_mounts, remove
from batchhvd.node.sandbox.view import MachineView
from batchhvd.node.supervisor import StoppedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from batchhvd.node.contained import Contained
    from batchhvd.node.place import TaskPlace
    from batchhvd.node.supervisor import Supervisor


class Preparation:
    """The preparation of a node: runs it, or uses what an earlier run of it has left.

    Args:
        command: its command line.
        place: the node's place in the task.
        supervisor: looks after its processes.
        contained: the node's container, in which it runs then, or None.

    Attributes:
        view: the view of the machine for the ranks, or None if they see the machine itself.
    """

    def __init__(
        self, command: str, place: TaskPlace, supervisor: Supervisor, contained: Contained | None = None
    ) -> None:
        self.command, self.place, self.supervisor = command, place, supervisor
        self.journal, self.contained = supervisor.journal, contained
        self.view: MachineView | None = None
        self.layers = Path(place.task.get("layers") or place.folder / "layers")
        self._changes = place.folder / f"changes-{place.index}"
        self._own: Layer | None = None  # a layer that only this node may use

    def run(self) -> None:
        """Runs it.

        Raises:
            StoppedError: it failed, or the task was stopped meanwhile.
            OSError: the disk is full, or this machine does not allow what is needed.
        """
        journal, began = self.journal, time.monotonic()
        logs = [self._log(stream) for stream in ("stdout", "stderr")]
        where = self._where()
        run = {
            PreparationPlace.SKIP: self._skip,
            PreparationPlace.HOST: self._on_host,
            PreparationPlace.OVERLAY: self._in_layer,
            PreparationPlace.CONTAINER: self._on_host,
        }[where]
        code, tail = run(logs)
        journal.record["preparation"] = {"exit": code, "seconds": time.monotonic() - began, "where": where}
        journal.note(f"preparation ({where}) ended with exit code {code}")
        if code and not journal.is_stopped:
            error = f"the preparation ended with exit code {code}"
            journal.fail(StopReason.PREPARATION, error, code=code, tail=tail)
        if journal.is_stopped:
            raise StoppedError

    def close(self) -> None:
        """Removes the ranks' view, with everything that they have changed in it."""
        try:
            if self.view is not None:
                self.view.close()
            remove(self._changes)
            if self._own is not None:
                self._own.remove()
                self._own.lock_file.unlink(missing_ok=True)
        except OSError as error:
            self.journal.note(f"the ranks' view could not be removed: {error}")

    def _log(self, stream: str) -> LogFile:
        task = self.place.task
        return LogFile(Path(task["logs"]) / log_names.preparation(task, self.place.index, stream))

    # -- where it runs --

    def _where(self) -> PreparationPlace:
        """Returns where the preparation runs: as the task says, or nowhere if this machine does not allow that."""
        asked = PreparationPlace(self.place.task["prepare"])
        if self.contained is not None:  # which is thrown away, as a layer is
            return asked if asked == PreparationPlace.SKIP else PreparationPlace.CONTAINER
        if asked != PreparationPlace.OVERLAY:
            return asked
        try:
            try_view(self.layers, lambda place: self._new_view(place, None))
        except OSError as error:
            self.journal.note(
                f"a preparation must not change this machine, and no copy-on-write view is possible: {error}"
            )
            return PreparationPlace.SKIP
        return asked

    # -- the three ways --

    def _skip(self, logs: Sequence[LogFile]) -> tuple[int, list[str]]:
        self.journal.note(f"the job preparation is skipped: {self.command}")
        logs[0].write(f"The job preparation was skipped on this machine: {self.command}\n".encode())
        return 0, []

    def _on_host(self, logs: Sequence[LogFile], view: MachineView | None = None) -> tuple[int, list[str]]:
        self.journal.note(f"preparation: {self.command}")
        variables = {"DEBIAN_FRONTEND": "noninteractive"} | self.place.variables()
        directory = self.place.temporary
        enter = None if view is None else lambda: view.enter(directory)
        if self.contained is None:
            child = Child(-1, self.command, variables, directory, logs, enter)
        else:
            child = self.contained.child(-1, self.command, variables, logs)
        self.supervisor.take(child)
        self.supervisor.attend(lambda: child.is_over and self.supervisor.is_sure(child))
        self.supervisor.children.remove(child)
        return child.exit or 0, child.record["tail"]

    def _in_layer(self, logs: Sequence[LogFile]) -> tuple[int, list[str]]:
        """Runs it in a layer, once: a node that comes while it runs waits, and one that comes later finds it done."""
        layer = Layer(self.layers / layer_name(self.command, self.place.variables()))
        self.supervisor.attend_or_stop(layer.take)  # until this node ends, so that nobody removes the layer
        done, name = layer.is_done, layer.path.name
        self.journal.note(f"the preparation is done already: {name}" if done else f"the layer is {name}")
        before = self._written()
        code, tail = (0, list[str]()) if done else self._fill(layer, logs)
        if not done and not code and self._written() != before:
            layer = self._own = layer.moved()
            self.journal.note("it wrote into this job's own folders: it runs again for each node and each job")
        if not done and not code and not self.journal.is_stopped:
            layer.done.write_text(self.command, encoding="utf-8")
        for log, text in zip(logs, layer.output(), strict=True) if done else ():
            log.write(text)
        if code:
            layer.remove()
        else:
            layer.share()
            self.view = self._stacked(layer.changes)
        forget_old(self.layers)
        return code, tail

    def _fill(self, layer: Layer, logs: Sequence[LogFile]) -> tuple[int, list[str]]:
        layer.remove()  # what is left of a preparation that was killed
        layer.path.mkdir(mode=0o700)
        view = self._new_view(layer.changes, None)
        names = ("stdout", "stderr")  # of the layer, for the jobs that come later; the job's own show it as it comes
        code, tail = self._on_host(
            [TwinLog(layer.path / name, log) for name, log in zip(names, logs, strict=True)], view
        )
        end_all(os.getpid())  # a daemon that it started would keep using the layer
        view.close()
        return code, tail

    def _written(self) -> dict[str, tuple[int, int, int] | None]:
        """Returns what lies in the folders of this job that a preparation may write to, and that no layer contains."""
        above = self.place.temporary.parent  # of all nodes; each writes into its own folder there
        found = {str(path): _facts(path) for path in above.glob("*") if not path.name.isdigit()}
        for top in (self.place.temporary, self.place.folder / "shared"):
            found |= {str(path): _facts(path) for path in top.rglob("*")}
        return found

    # -- views --

    def _stacked(self, below: Path) -> MachineView:
        """Returns the view for this node's ranks: the preparation's changes, and above them their own."""
        try:
            return self._new_view(self._changes, below)
        except OSError as error:  # such as in a container, whose "/" is an overlay already: the kernel stacks two
            self.journal.note(f"the prepared layer is copied, since it cannot be stacked: {error}")
            remove(self._changes)
            subprocess.run(["cp", "-a", str(below), str(self._changes)], check=True)
            return self._new_view(self._changes, None)

    def _new_view(self, changes: Path, below: Path | None) -> MachineView:
        folder = self.place.folder
        found = [path for name in ("mounts", "cluster") for path in (folder / name).glob("**/*")]
        shares = [path.resolve() for path in found if path.is_symlink()]
        binds = [folder, Path(self.place.task["logs"]), *shares]
        return MachineView(folder / f"view-{self.place.index}", changes, below, binds)


def try_view(layers: Path, make: Callable[[Path], MachineView]) -> None:
    """Mounts a view once; if the folder for layers cannot take changes, memory takes its place.

    Args:
        layers: the folder for layers.
        make: mounts a view whose changes go to a folder.

    Raises:
        OSError: this machine does not allow it.
    """
    own_mounts()
    layers.mkdir(parents=True, exist_ok=True)
    place = layers / f".try-{os.getpid()}"
    try:
        make(place).close()
    except OSError:
        mount("tmpfs", str(layers), "tmpfs", options="mode=700")
        make(place).close()
    remove(place)


def why_not(layers: Path) -> str:
    """Returns why a preparation cannot run in a view of this machine, "" if it can.

    It does what a node does before its preparation, so it needs a process of its own.
    """
    above = layers / f".look-{os.getpid()}"
    try:
        try_view(layers, lambda place: MachineView(above, place, None, []))
        remove(above)
    except OSError as error:
        return str(error)
    return ""


def _facts(path: Path) -> tuple[int, int, int] | None:
    try:
        facts = path.lstat()
    except FileNotFoundError:  # another node removed it
        return None
    return facts.st_ino, facts.st_ctime_ns, facts.st_size
