"""An engine and its tasks' folder, as the tests of engines use them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from attrs import define, field

from batchhvd.engines.base import ENDED, Engine, Status, Task

LONG = 20_000  # a command that sleeps so long has been forgotten by everybody
PYTHON = sys.executable


@define
class Stage:
    """An engine, and a folder with a blank and a letter beyond ASCII in its name for its tasks."""

    make: Callable[[], Engine]
    root: Path
    engine: Engine = field(init=False)
    handles: list[str] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.engine = self.make()

    def task(self, command: str, *, nodes: int = 2, name: str = "täsk one", **rest: object) -> Task:
        """Returns a task of one rank a node, where nothing else is said."""
        settings: dict[str, object] = {"ranks": (1,) * nodes, "launch": "horovod", "name": "contract", **rest}
        names = tuple(f"tvm-7_{number}-p" for number in range(1, nodes + 1))
        logs = str(self.root / f"lögs of {name}")
        return Task(folder=str(self.root / name), nodes=names, command=command, logs=logs, **settings)  # type: ignore

    def start(self, task: Task) -> str:
        handle = self.engine.submit(task)
        self.handles.append(handle)
        return handle

    def run(self, task: Task, seconds: float = 40) -> Status:
        return self.wait(self.start(task), lambda status: status.state in ENDED, seconds)

    def wait(self, handle: str, done: Callable[[Status], object], seconds: float = 40) -> Status:
        """Asks until the status is as wished; a run that ended otherwise fails the test."""
        deadline = time.monotonic() + seconds
        while not done(status := self.engine.status([handle])[handle]):
            assert status.state not in ENDED, status
            assert time.monotonic() < deadline, status
            time.sleep(0.05)
        return status

    def until(self, task: Task, name: str, seconds: float = 40) -> None:
        """Waits until the ranks have made a file in the task's folder."""
        deadline = time.monotonic() + seconds
        while not (Path(task.folder) / name).exists():
            assert time.monotonic() < deadline, f"no {name}: {self.text(task, 'stderr.txt')}"
            time.sleep(0.02)

    def text(self, task: Task, name: str = "stdout.txt") -> str:
        path = Path(task.logs) / name
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def lines(self, task: Task, name: str = "stdout.txt") -> list[str]:
        return self.text(task, name).splitlines()

    def end(self) -> None:
        """Ends whatever a failed test has left running."""
        for handle in self.handles:
            if self.engine.status([handle])[handle].state not in ENDED:
                self.engine.cancel(handle)
                self.wait(handle, lambda status: status.state in ENDED)
