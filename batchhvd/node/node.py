#!/usr/bin/env python3
"""Runs nodes of a task: ``python3 node.py FOLDER [INDEX ...] [--loopback]``.

This file stands alone: it needs Python's standard library only and may be copied to a node. FOLDER is the task's
folder, which every node can read and write; INDEX is this node's place in ``task.json`` (``SLURM_NODEID`` where it is
left out). With ``--loopback`` all nodes are this machine, and nothing listens on another address than 127.0.0.1. With
several indices it starts these nodes and returns as soon as they have begun.

Order of events: the preparation once, then the ranks of this node, each in a process group of its own, until all have
ended or the first failure anywhere stops all. ``node-<INDEX>.json`` says at each moment how far this node is:

    {"index", "node", "host", "pid", "ticks", "guard": {"pid", "ticks"}, "started", "ended" or null,
     "state": "preparing" | "running" | "ended", "preparation": null or {"exit", "seconds", "where"},
     "ranks": [{"rank", "pid", "started", "ended", "exit", "signal", "memory", "tail"}],
     "reason": "" or why this node ended otherwise than well, "error": the same in a sentence}

``stop.json`` is made by whoever sees the first failure (or by a cancellation): {"reason", "node", "rank", "exit_code",
"error", "tail"}. Two processes run on each node: the *guard*, which is the one that was started, and the *runner*, its
child. When the runner is killed, the guard ends what it left behind and completes the record.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import errno
import fcntl
import glob
import hashlib
import json
import os
import re
import selectors
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    Document = dict[str, Any]

LINUX = sys.platform.startswith("linux")
GRACE = 3.0  # seconds between SIGTERM and SIGKILL
PARTIAL = 0.2  # seconds that an unfinished line may wait
BEAT = 0.2  # seconds between two looks at stop.json
DOUBT = 0.3  # seconds after which a failure counts as a rank's own: a batch system signals ranks and runner together
TAIL = 20  # lines kept of each rank
KEPT = 30 * 86400  # seconds that a prepared layer is kept after its last use
IDLE_SHARE = 0.1  # of a core; a rank below that only waits (Horovod's own thread takes a few percent)


# ---- files ---------------------------------------------------------------------------------------------------------


def write_json(path: Path, document: object) -> None:
    """Replaces a file by a document; a reader sees the old one or the new one, never a part."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(json.dumps(document), encoding="utf-8")
    scratch.replace(path)


def read_json(path: Path) -> Document | None:
    """Returns a file's document, or None where there is no such file."""
    try:
        document: Document = json.loads(path.read_text(encoding="utf-8"))
        return document
    except FileNotFoundError:
        return None


def declare(folder: Path, **why: object) -> bool:
    """Makes ``stop.json`` and says whether this was the first to do so; the first one's words stand."""
    scratch = folder / f".stop.{os.getpid()}"
    scratch.write_text(json.dumps({"node": "", "rank": None, "exit_code": None, "error": "", **why}), encoding="utf-8")
    try:
        os.link(scratch, folder / "stop.json")  # fails where it exists, and is never seen half written
    except FileExistsError:
        return False
    finally:
        scratch.unlink()
    return True


def expand(text: str, variables: dict[str, str]) -> str:
    """Replaces ``$NAME`` and ``${NAME}`` by the variables' values; unknown names stay as they are."""
    return re.sub(
        r"\$(?:(\w+)|\{(\w+)\})", lambda found: variables.get(found[1] or found[2], found[0]), text, flags=re.ASCII
    )


# ---- processes -----------------------------------------------------------------------------------------------------


def _prctl(option: int, value: int) -> None:
    if LINUX:
        _LIBC.prctl(option, value, 0, 0, 0)


_LIBC = ctypes.CDLL(None, use_errno=True)
_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Asks the kernel to send this process a signal when its parent ends (Linux only)."""
    _prctl(_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # it ended before the kernel was asked
        os.kill(os.getpid(), number)


def ticks(pid: int) -> int | None:
    """Returns when a process started, in the kernel's clock ticks, or None where it is gone (or a zombie)."""
    stat = _stat(pid)
    return int(stat[19]) if stat and stat[0] != "Z" else None


def _stat(pid: int | str) -> list[str] | None:
    """Returns the fields of /proc/PID/stat after the name: state, parent, group, session, …"""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return None


def descendants(root: int) -> list[int]:
    """Returns all living processes below one, children before grandchildren; none where there is no /proc."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if LINUX else ():
        stat = _stat(name) if name.isdigit() else None
        if stat and stat[0] != "Z":
            children.setdefault(int(stat[1]), []).append(int(name))
    found = list(children.get(root, ()))
    for pid in found:
        found.extend(children.get(pid, ()))
    return found


def send(pids: list[int], number: int) -> None:
    """Sends a signal to processes, some of which may be gone."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def end_all(root: int, seconds: float = 2.0) -> None:
    """Kills everything below a process and reaps what is its own, until nothing is left."""
    deadline = time.monotonic() + seconds
    while (left := descendants(root)) and time.monotonic() < deadline:
        send(left, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)  # the kernel needs a moment to let them go


def cpu_seconds(pids: list[int]) -> float:
    """Returns the processor time that processes have used so far."""
    rate = os.sysconf("SC_CLK_TCK")
    return sum(int(stat[11]) + int(stat[12]) for stat in map(_stat, pids) if stat) / rate


def stacks(pid: int, last_chance: bool) -> str:
    """Returns what a process is doing: its Python stacks where they can be had, else what the kernel says.

    py-spy reads them from outside. Without it a process that has a handler for SIGUSR1 is asked to write them itself,
    and one that is about to be ended anyway gets SIGABRT, at which Python's faulthandler writes them to its stderr.
    """
    if (spy := shutil.which("py-spy")) is not None:
        found = subprocess.run(
            [spy, "dump", "--nonblocking", "--pid", str(pid)], capture_output=True, text=True, timeout=20
        )
        if found.returncode == 0:
            return f"process {pid}: {found.stdout}"
    told = _kernel_says(pid)
    if _catches(pid, signal.SIGUSR1):
        send([pid], signal.SIGUSR1)
        return f"{told}; it was asked to write its stacks to stderr.txt (SIGUSR1)"
    if last_chance and _catches(pid, signal.SIGABRT):
        send([pid], signal.SIGABRT)
        send([pid], signal.SIGCONT)
        return f"{told}; it was told to write its stacks to stderr.txt and end (SIGABRT)"
    return told


def _kernel_says(pid: int) -> str:
    words = []
    for name in ("comm", "wchan"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/{name}", encoding="utf-8", errors="replace") as file:
            words.append(file.read().strip())
    return f"process {pid}: {' in '.join(words)}, state {(_stat(pid) or ['gone'])[0]}"


def _catches(pid: int, number: int) -> bool:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        mask = next((line.split()[1] for line in file if line.startswith("SigCgt:")), "0")
        return bool(int(mask, 16) >> (number - 1) & 1)
    return False


def gpus() -> list[str]:
    """Returns the device files of this machine's NVIDIA GPUs."""
    return glob.glob("/dev/nvidia[0-9]*")


def memory_kills() -> int:
    """Returns how many processes the kernel has killed for want of memory since it started."""
    try:
        with open("/proc/vmstat", encoding="ascii") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("oom_kill ")), 0)
    except OSError:
        return 0


# ---- output --------------------------------------------------------------------------------------------------------


class Sink:
    """A log file that processes of several nodes append to, a whole piece at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def write(self, data: bytes) -> None:
        """Appends data; no other node's piece comes between its bytes."""
        fcntl.lockf(self.descriptor, fcntl.LOCK_EX)
        try:
            while data:
                data = data[os.write(self.descriptor, data) :]
        finally:
            fcntl.lockf(self.descriptor, fcntl.LOCK_UN)


class Stream:
    """One end of a rank's pipe: cuts what arrives into whole lines, or whole characters when a line takes its time."""

    def __init__(self, descriptor: int, sink: Sink, last: bytearray) -> None:
        self.descriptor, self.sink, self.last = descriptor, sink, last
        self.pending = b""
        self.since = 0.0
        self.count = 0
        self.unfinished = False

    def read(self, now: float) -> bool:
        """Takes what has arrived and writes the whole lines of it; False at the end."""
        data = os.read(self.descriptor, 65536)
        if not self.pending:
            self.since = now
        self.pending += data
        self.count += len(data)
        self.last += data
        del self.last[:-8192]
        self._emit(len(self.pending) if not data else self.pending.rfind(b"\n") + 1, now)
        return bool(data)

    def flush(self, now: float) -> None:
        """Writes the beginning of a line that has waited long enough."""
        if self.pending and (now - self.since >= PARTIAL or len(self.pending) > 65536):
            self._emit(whole(self.pending), now)

    def end_line(self) -> None:
        """Ends a line that was cut off, so that what is written next (another attempt's) begins a line of its own."""
        if self.unfinished:
            self.sink.write(b"\n")
            self.unfinished = False

    def _emit(self, cut: int, now: float) -> None:
        data, self.pending = self.pending[:cut], self.pending[cut:]
        if data:
            self.since = now
            self.sink.write(data)
            self.unfinished = not data.endswith(b"\n")


def whole(data: bytes) -> int:
    """Returns how many bytes at the start of data make whole UTF-8 characters (all, where it is not UTF-8)."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:  # the last byte that begins a character
            need = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return len(data) - back if need > back else len(data)
    return len(data)


def last_lines(data: bytes | bytearray) -> list[str]:
    """Returns the last lines of an output as text; a carriage return ends a line too, as a terminal shows it."""
    return [line for line in bytes(data).decode("utf-8", "replace").splitlines() if line.strip()][-TAIL:]


# ---- one child -----------------------------------------------------------------------------------------------------


class Child:
    """A process group with its output: a rank, or the preparation."""

    def __init__(
        self,
        rank: int,
        command: str,
        variables: dict[str, str],
        directory: Path,
        sinks: Sequence[Sink],
        enter: Callable[[], None] | None = None,
    ) -> None:
        parent = os.getpid()

        def before() -> None:
            die_with_parent(parent)
            if enter is not None:
                enter()

        shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
        self.process = subprocess.Popen(
            [shell, "-c", command],
            env=variables,
            cwd=directory if enter is None else None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=before,  # safe: no second thread runs yet when children are made
        )
        self.pipes = tuple(pipe for pipe in (self.process.stdout, self.process.stderr) if pipe is not None)
        self.last = bytearray()
        self.streams = [Stream(pipe.fileno(), sink, self.last) for pipe, sink in zip(self.pipes, sinks, strict=True)]
        self.both = tuple(self.streams)
        self.pid = self.process.pid
        self.kills = memory_kills()
        self.record: Document = {"rank": rank, "pid": self.pid, "started": time.time(), "ended": None, "exit": None}
        self.record |= {"signal": None, "memory": False, "tail": []}
        self.ended_at: float | None = None

    @property
    def written(self) -> int:
        """How many bytes it has written so far."""
        return sum(stream.count for stream in self.both)

    @property
    def over(self) -> bool:
        """Whether it has ended and all its output is written."""
        return self.ended_at is not None and not self.streams

    def ended(self, status: int, killed_by_us: bool) -> None:
        """Takes down how it ended, from the kernel's wait status."""
        code = os.waitstatus_to_exitcode(status)
        self.process.returncode = code
        self.ended_at = time.monotonic()
        self.record["ended"] = time.time()
        self.record["exit"] = code if code >= 0 else 128 - code
        self.record["signal"] = -code if code < 0 else None
        self.record["memory"] = not killed_by_us and code == -signal.SIGKILL and memory_kills() > self.kills

    def close(self) -> None:
        """Takes down the last lines, once all output was read."""
        if 128 < self.record["exit"] <= 128 + signal.NSIG:  # by a signal, its own or its shell's child's
            for stream in self.both:
                stream.end_line()
        self.record["tail"] = last_lines(self.last)
        text = "\n".join(self.record["tail"][-3:])
        if self.record["exit"] and re.search(r"^(MemoryError|.*std::bad_alloc)", text, flags=re.MULTILINE):
            self.record["memory"] = True
        for pipe in self.pipes:
            pipe.close()


# ---- Horovod's meeting point ---------------------------------------------------------------------------------------


class Rendezvous(threading.Thread):
    """A key-value store over HTTP, as Horovod's gloo controller asks for it: PUT, GET and DELETE of /scope/key.

    Source: horovod/common/gloo/http_store.cc. A rank deletes its own number in a scope once it is connected to all;
    when all numbers of the scope are deleted, the scope is emptied, so that ``shutdown`` and ``init`` may follow each
    other.
    """

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.name = os.urandom(12).hex()
        self.scopes: dict[str, dict[str, bytes]] = collections.defaultdict(dict)
        self.left: dict[str, set[str]] = collections.defaultdict(set)
        self.lock = threading.Lock()
        self.listener = socket.create_server((address, 0), backlog=1024)
        self.port = self.listener.getsockname()[1]

    def run(self) -> None:
        """Serves until the process ends."""
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(10)
        with contextlib.suppress(OSError, ValueError), connection, connection.makefile("rb") as file:
            method, path, _ = file.readline(65536).decode("latin-1").split(" ", 2)
            length = 0
            while (line := file.readline(65536)) not in (b"\r\n", b"\n", b""):
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            found = self.answer(method, path, file.read(length))
            status = b"404 Not Found" if found is None else b"200 OK"
            head = b"HTTP/1.1 %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (status, len(found or b""))
            connection.sendall(head + (found or b""))

    def answer(self, method: str, path: str, body: bytes) -> bytes | None:
        """Returns the answer's body, or None for what is not there."""
        _, scope, key = (path + "//").split("/")[:3]
        with self.lock:
            if method == "PUT":
                self.scopes[scope][key] = body
                return b""
            if method == "DELETE":
                self._leave(scope, key)
                return b""
            return self.name.encode() if scope == "name" else self.scopes[scope].get(key)

    def _leave(self, scope: str, key: str) -> None:
        self.left[scope].add(key)
        if self.left[scope] >= {name for name in self.scopes[scope] if name.isdigit()}:
            self.scopes.pop(scope, None)
            self.left.pop(scope, None)


def interfaces() -> list[tuple[str, str]]:
    """Returns the name and IPv4 address of each network interface, loopback last (Linux only)."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            with contextlib.suppress(OSError):  # an interface without an address
                answer = fcntl.ioctl(probe.fileno(), 0x8915, request)  # SIOCGIFADDR
                found.append((name, socket.inet_ntoa(answer[20:24])))
    return sorted(found, key=lambda pair: pair[1].startswith("127."))


def reachable(address: str, port: int, name: str) -> bool:
    """Whether the rendezvous of this name, and no other server, answers at an address."""
    try:
        with socket.create_connection((address, port), timeout=2) as connection:
            connection.sendall(b"GET /name/ HTTP/1.1\r\nHost: rendezvous\r\n\r\n")
            return connection.makefile("rb").read().endswith(name.encode())
    except OSError:
        return False


def outgoing(address: str) -> str:
    """Returns the interface by which this node reaches an address, or "" where the system does not say."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))
        own = probe.getsockname()[0]
    return next((name for name, value in interfaces() if value == own), "")


# ---- a copy-on-write view of the machine ---------------------------------------------------------------------------


_NEWNS, _READ_ONLY, _BIND, _REC, _PRIVATE, _DETACH = 0x20000, 1, 4096, 16384, 1 << 18, 2
_SHARED = ("/proc", "/sys", "/dev")  # the kernel's own trees, the same inside
_KERNEL = {
    "proc",
    "sysfs",
    "devtmpfs",
    "devpts",
    "cgroup",
    "cgroup2",
    "mqueue",
    "debugfs",
    "tracefs",
    "securityfs",
    "bpf",
}


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Calls mount(2).

    Raises:
        OSError: the kernel refused; its filename is the target.
    """
    arguments = (
        source.encode(),
        os.fsencode(target),
        kind.encode() or None,
        ctypes.c_ulong(flags),
        options.encode() or None,
    )
    if _LIBC.mount(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)


def own_mounts() -> None:
    """Gives this process a mount table of its own; what it mounts is gone with it and its children.

    Raises:
        OSError: this is not Linux, or the process has not the right (root has it, unless a container took it away).
    """
    if not LINUX:
        raise OSError("only Linux has copy-on-write views")
    if _LIBC.unshare(_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    mount("none", "/", flags=_REC | _PRIVATE)


def mounted() -> list[tuple[str, str]]:
    """Returns where this process sees file systems mounted, and their kinds, in the order of mounting."""
    found = []
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            left, _, right = line.partition(" - ")
            point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), left.split()[4])
            found.append((point, right.split()[0]))
    return found


def mount_points() -> list[str]:
    """Returns where file systems that hold files are mounted, "/" first; those of the kernel are left out."""
    found = ["/"]
    for point, kind in mounted():
        inside = any(f"{point}/".startswith(f"{shared}/") for shared in _SHARED)
        if kind not in _KERNEL and not inside and point not in found:
            found.append(point)
    return found


def remove(folder: Path) -> None:
    """Removes a folder with all that is in it, unless something is mounted there: that is not ours to remove.

    Raises:
        OSError: something is mounted in it, or it cannot be removed.
    """
    inside = [point for point, _ in mounted() if f"{point}/".startswith(f"{folder}/")] if LINUX else []
    if inside:
        raise OSError(errno.EBUSY, "something is mounted there", inside[0])
    if folder.exists():
        shutil.rmtree(folder)


class View:
    """The machine's files as they are, with every change kept in a folder: an overlay over each mounted file system.

    Attributes:
        root: the directory that is the view's "/".
    """

    def __init__(self, place: Path, changes: Path, below: Path | None, binds: Sequence[Path]) -> None:
        """Mounts the view, or nothing where a part of it fails.

        Args:
            place: a folder for the mount points, and for nothing else.
            changes: the folder that takes the changes; not on an overlay, nor on NFS.
            below: the changes of another view, seen but not altered, or None.
            binds: directories that are the real ones inside too.
        """
        self.place, self.root, self.changes, self.below = place, place / "root", changes, below
        self.mounted: list[str] = []
        self.scratch: list[Path] = []
        try:
            for point in mount_points():
                self._overlay(point)
            for shared in _SHARED:
                self._mount(shared, self._inside(shared), flags=_BIND | _REC)
            for path in binds:
                os.makedirs(self._inside(str(path)), exist_ok=True)
                self._mount(str(path), self._inside(str(path)), flags=_BIND)
        except OSError:
            self.close()
            raise

    def _inside(self, path: str) -> str:
        return str(self.root) + path.rstrip("/")

    def _mount(self, source: str, target: str, **options: Any) -> None:
        mount(source, target, **options)
        self.mounted.append(target)

    def _overlay(self, point: str) -> None:
        if not os.path.isdir(point):  # containers mount single files, such as /etc/resolv.conf
            return self._mount(point, self._inside(point), flags=_BIND)
        name = hashlib.sha256(os.fsencode(point)).hexdigest()[:16]
        lower = point
        if self.below is not None and (self.below / name).is_dir():
            # Stacked, not side by side: the kernel refuses a lower layer that lies inside another one, here inside "/".
            lower = str(self.place / name)
            self._stack(point, self.below / name, lower, flags=_READ_ONLY)
        return self._stack(lower, self.changes / name, self._inside(point))

    def _stack(self, lower: str, changes: Path, target: str, flags: int = 0) -> None:
        # Each mount has a work folder of its own: mounts of one moment would take it away from each other.
        upper, work = changes / "up", changes / f"work-{os.getpid()}"
        if not upper.exists():
            upper.mkdir(parents=True)
            shutil.copystat(lower, upper)
        work.mkdir(exist_ok=True)
        self.scratch.append(work)
        os.makedirs(target, exist_ok=True)
        paths = {"lowerdir": lower, "upperdir": str(upper), "workdir": str(work)}
        options = ",".join(f"{name}={_escape(path)}" for name, path in paths.items())
        self._mount("overlay", target, kind="overlay", flags=flags, options=options)

    def enter(self, directory: Path) -> None:
        """Makes the view this process's world; for a child that is about to start a program."""
        os.chroot(self.root)
        os.chdir(directory)

    def close(self) -> None:
        """Takes the view away; what it changed stays in the folder of changes.

        Raises:
            OSError: something could not be unmounted.
        """
        while self.mounted:
            target = self.mounted.pop()
            if _LIBC.umount2(os.fsencode(target), _DETACH) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), target)
        for folder in (*self.scratch, self.place):
            remove(folder)


def _escape(path: str) -> str:
    return re.sub(r"([\\:,])", r"\\\1", path)


def layer_name(command: str, variables: dict[str, str]) -> str:
    """Returns a name that stands for a preparation and all that decides what it does on this machine."""
    used = sorted(name for name in set(re.findall(r"\w+", command, flags=re.ASCII)) if name in variables)
    facts = [command, variables.get("PATH", ""), *(f"{name}={variables[name]}" for name in used)]
    for folder in variables.get("PATH", "").split(":"):
        places = [folder, *glob.glob(f"{glob.escape(os.path.dirname(folder))}/lib/python3*/site-packages")]
        facts += [f"{place} {os.stat(place).st_mtime_ns}" for place in places if place and os.path.isdir(place)]
    digest = hashlib.sha256("\0".join(facts).encode("utf-8", "surrogateescape"))
    with contextlib.suppress(OSError), open("/var/lib/dpkg/status", "rb") as file:
        digest.update(file.read())
    return digest.hexdigest()[:32]


# ---- what ranks are told -------------------------------------------------------------------------------------------


class Place:
    """Where this node stands in its task, and what its processes are told of that."""

    def __init__(self, task: Document, folder: Path, index: int, loopback: bool) -> None:
        self.task, self.folder, self.index, self.loopback = task, folder, index, loopback
        self.name: str = task["nodes"][index]
        self.ranks: list[int] = list(task["ranks"])
        self.own: dict[str, str] = task["environment"]
        self.temporary = folder / "temp" / str(index)

    @property
    def horovod(self) -> bool:
        """Whether each rank is started here, with Horovod's variables."""
        return bool(self.task["launch"] == "horovod")

    def variables(self) -> dict[str, str]:
        """Returns the environment of every process on this node, secrets included."""
        found = dict(os.environ)
        found |= {"AZ_BATCHAI_TASK_INDEX": str(self.index), "AZ_BATCHAI_JOB_TEMP": str(self.temporary)}
        found |= {"AZ_BATCHAI_JOB_TEMP_DIR": str(self.temporary.parent), "AZ_BATCHAI_NODE_NAME": self.name}
        for name, value in self.own.items():
            found[name] = expand(value, found)
        for name, value in self.threads().items():
            found.setdefault(name, value)
        found.update(self.task["secrets"], BATCHHVD_NODE=f"{self.folder}:{self.index}")
        return found

    def threads(self) -> dict[str, str]:
        """Returns how many threads each rank may use: the cores of the machine, shared fairly."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        ranks = sum(self.ranks) if self.loopback else self.ranks[self.index]
        count = str(max(1, cores // max(1, ranks)))
        return {"OMP_NUM_THREADS": count, "TF_NUM_INTRAOP_THREADS": count, "TF_NUM_INTEROP_THREADS": "1"}

    def devices(self, rank: int, local: int) -> dict[str, str]:
        """Returns which of the machine's GPUs a rank uses: none where the VM size has none, else one after another."""
        if "AZ_BATCHAI_NUM_GPUS" not in self.own:
            return {}
        there = len(gpus())
        count = min(there, int(self.own["AZ_BATCHAI_NUM_GPUS"]))
        found = {"AZ_BATCHAI_NUM_GPUS": str(count)}
        if count == 0:
            found["CUDA_VISIBLE_DEVICES"] = ""
        elif self.horovod:
            found["CUDA_VISIBLE_DEVICES"] = str((rank if self.loopback else local) % there)
        return found | self.chosen("CUDA_VISIBLE_DEVICES")

    def chosen(self, name: str) -> dict[str, str]:
        """Returns a variable if the job sets it itself."""
        return {name: self.own[name]} if name in self.own else {}

    def of_horovod(self, rank: int, local: int) -> dict[str, str]:
        """Returns the variables by which Horovod knows a rank's place.

        Source: horovod/common/gloo/gloo_context.cc and horovod/runner/gloo_run.py of Horovod 0.28.1.
        """
        peers = [index for index, count in enumerate(self.ranks) if count > local]
        numbers = {"RANK": rank, "SIZE": sum(self.ranks), "LOCAL_RANK": local, "LOCAL_SIZE": self.ranks[self.index]}
        numbers |= {"CROSS_RANK": peers.index(self.index), "CROSS_SIZE": len(peers)}
        words = {"HOSTNAME": self.name, "CONTROLLER": "gloo", "CPU_OPERATIONS": "gloo"}
        return {f"HOROVOD_{name}": str(value) for name, value in {**numbers, **words}.items()}

    def commands(self) -> list[tuple[int, int, str]]:
        """Returns rank, local rank and command of what this node starts."""
        if self.horovod:
            first = sum(self.ranks[: self.index])
            return [(first + local, local, self.task["command"]) for local in range(self.ranks[self.index])]
        if self.index != 0:
            return []
        return [(0, 0, self.task["command"] if self.task["launch"] == "single" else self.mpirun())]

    def mpirun(self) -> str:
        """Returns the command line of the engine's own launcher (``BATCHHVD_LAUNCHER``), else of Open MPI's."""
        if launcher := os.environ.get("BATCHHVD_LAUNCHER"):
            return f"{launcher} {shlex.join(['/bin/sh', '-c', self.task['command']])}"
        words = ["mpirun", "-np", str(sum(self.ranks)), "--hostfile", str(self.folder / "hostfile")]
        words += ["--oversubscribe", "--bind-to", "none", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
        for name in (*self.own, *self.task["secrets"], "OMP_NUM_THREADS", "BATCHHVD_NODE"):
            words += ["-x", name]
        return shlex.join([*words, "/bin/sh", "-c", self.task["command"]])


# ---- the node ------------------------------------------------------------------------------------------------------


class Stopped(Exception):
    """The task was stopped while this node had not started its ranks yet."""


class Gone(Exception):
    """The task's folder was removed: nobody waits for this node any more."""


class Node:
    """The runner of one node: it starts what is to run, copies its output, and ends it when the task is stopped."""

    def __init__(self, folder: Path, index: int, loopback: bool, guard: int) -> None:
        self.folder, self.index = folder, index
        self.task: Document = read_json(folder / "task.json") or {}
        self.place = Place(self.task, folder, index, loopback or len(self.task["nodes"]) == 1)
        self.name = self.place.name
        self.logs = Path(self.task["logs"])
        self.children: list[Child] = []
        self.view: View | None = None  # the world of the ranks, where a preparation has changed it
        self.asked = ""
        self.doubt = 0.0 if loopback else DOUBT
        self.suspect: Child | None = None  # the first rank that failed, until it is sure that nobody ended it
        self.stopping: float | None = None  # when the ranks were asked to end
        self.started = time.monotonic()
        self.watchdog = Watchdog(self)
        self.record = self._first_record(guard)

    def _first_record(self, guard: int) -> Document:
        own = os.getpid()
        return {
            "index": self.index,
            "node": self.name,
            "host": "127.0.0.1" if self.place.loopback else socket.gethostname(),
            "pid": own,
            "ticks": ticks(own),
            "guard": {"pid": guard, "ticks": ticks(guard)},
            "started": time.time(),
            "ended": None,
            "state": "preparing",
            "preparation": None,
            "ranks": [],
            "reason": "",
            "error": "",
        }

    # -- the order of events --

    def run(self) -> int:
        """Does everything and returns the exit code: 0, or that of this node's first failure."""
        self._open()
        try:
            Preparation(self).run()
            self.start()
            self.attend(self._done)
        except Gone:
            end_all(os.getpid())
            return 1
        except Stopped:
            self.note("stopped before the ranks were started")
        except OSError as error:
            self._room.unlink(missing_ok=True)
            self.fail("engine", f"the node cannot go on: {error}")
        self.finish()
        return next((child.record["exit"] for child in self.children if child.record["exit"]), 0)

    def _open(self) -> None:
        self._room = self.folder / f".room-{self.index}"
        self._room.write_bytes(b"\0" * 65536)  # given up when the disk is full, so that the records still fit
        self.place.temporary.mkdir(parents=True, exist_ok=True)
        self.logs.mkdir(parents=True, exist_ok=True)
        self.log = Sink(self.logs / f"execution-{self.name}.log")
        self.sinks = (Sink(self.logs / "stdout.txt"), Sink(self.logs / "stderr.txt"))
        self._listen()
        count, attempt = len(self.task["nodes"]), self.task["attempt"] + int(os.environ.get("SLURM_RESTART_COUNT") or 0)
        self.note(f"node {self.index + 1} of {count}, attempt {attempt}, on {self.record['host']}")
        for notice in self.task["notices"]:
            self.note(notice)

    def _listen(self) -> None:
        """Lets signals wake the loop."""
        self.selector = selectors.DefaultSelector()
        self.bell, self.ring = socket.socketpair()
        for end in (self.bell, self.ring):
            end.setblocking(False)
        signal.set_wakeup_fd(self.ring.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)
        self.selector.register(self.bell, selectors.EVENT_READ, None)

    def _ask(self, number: int, _frame: object) -> None:
        self.asked = signal.Signals(number).name

    def start(self) -> None:
        """Starts this node's ranks, or none where the launch puts them elsewhere."""
        self.require_script()
        self.name_hosts()
        meeting = Meeting(self)
        where = meeting.find() if self.place.horovod and sum(self.place.ranks) > 1 else {}
        for rank, local, command in self.place.commands():
            variables = self.place.variables() | self.place.devices(rank, local)
            if self.place.horovod:
                variables |= self.place.of_horovod(rank, local) | where
            self.child(rank, command, variables, self.sinks, self.view)
        meeting.open()  # only now: children are made while there is one thread
        self.record |= {"state": "running", "ranks": [child.record for child in self.children]}
        self.watchdog.begin()
        self.save()

    def require_script(self) -> None:
        """Fails the task at once where its script is not there."""
        script = expand(self.task.get("script") or "", self.place.variables())
        root = Path("/") if self.view is None else self.view.root  # a preparation may have brought it
        path = os.path.join(self.place.temporary, script)
        if script and not (os.path.exists(path) or os.path.exists(f"{root}{path}")):
            self.fail("script", f"there is no file {script}", code=127)
            raise Stopped

    def name_hosts(self) -> None:
        """Writes the host file of MPI, on node 0, as soon as every node has said where it is."""
        if self.index != 0:
            return
        paths = [self.folder / f"node-{index}.json" for index in range(len(self.task["nodes"]))]
        if self.place.loopback:
            hosts = ["127.0.0.1"] * len(paths)
        else:
            self.attend(lambda: all(path.exists() for path in paths) or self.stop() is not None)
            hosts = [(read_json(path) or {}).get("host", "") for path in paths]
        slots: dict[str, int] = collections.defaultdict(int)
        for host, count in zip(hosts, self.place.ranks, strict=True):
            slots[host] += max(1, count)
        text = "".join(f"{host} slots={count}\n" for host, count in slots.items())
        (self.folder / "hostfile").write_text(text, encoding="utf-8")

    def child(
        self, rank: int, command: str, variables: dict[str, str], sinks: Sequence[Sink], view: View | None = None
    ) -> Child:
        """Starts a process group, and returns it; rank -1 is a preparation."""
        directory = self.place.temporary
        enter = None if view is None else lambda: view.enter(directory)
        child = Child(rank, command, variables, directory, sinks, enter)
        for stream in child.streams:
            os.set_blocking(stream.descriptor, False)
            self.selector.register(stream.descriptor, selectors.EVENT_READ, (child, stream))
        self.children.append(child)
        if rank >= 0:
            self.note(f"rank {rank} started as process {child.pid}")
        return child

    def finish(self) -> None:
        """Ends everything that is left below this process and completes the record."""
        end_all(os.getpid())
        self._take_view_away()
        self._room.unlink(missing_ok=True)
        stop = self.stop()
        self.record |= {"state": "ended", "ended": time.time()}
        if stop is not None and not self.record["reason"]:
            self.record |= {"reason": stop["reason"], "error": stop["error"]}
        self.note(f"node ended: {self.record['error'] or self.record['reason'] or 'well'}")
        self.save()  # last: whoever reads that it has ended may read all logs

    def _take_view_away(self) -> None:
        try:
            if self.view is not None:
                self.view.close()
            remove(self.folder / f"changes-{self.index}")
        except OSError as error:
            self.note(f"the view of the ranks could not be taken away: {error}")

    # -- the loop --

    def attend(self, done: Callable[[], bool]) -> None:
        """Copies output, takes down ends and heeds the stop file until ``done()``."""
        while not done():
            if not (self.folder / "task.json").exists():
                raise Gone
            pending = any(stream.pending for child in self.children for stream in child.streams)
            for key, _ in self.selector.select(PARTIAL / 2 if pending or self.suspect else BEAT):
                self._arrived(key)
            self._reap()
            self._heed()
            now = time.monotonic()
            self.watchdog.look(now)
            for child in self.children:
                for stream in child.streams:
                    stream.flush(now)

    def _done(self) -> bool:
        if not all(child.over for child in self.children):
            return False
        if self.stop() is not None:
            return True
        if self.suspect is not None:
            return False
        # Node 0 serves the meeting point until all have ended; nodes without ranks stay until node 0 has.
        meets, first = self.place.horovod, self.index == 0
        others = [*range(1, len(self.task["nodes"]))] if meets and first else [] if meets or first else [0]
        return all(self._ended(other) for other in others)

    def _ended(self, other: int) -> bool:
        record = read_json(self.folder / f"node-{other}.json")
        return record is not None and record["state"] == "ended"

    def _arrived(self, key: selectors.SelectorKey) -> None:
        if key.data is None:
            with contextlib.suppress(BlockingIOError):
                self.bell.recv(4096)
            return
        child, stream = key.data
        if not stream.read(time.monotonic()):
            self._close(child, stream)

    def _close(self, child: Child, stream: Stream) -> None:
        self.selector.unregister(stream.descriptor)
        child.streams.remove(stream)
        if child.over:
            self._over(child)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                for child in self.children:
                    if child.pid == pid:
                        child.ended(status, self.stopping is not None)
                        if child.over:
                            self._over(child)
        for child in self.children:
            if child.streams and child.ended_at is not None and time.monotonic() - child.ended_at > 1:
                self._cut(child)

    def _cut(self, child: Child) -> None:
        """Ends what a rank left running in its session: it holds the output open."""
        send(
            [pid for pid in descendants(os.getpid()) if int((_stat(pid) or ["0"] * 4)[3]) == child.pid], signal.SIGKILL
        )
        if time.monotonic() - (child.ended_at or 0) > 1.5:  # it moved to a session of its own: stop listening
            for stream in list(child.streams):
                while self._drain(stream):
                    pass
                self._close(child, stream)

    def _drain(self, stream: Stream) -> bool:
        try:
            return stream.read(time.monotonic())
        except BlockingIOError:
            return False

    def _over(self, child: Child) -> None:
        child.close()
        if child.record["rank"] < 0:
            return
        code, rank = child.record["exit"], child.record["rank"]
        told = f"rank {rank} ended with exit code {code}"
        self.note(told)
        if code and self.stopping is None and self.suspect is None:
            self.suspect = child
        self.save()

    def _accuse(self) -> None:
        """Tells all nodes of the first rank that failed, when it has failed long enough for no other cause to show."""
        child = self.suspect
        if child is None or not self.sure(child):
            return
        self.suspect = None
        code, rank = child.record["exit"], child.record["rank"]
        reason = "memory" if child.record["memory"] else "rank"
        self.fail(reason, f"rank {rank} ended with exit code {code}", rank=rank, code=code, tail=child.record["tail"])

    def sure(self, child: Child) -> bool:
        """Whether it is known why a child has ended as it did: by itself, unless this node is told to end just now."""
        waited = time.monotonic() - (child.ended_at or 0)
        return child.record["exit"] == 0 or waited >= self.doubt or self.stop() is not None

    def _heed(self) -> None:
        limit = self.task["wall_seconds"]
        if self.stopping is None:
            if self.asked:
                self.fail("node", f"the node was told to end ({self.asked})")
            elif limit is not None and time.monotonic() - self.started > limit:
                self.fail("time", f"the job ran longer than {limit:g} s")
            else:
                self._accuse()
        now = time.monotonic()
        if self.stopping is None and self.stop() is not None:
            self.stopping = now
            if (self.stop() or {}).get("stacks") and not self.record["reason"]:
                self.watchdog.note_stacks(last_chance=False)  # another node stalled; what these wait for tells why
            for child in self.children:
                self._signal_group(child, signal.SIGTERM)
                self._signal_group(child, signal.SIGCONT)
        elif self.stopping is not None and now - self.stopping > GRACE:
            send(descendants(os.getpid()), signal.SIGKILL)

    def _signal_group(self, child: Child, number: int) -> None:
        if child.ended_at is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, number)

    # -- telling --

    def stop(self) -> Document | None:
        """Returns why the task was stopped, or None while it goes on."""
        return read_json(self.folder / "stop.json")

    def fail(
        self, reason: str, error: str, *, rank: int | None = None, code: int | None = None, **more: object
    ) -> None:
        """Tells all nodes to end; ``more`` are further words of the stop file."""
        self.record |= {"reason": reason, "error": error}
        words: Document = {"node": self.name, "rank": rank, "exit_code": code, "error": error, "tail": []}
        first = declare(self.folder, reason=reason, **{**words, **more})
        self.note(f"{error}; {'all nodes are told to end' if first else 'the task was ending already'}")

    def note(self, text: str) -> None:
        """Writes a line into the node's execution log."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
        with contextlib.suppress(OSError):  # a full share must not keep the node from ending its ranks
            self.log.write(f"{stamp}Z {text}\n".encode())

    def save(self) -> None:
        """Writes the record."""
        write_json(self.folder / f"node-{self.index}.json", self.record)


# ---- the node's helpers --------------------------------------------------------------------------------------------


class Preparation:
    """Runs a node's preparation: once for each distinct command, in a view of the machine that the ranks then share."""

    def __init__(self, node: Node) -> None:
        self.node, self.command = node, node.task["preparation"]

    def run(self) -> None:
        """Runs it, where there is one, or finds what an earlier run of it has left.

        Raises:
            Stopped: it failed, or the task was stopped meanwhile.
        """
        if self.command is None:
            return
        node, began = self.node, time.monotonic()
        sinks = [Sink(node.logs / f"{stream}-job_prep-{node.name}.txt") for stream in ("stdout", "stderr")]
        where = self._sandbox() if node.task["prepare"] == "overlay" else node.task["prepare"]
        code, tail = {"skip": self._skip, "host": self._on_host, "overlay": self._in_layer}[where](sinks)
        node.record["preparation"] = {"exit": code, "seconds": time.monotonic() - began, "where": where}
        node.note(f"preparation ({where}) ended with exit code {code}")
        if code and node.stop() is None:
            node.fail("preparation", f"the preparation ended with exit code {code}", code=code, tail=tail)
        if node.stop() is not None:
            raise Stopped

    def _skip(self, sinks: Sequence[Sink]) -> tuple[int, list[str]]:
        self.node.note(f"the job preparation is skipped: {self.command}")
        sinks[0].write(f"The job preparation was skipped on this machine: {self.command}\n".encode())
        return 0, []

    def _on_host(self, sinks: Sequence[Sink], view: View | None = None) -> tuple[int, list[str]]:
        node = self.node
        node.note(f"preparation: {self.command}")
        variables = {"DEBIAN_FRONTEND": "noninteractive"} | node.place.variables()
        child = node.child(-1, self.command, variables, sinks, view)
        node.attend(lambda: child.over and node.sure(child))
        node.children.remove(child)
        return child.record["exit"], child.record["tail"]

    def _in_layer(self, sinks: Sequence[Sink]) -> tuple[int, list[str]]:
        """Runs it in a layer, once: whoever comes while it runs waits, whoever comes later finds it done."""
        node = self.node
        layer = self.layers / layer_name(self.command, node.place.variables())
        lock = _open_lock(layer)  # held to the end of this node, so that nobody removes the layer
        node.attend(lambda: _turn(lock, layer / "done") or node.stop() is not None)
        if node.stop() is not None:
            raise Stopped
        done = (layer / "done").exists()
        node.note(f"the preparation is done already: {layer.name}" if done else f"the layer is {layer.name}")
        code, tail = (0, list[str]()) if done else self._fill(layer)
        for sink, name in zip(sinks, ("stdout", "stderr"), strict=True):
            sink.write((layer / name).read_bytes())
        if code:
            remove(layer)
        else:
            os.utime(layer)
            fcntl.flock(lock, fcntl.LOCK_SH)
            node.view = self._stacked(layer / "changes")
        self._forget()
        return code, tail

    def _forget(self) -> None:
        """Removes layers that nobody has used for a long time."""
        for done in self.layers.glob("*/done"):
            layer, lock = done.parent, _open_lock(done.parent)
            if time.time() - layer.stat().st_mtime > KEPT and _locked(lock, fcntl.LOCK_EX):
                remove(layer)
            os.close(lock)

    def _fill(self, layer: Path) -> tuple[int, list[str]]:
        remove(layer)  # what a preparation that was killed has left
        layer.mkdir(mode=0o700)
        view = self._view(layer / "changes", None)
        code, tail = self._on_host([Sink(layer / name) for name in ("stdout", "stderr")], view)
        end_all(os.getpid())  # a daemon that it started would hold the layer
        view.close()
        if code == 0 and self.node.stop() is None:
            (layer / "done").write_text(self.command, encoding="utf-8")
        return code, tail

    def _stacked(self, below: Path) -> View:
        """Returns the view of this node's ranks: what the preparation changed, and changes of their own above it."""
        changes = self.node.folder / f"changes-{self.node.index}"
        try:
            return self._view(changes, below)
        except OSError as error:  # such as in a container, whose "/" is an overlay already: the kernel stacks two
            self.node.note(f"the prepared layer is copied, since it cannot be stacked: {error}")
            remove(changes)
            subprocess.run(["cp", "-a", str(below), str(changes)], check=True)
            return self._view(changes, None)

    def _sandbox(self) -> str:
        """Says where the preparation runs: in an overlay, or nowhere where this machine does not allow one."""
        self.layers = Path(self.node.task.get("layers") or self.node.folder / "layers")
        try:
            own_mounts()
            self.layers.mkdir(parents=True, exist_ok=True)
            self._try_view()
        except OSError as error:
            self.node.note(
                f"a preparation must not change this machine, and no copy-on-write view is possible: {error}"
            )
            return "skip"
        return "overlay"

    def _try_view(self) -> None:
        """Mounts a view once; where the folder of layers cannot take changes, memory does."""
        place = self.layers / f".try-{os.getpid()}"
        try:
            self._view(place, None).close()
        except OSError:
            mount("tmpfs", str(self.layers), "tmpfs", options="mode=700")
            self._view(place, None).close()
        remove(place)

    def _view(self, changes: Path, below: Path | None) -> View:
        folder = self.node.folder
        found = [path for name in ("mounts", "cluster") for path in (folder / name).glob("**/*")]
        shares = [path.resolve() for path in found if path.is_symlink()]
        return View(folder / f"view-{self.node.index}", changes, below, [folder, self.node.logs, *shares])


def _open_lock(layer: Path) -> int:
    return os.open(layer.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _turn(lock: int, done: Path) -> bool:
    """Takes a layer's lock: shared with others where the layer is done, else alone."""
    if _locked(lock, fcntl.LOCK_SH):
        if done.exists():
            return True
        fcntl.flock(lock, fcntl.LOCK_UN)
    return _locked(lock, fcntl.LOCK_EX)


def _locked(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class Meeting:
    """Where Horovod's ranks find each other: opened on node 0, looked for on the others."""

    def __init__(self, node: Node) -> None:
        self.node, self.path = node, node.folder / "rendezvous.json"
        self.server: Rendezvous | None = None

    def find(self) -> dict[str, str]:
        """Returns the variables that lead to the meeting point.

        Raises:
            Stopped: the task was stopped before there was one.
        """
        address, port, interface = self._make() if self.node.index == 0 else self._look()
        self.node.note(f"ranks meet at {address}:{port}; this node reaches it by {interface}")
        # Ranks that share few cores import their framework at very different speeds; Horovod's own limit is 30 s.
        patience = {"HOROVOD_GLOO_TIMEOUT_SECONDS": "300"} | self.node.place.chosen("HOROVOD_GLOO_TIMEOUT_SECONDS")
        found = {"HOROVOD_GLOO_RENDEZVOUS_ADDR": address, "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port)}
        return {**patience, **found, "HOROVOD_GLOO_IFACE": interface}

    def open(self) -> None:
        """Begins to answer, if the meeting point is here; who came earlier was made to wait by the kernel."""
        if self.server is not None:
            self.server.start()

    def _make(self) -> tuple[str, int, str]:
        loopback = self.node.place.loopback
        self.server = Rendezvous("127.0.0.1" if loopback else "0.0.0.0")
        own = [("lo", "127.0.0.1")] if loopback else interfaces()
        wanted = self.node.place.own.get("HOROVOD_GLOO_IFACE")
        own.sort(key=lambda pair: pair[0] != wanted)
        addresses = [address for _, address in own]
        write_json(self.path, {"addresses": addresses, "port": self.server.port, "name": self.server.name})
        return addresses[0], self.server.port, own[0][0]

    def _look(self) -> tuple[str, int, str]:
        found: list[tuple[str, int]] = []
        self.node.attend(lambda: self._reach(found) or self.node.stop() is not None)
        if not found:
            raise Stopped
        address, port = found[0]
        return address, port, "lo" if self.node.place.loopback else outgoing(address)

    def _reach(self, found: list[tuple[str, int]]) -> bool:
        """Adds the first address that answers as node 0's, and says whether there is one."""
        where = read_json(self.path)
        if where is None:
            return False
        for address in where["addresses"]:
            if self.node.place.loopback or reachable(address, where["port"], where["name"]):
                found.append((address, where["port"]))
                return True
        return False


class Watchdog:
    """Looks into a node's ranks when none of them has written or computed for the time that the task sets."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.limit: float | None = node.task.get("stall_seconds")
        self.seen, self.warned = (0, 0.0), False
        self.begin()

    def begin(self) -> None:
        """Counts from now."""
        self.looked = self.lively = time.monotonic()

    def look(self, now: float) -> None:
        """Takes what the ranks did since the last look; acts where they did nothing for too long."""
        node, limit = self.node, self.limit
        if limit is None or node.stopping is not None or node.record["state"] != "running":
            return
        if now - self.looked < min(5.0, limit / 10):
            return
        written, spent = sum(child.written for child in node.children), cpu_seconds(descendants(os.getpid()))
        share = (spent - self.seen[1]) / max(1, len(node.children)) / (now - self.looked)
        if written != self.seen[0] or share > IDLE_SHARE:
            self.lively, self.warned = now, False
        self.looked, self.seen = now, (written, spent)
        if now - self.lively > limit and not self.warned and any(child.ended_at is None for child in node.children):
            self.warned = True
            self._stalled(limit)

    def _stalled(self, limit: float) -> None:
        node = self.node
        node.note(f"no output and next to no computing for {limit:g} s")
        if node.task["stall_action"] != "stop":
            return self.note_stacks(last_chance=False)
        frozen = [child.record["rank"] for child in node.children if (_stat(child.pid) or [""])[0] == "T"]
        which = f"rank {frozen[0]} is frozen" if frozen else "the ranks wait for something"
        self.note_stacks(last_chance=True)
        rank = frozen[0] if frozen else None
        return node.fail("rank", f"the node stalled for {limit:g} s: {which}", rank=rank, stacks=True)

    def note_stacks(self, last_chance: bool) -> None:
        """Writes what each process of this node is doing into its execution log."""
        self.node.note("the stacks of this node's ranks:")
        for pid in descendants(os.getpid()):
            self.node.note(stacks(pid, last_chance))


# ---- the guard -----------------------------------------------------------------------------------------------------


def guard(folder: Path, index: int, runner: int) -> int:
    """Waits for the runner; ends what it left and completes its record where it could not do so itself."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: send([runner], number))
    while True:
        pid, status = os.wait()
        if pid == runner:
            break
    end_all(os.getpid())
    code = os.waitstatus_to_exitcode(status)
    if not (folder / "task.json").exists():
        return 1  # nobody waits for this node any more
    record = read_json(folder / f"node-{index}.json")
    if record is None or record["state"] != "ended":
        complete(folder, index, code)
    return code if code >= 0 else 128 - code


def complete(folder: Path, index: int, code: int) -> None:
    """Says in the runner's place that the node is lost, and tells the others."""
    now = time.time()
    record = {"index": index, "host": "", "pid": None, "started": now, "preparation": None, "ranks": []}
    record |= read_json(folder / f"node-{index}.json") or {}
    task = read_json(folder / "task.json") or {}
    error = f"the node's runner ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}"
    log = Path(task["logs"]) / f"execution-{task['nodes'][index]}.log"
    with contextlib.suppress(OSError):
        Sink(log).write(f"{error}\n".encode())
    declare(folder, reason="node", node=task["nodes"][index], error=error)
    record |= {"node": task["nodes"][index], "state": "ended", "ended": now, "reason": "node", "error": error}
    write_json(folder / f"node-{index}.json", record)


def main(arguments: list[str]) -> int:
    """Runs the nodes that are named and returns the exit code: of the one node, or 0 when several have begun."""
    words = [word for word in arguments if not word.startswith("--")]
    folder, loopback = Path(words[0]).absolute(), "--loopback" in arguments
    indices = [int(word) for word in words[1:] or [os.environ["SLURM_NODEID"]]]
    if len(indices) == 1:
        return run_node(folder, indices[0], loopback)
    return scatter(folder, indices, loopback)


def scatter(folder: Path, indices: list[int], loopback: bool) -> int:
    """Starts several nodes, each in a session of its own, and returns when each has written its first record."""
    begun, begins = os.pipe()
    for index in indices:
        if os.fork() == 0:
            os.setsid()
            os.close(begun)
            os._exit(run_node(folder, index, loopback, begins))
    os.close(begins)
    return len(os.read(begun, 1))  # the end comes when no node holds the pipe any more


def run_node(folder: Path, index: int, loopback: bool, begins: int | None = None) -> int:
    """Splits into guard and runner and returns the node's exit code.

    Args:
        begins: the end of a pipe that is to be closed when the first record is written, or None.
    """
    lock = os.open(folder / f".node-{index}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0  # this node runs already
    if (record := read_json(folder / f"node-{index}.json")) is not None and record["state"] == "ended":
        return 0  # and has run
    own = os.getpid()
    _prctl(_SET_CHILD_SUBREAPER, 1)
    runner = os.fork()
    if runner == 0:
        die_with_parent(own, signal.SIGTERM)
        _prctl(_SET_CHILD_SUBREAPER, 1)
        node = Node(folder, index, loopback, own)
        node.save()
    if begins is not None:
        os.close(begins)
    if runner:
        return guard(folder, index, runner)
    try:
        os._exit(node.run())
    except BaseException:
        traceback.print_exc()
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
