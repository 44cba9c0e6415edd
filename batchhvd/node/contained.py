"""Runs a node's processes in a container: brings the image, starts the container, and removes both at the end."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import signal
import time
from pathlib import Path

from batchhvd.node.child import Child
from batchhvd.node.container import image as images
from batchhvd.node.container import reaper
from batchhvd.node.container.engine import ContainerEngine, quiet_environment
from batchhvd.node.container.variables import exports, of_image, unset_names
from batchhvd.node.folder.records import read_task
from batchhvd.node.folder.state import Launch, StopReason
from batchhvd.node.output import LogFile, last_lines
from batchhvd.node.place import expand, gpus
from batchhvd.node.supervisor import StoppedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchhvd.node.folder.document import ContainerDocument
    from batchhvd.node.place import TaskPlace
    from batchhvd.node.supervisor import Supervisor

_CLOSING = 5.0  # seconds in which a container ends after its first process; then it is removed by force
_ROOT_MAY_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


class ContainerError(Exception):
    """The image cannot be had, or the container does not start.

    Attributes:
        reason: ``StopReason.IMAGE`` or ``StopReason.CONTAINER``.
        tail: what the engine said last.
    """

    def __init__(self, reason: StopReason, message: str, told: str = "") -> None:
        super().__init__(message)
        self.reason, self.tail = reason, last_lines(told.encode())[-5:]


class KeptLog(LogFile):
    """Keeps what is written in memory: the answer of a command."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes) -> None:
        """Appends data."""
        self.data += data

    @property
    def text(self) -> str:
        """What was written, as text."""
        return self.data.decode("utf-8", "replace")


class ContainedChild(Child):
    """A process in a container; the child of the runner is the engine's command that waits for it.

    Attributes:
        pid_file: gets the process's number inside the container.
        control: the container's first process reads here what to signal.
    """

    pid_file: Path
    control: int

    def signal_group(self, number: int) -> None:
        """Sends a signal to the process group inside the container, unless its first process has ended."""
        if self.ended_at is not None:
            return
        with contextlib.suppress(OSError):  # the container has ended
            pid = self.pid_file.read_text().strip() if self.pid_file.exists() else ""
            if pid.isdecimal():
                os.write(self.control, f"{signal.Signals(number).name[3:]} {pid}\n".encode())
            else:  # it has not begun yet
                super().signal_group(number)

    def ended(self, status: int, killed_by_us: bool) -> None:
        """Records how it ended; the engine's command tells a signal as a shell does, by 128 and its number."""
        code = os.waitstatus_to_exitcode(status) - 128
        super().ended(code if code in signal.valid_signals() else status, killed_by_us)


class Contained:
    """The container of a node.

    Args:
        container: what the task says about it.
        place: the node's place in the task.
        supervisor: looks after its processes.
    """

    def __init__(self, container: ContainerDocument, place: TaskPlace, supervisor: Supervisor) -> None:
        self.container, self.place, self.supervisor = container, place, supervisor
        self.journal = supervisor.journal
        self.engine = ContainerEngine(container["engine"])
        self.name = container_name(place.folder, place.index)
        self._private = place.folder / f"container-{place.index}"
        self._main: Child | None = None
        self._control = -1
        self._count = 0

    def run(self) -> None:
        """Brings the image and starts the container.

        Raises:
            StoppedError: it failed, or the task was stopped meanwhile.
        """
        began = time.monotonic()
        self._private.mkdir(mode=0o700, exist_ok=True)
        try:
            self._check()
            self._open()
        except ContainerError as error:
            if not self.journal.is_stopped:
                self.journal.fail(error.reason, str(error), tail=error.tail)
            raise StoppedError from None
        seconds = time.monotonic() - began
        watchdog = self.supervisor.watchdog
        if self.engine.name == "docker" and watchdog.limit is not None:
            watchdog.limit = None  # the processes are its daemon's, so this runner does not see them compute
            self.journal.note("whether all ranks stall is not watched: docker's daemon has their processes")
        self.journal.note(f"{self.engine.name} runs {self.container['image']} as {self.name} after {seconds:.1f} s")

    def _check(self) -> None:
        if not self.engine.is_there:
            text = f"this node has no {self.engine.name}, with which its service runs container images"
            raise ContainerError(StopReason.CONTAINER, text)
        if self.place.task["launch"] == Launch.MPI and not self.place.loopback:
            text = "a customMpi job in a container runs on one node: MPI's own launcher does not reach into another one"
            raise ContainerError(StopReason.CONTAINER, text)

    def _open(self) -> None:
        lock = os.open(reaper.lock_file(), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:  # from here to the container's start nobody may remove the image
            self.supervisor.attend_or_stop(lambda: reaper.try_lock(lock))
            for name in reaper.reap(self.engine):
                self.journal.note(f"the container {name} of a node that was killed is removed")
            image = self._brought()
            id, variables = self._inspected(image)
            self.journal.note(f"the image is {id}")
            self.place.base = {**variables, **_ROOT_MAY_MPI}
            self._begin(image)
        finally:
            os.close(lock)

    # -- the image --

    def _brought(self) -> str:
        """Returns a name of the image in the local storage, after bringing it there if necessary."""
        if self.engine.name == "apptainer":
            return self._for_apptainer()
        if path := images.archive_of(self.container["image"]):
            return self._from_archive(expand(path, self.place.variables()))
        name = images.full_name(self.container["image"], self.container["server"])
        for there in (self.container["image"], name) if not self.container["server"] else (name,):
            if self._ask(self.engine.inspect(there))[0] == 0:
                return there
        return self._pulled(name)

    def _for_apptainer(self) -> str:
        image = self.container["image"]
        if path := images.archive_of(image):
            return f"{image.partition(':')[0]}:{expand(path, self.place.variables())}"
        return f"docker://{images.full_name(image, self.container['server'])}"

    def _pulled(self, name: str) -> str:
        mark = images.mark(name, self.container["username"], self.container["password"])
        if self._ask(self.engine.inspect(mark))[0] == 0:
            return mark
        self.journal.note(f"the image {name} is not in the storage of {self.engine.name}: it is pulled for this job")
        images.write_credentials(self._private, self.container)
        code, told = self._ask(self.engine.pull(name, str(self._private)))
        (self._private / "config.json").unlink(missing_ok=True)
        if code:
            text = f"the image {name} is not on this node, and it could not be pulled from its registry"
            raise ContainerError(StopReason.IMAGE, text, told)
        self._renamed(name, mark)
        return mark

    def _from_archive(self, path: str) -> str:
        if not os.path.exists(path):
            raise ContainerError(StopReason.IMAGE, f"the archive of the image does not exist: {path}")
        facts = os.stat(path)
        mark = images.mark(path, str(facts.st_mtime_ns), str(facts.st_size))
        if self._ask(self.engine.inspect(mark))[0] == 0:
            return mark
        try:
            names = [images.full_name(name) for name in images.names_in(path)]
        except (ValueError, OSError) as error:
            raise ContainerError(StopReason.IMAGE, f"the archive of the image cannot be used: {error}") from None
        before = {name: self._ask(self.engine.inspect(name)) for name in names}
        code, told = self._ask(self.engine.load(path))
        loaded = re.findall(r"Loaded image(?: ID|\(s\))?: *(\S+)", told)
        if code or not loaded:
            text = f"the archive of the image could not be loaded: {path} (damaged, or of another kind)"
            raise ContainerError(StopReason.IMAGE, text, told)
        self._must(self.engine.tag(loaded[0], mark))
        for name in dict.fromkeys((*loaded, *names)):  # names that were here keep their meaning
            self._restore(name, before.get(name, (1, "")))
        return mark

    def _renamed(self, name: str, mark: str) -> None:
        self._must(self.engine.tag(name, mark))
        self._must(self.engine.untag(name))

    def _restore(self, name: str, before: tuple[int, str]) -> None:
        """Gives a name back to the image that had it before an archive was loaded, or takes it away."""
        code, printed = before
        if code == 0:
            self._must(self.engine.tag(of_image(printed)[0], name))
        elif not name.startswith("sha256:"):
            self._ask(self.engine.untag(name))

    def _inspected(self, image: str) -> tuple[str, dict[str, str]]:
        if self.engine.name == "apptainer":  # it sets an image's variables itself
            return image, {}
        return of_image(self._must(self.engine.inspect(image)))

    # -- the container --

    def _begin(self, image: str) -> None:
        """Starts the container and waits until its first process says that it is there."""
        for path in self._private.iterdir():
            path.unlink()
        self._ask(self.engine.remove(self.name))  # what an earlier attempt in this folder has left
        shared = [*dict.fromkeys(map(str, shared_folders(self.place)))]
        devices = gpus() if self.place.own.get("AZ_BATCHAI_NUM_GPUS", "0") != "0" else []
        label = f"{self.place.folder}:{self.place.index}"
        try:
            words = self.engine.run(
                self.name, image, label=label, binds=shared, shm=self.container["shm"], gpus=devices
            )
        except ValueError as error:
            raise ContainerError(StopReason.CONTAINER, str(error)) from None
        logs = (KeptLog(), KeptLog())
        self._main = self._launched(words, logs)
        self.supervisor.children.remove(self._main)  # it is none of the node's ranks
        if self.engine.name == "apptainer":  # its command returns when the container is there
            self._main = None

    def _launched(self, words: Sequence[str], logs: Sequence[KeptLog]) -> Child:
        reads, self._control = os.pipe()
        os.set_inheritable(self._control, False)
        main = Child(-1, _shell(words), _environment(), self.place.temporary, logs, stdin=reads)
        os.close(reads)
        self.supervisor.take(main)
        self.supervisor.attend(lambda: self.journal.is_stopped or b"ready" in logs[0].data or main.is_over)
        if self.journal.is_stopped:
            raise StoppedError
        ready = main.exit == 0 if self.engine.name == "apptainer" else not main.is_over
        if not ready:
            self.supervisor.children.remove(main)
            text = f"{self.engine.name} could not start a container of the image {self.container['image']}"
            raise ContainerError(StopReason.CONTAINER, text, logs[1].text or logs[0].text)
        return main

    def child(self, rank: int, command: str, variables: dict[str, str], logs: Sequence[LogFile]) -> Child:
        """Starts a process in the container; the arguments are those of ``Child``."""
        self._count += 1
        file, pid = (self._private / f"{self._count}.{kind}" for kind in ("sh", "pid"))
        if left := unset_names(variables):
            self.journal.note(f"a shell cannot set the variables {', '.join(left)}: they are missing in the container")
        images.write_private(file, exports(variables))
        words = self.engine.execute(self.name, str(self.place.temporary), str(file), str(pid), command)
        if self.engine.name == "apptainer":  # its command becomes the process itself
            return Child(rank, _shell(words), _environment(), self.place.temporary, logs)
        child = ContainedChild(rank, _shell(words), _environment(), self.place.temporary, logs)
        child.pid_file, child.control = pid, self._control
        return child

    def has(self, path: str) -> bool:
        """Says whether a file exists in the container."""
        words = self.engine.execute(self.name, "/", "/dev/null", "/dev/null", f"[ -e {shlex.quote(path)} ]")
        return self._ask(words)[0] == 0

    def close(self) -> None:
        """Ends everything in the container and removes it, and the images that only jobs have brought."""
        if self._control >= 0:
            os.close(self._control)
            self._control = -1
        if self._main is not None:
            _await(self._main.pid, _CLOSING)
        remove(self.engine, self.name)
        shutil.rmtree(self._private, ignore_errors=True)

    # -- the engine's commands --

    def _ask(self, words: Sequence[str]) -> tuple[int, str]:
        """Runs a command of the engine; returns its exit code and what it wrote, if it failed its errors too.

        Raises:
            StoppedError: the task was stopped meanwhile.
        """
        logs = (KeptLog(), KeptLog())
        child = Child(-1, _shell(words), _environment(), self.place.temporary, logs)
        self.supervisor.take(child)
        self.supervisor.attend(lambda: child.is_over)
        self.supervisor.children.remove(child)
        if self.journal.is_stopped:
            raise StoppedError
        return child.exit or 0, logs[0].text + (logs[1].text if child.exit else "")

    def _must(self, words: Sequence[str]) -> str:
        code, told = self._ask(words)
        if code:
            raise ContainerError(StopReason.CONTAINER, f"`{shlex.join(words[:3])} …` failed", told)
        return told


def shared_folders(place: TaskPlace) -> list[Path]:
    """Returns the directories that a view or a container of the node shares with the machine."""
    found = [path for name in ("mounts", "cluster") for path in (place.folder / name).glob("**/*")]
    return [place.folder, Path(place.task["logs"]), *(path.resolve() for path in found if path.is_symlink())]


def container_name(folder: Path, index: int) -> str:
    """Returns the name of a node's container: the end of its folder's path, and a digest of the whole of it."""
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:10]
    task = re.sub(r"[^a-zA-Z0-9_.-]", "-", f"{folder.parent.name}-{folder.name}")[-42:]
    return f"batchhvd-{task}-{digest}-{index}"


def remove(engine: ContainerEngine, name: str) -> None:
    """Removes a container, and the images that jobs have brought and none uses."""
    reaper.remove_container(engine, name)
    with contextlib.suppress(OSError):
        lock = os.open(reaper.lock_file(), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if reaper.try_lock(lock):  # otherwise whoever brings an image now removes it later
                reaper.forget_images(engine)
        finally:
            os.close(lock)


def remove_left(folder: Path, index: int) -> None:
    """Removes the container of a node whose runner was killed."""
    task = read_task(folder)
    if task is not None and (container := task.get("container")):
        remove(ContainerEngine(container["engine"]), container_name(folder, index))
        shutil.rmtree(folder / f"container-{index}", ignore_errors=True)


def _shell(words: Sequence[str]) -> str:
    return f"exec {shlex.join(words)}"


def _environment() -> dict[str, str]:
    return quiet_environment(os.environ)


def _await(pid: int, seconds: float) -> None:
    """Waits until a child of this process has ended."""
    deadline = time.monotonic() + seconds
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(pid, os.WNOHANG)[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
