"""Python processes that need not import a framework: forks of one process that has done it.

Importing Keras takes five seconds of a processor, and a test of two ranks would pay it twice. `python` returns a
command that runs the same words as ``sys.executable`` would, in a process that is forked from one with the imports
done. It behaves as a started one does: ``__main__``, arguments, environment, working directory, the three standard
streams, exit code and signals are its own, and what is not seeded differs between two of them. What it shares with its
siblings is what an import decides: the hash seed, and variables that are read by an import, which `python` takes.

The process ends with the run of the tests; so do all forks whose starter (prefork_client.py) is gone.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import fcntl
import functools
import gc
import importlib
import json
import os
import runpy
import selectors
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from attrs import define, field, frozen

CLIENT = Path(__file__).with_name("prefork_client.py")
# As the trainer's own preparation decides them for two ranks on two cores; an import reads some of them.
SETTINGS = dict.fromkeys(("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"), "1")
SETTINGS |= {"TF_ENABLE_ONEDNN_OPTS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
LARGEST = 1 << 20  # bytes of arguments and environment


def python(backend: str, *arguments: str) -> list[str]:
    """Returns the command that runs Python with arguments (``-c``, ``-m`` or a script) where Keras is imported."""
    return [sys.executable, "-I", "-S", str(CLIENT), _served(backend), *arguments]


def interpreter(backend: str, folder: Path) -> str:
    """Writes a program that takes the arguments of Python and does with them what `python` does; returns its path."""
    program = folder / f"python-{backend}"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(python(backend))} "$@"\n')
    program.chmod(0o755)
    return str(program)


@functools.cache
def _served(backend: str) -> str:
    """Returns the socket of the process that has a backend imported; the first worker of a run starts it."""
    owner = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    folder = Path(tempfile.gettempdir(), f"batchhvd-prefork-{os.environ.get('PYTEST_XDIST_TESTRUNUID', owner)}")
    folder.mkdir(mode=0o700, exist_ok=True)
    place = folder / backend
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            _start(backend, place, owner)
    return str(place)


def _start(backend: str, place: Path, owner: int) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place))
        listening.listen(64)
        words = [sys.executable, "-m", "tests.support.prefork", str(listening.fileno()), str(place), str(owner)]
        variables = {**os.environ, "KERAS_BACKEND": backend, **SETTINGS}
        quiet = subprocess.DEVNULL
        subprocess.Popen(
            words,
            env=variables,
            cwd=Path(__file__).parents[2],
            stdin=quiet,
            stdout=quiet,
            pass_fds=[listening.fileno()],
            start_new_session=True,
        )


# --- the process that forks ------------------------------------------------------------------------------------------


@frozen
class Job:
    """What a fork is to be: its words, its surroundings and its streams."""

    arguments: list[str]
    environment: Mapping[str, str]
    folder: str
    streams: list[int]

    @classmethod
    def read(cls, connection: socket.socket) -> Job:
        data, streams, _, _ = socket.recv_fds(connection, LARGEST, 3)
        while not data.endswith(b"\0"):
            data += connection.recv(LARGEST)
        asked = json.loads(data[:-1].decode("utf-8", "surrogateescape"))
        return cls(asked["arguments"], asked["environment"], asked["folder"], list(streams))


@define
class Forks:
    """The living forks, each with the connection of who started it."""

    listening: socket.socket
    owner: int
    selector: selectors.BaseSelector = field(factory=selectors.DefaultSelector)
    children: dict[int, socket.socket] = field(factory=dict)
    bell: tuple[int, int] = field(factory=lambda: os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC))

    def serve(self) -> Job | None:
        """Forks until the owner of this process is gone; a fork returns what it is to be."""
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self.bell[1])
        for source in (self.listening, self.owner, self.bell[0]):
            self.selector.register(source, selectors.EVENT_READ)
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is self.listening:
                    if job := self._fork():
                        return job
                elif key.fileobj == self.owner:
                    self._end(*self.children)
                    return None
                elif key.fileobj == self.bell[0]:
                    os.read(self.bell[0], 4096)
                    self._reap()
                else:  # who started it is gone
                    self._end(key.data)
                    self.selector.unregister(key.fileobj)

    def _fork(self) -> Job | None:
        connection, _ = self.listening.accept()
        job = Job.read(connection)
        child = os.fork()
        if not child:
            self._forget(connection)
            return job
        for stream in job.streams:
            os.close(stream)
        self.children[child] = connection
        self.selector.register(connection, selectors.EVENT_READ, child)
        connection.sendall(b"%d\n" % child)
        return None

    def _forget(self, connection: socket.socket) -> None:
        """Gives a fork the handlers of a new process, and nothing of its siblings."""
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.selector.close()
        for source in (self.listening, connection, *self.children.values()):
            source.close()
        for number in (self.owner, *self.bell):
            os.close(number)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                connection = self.children.pop(ended[0])
                with contextlib.suppress(KeyError):
                    self.selector.unregister(connection)
                with connection, contextlib.suppress(OSError):
                    connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(ended[1]))

    def _end(self, *children: int) -> None:
        for child in children:
            for end in (os.killpg, os.kill):  # it may not have a group of its own yet
                with contextlib.suppress(ProcessLookupError):
                    end(child, signal.SIGKILL)


def _run(job: Job) -> int:
    """Is from now on the process that was asked for; returns its exit code."""
    try:
        _become(job)
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        print(error.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _leave(code: int) -> NoReturn:
    """Ends as an interpreter does, except that it takes nothing apart that belongs to all: that would copy it first."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads that are no daemons
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)


def _become(job: Job) -> None:
    for number, stream in enumerate(job.streams):
        os.dup2(stream, number)
        os.close(stream)
    _enter(job)
    first, *rest = job.arguments
    if first == "-c":
        sys.argv, sys.path[0] = ["-c", *rest[1:]], ""
        exec(compile(rest[0], "<string>", "exec"), _main().__dict__)
    elif first == "-m":
        sys.argv, sys.path[0] = rest, job.folder
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = job.arguments, os.path.dirname(os.path.realpath(first))
        exec(compile(Path(first).read_bytes(), first, "exec"), _main(__file__=first).__dict__)


def _enter(job: Job) -> None:
    """Takes environment and folder, and forgets what was drawn or found before the fork."""
    backend, before = os.environ["KERAS_BACKEND"], _paths(os.environ)
    if (wanted := job.environment.get("KERAS_BACKEND", backend)) != backend:
        sys.exit(f"prefork.py has imported Keras for {backend}, and KERAS_BACKEND is {wanted}")
    os.environ.clear()
    os.environ.update(job.environment)
    os.chdir(job.folder)
    sys.path[1:] = [*_paths(os.environ), *(path for path in sys.path[1:] if path not in before)]
    tempfile.tempdir = None
    sys.modules["numpy"].random.seed()  # Python's own generator does so by itself


def _paths(environment: Mapping[str, str]) -> list[str]:
    return [os.path.abspath(path) for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]


def _main(**values: object) -> ModuleType:
    sys.modules["__main__"] = main = ModuleType("__main__")
    main.__dict__.update(values, __builtins__=builtins)
    return main


def main(listening: int, place: str, owner: int) -> None:
    """Imports the backend of the environment and Keras, and forks until the owner is gone."""
    for name in (os.environ["KERAS_BACKEND"], "keras"):
        importlib.import_module(name)
    gc.freeze()  # what is here now is not looked through again by each fork
    job = Forks(socket.socket(fileno=listening), os.pidfd_open(owner)).serve()
    if job is None:
        shutil.rmtree(Path(place).parent, ignore_errors=True)
        os._exit(0)
    _leave(_run(job))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
