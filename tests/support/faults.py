"""A service without its network side that runs real processes, and how the tests of faults look at them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from batchhvd.engines.processes import Processes
from batchhvd.service.scheduler.task import Site
from tests.support.stage import PYTHON
from tests.support.waiting import until
from tests.support.world import World

MOUNTED = "$AZ_BATCHAI_JOB_MOUNT_ROOT/ablage ü"


def processes(root: Path) -> list[int]:
    """Returns all living processes that belong to tasks below a root: runners, ranks, grandchildren."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            place = Path("/proc", name)
            belongs = f"BATCHHVD_NODE={root}/".encode() in (place / "environ").read_bytes()
            line = (place / "cmdline").read_bytes()
            if belongs or (b"/node-" in line and f"{root}/".encode() in line):
                found.append(int(name))
        except OSError:
            continue
    return found


class Live(World):
    """A world whose engine runs real processes and whose clock is the machine's."""

    def until_state(self, name: str, *states: str, seconds: float = 30.0) -> str:
        """Ticks until a job is in one of some states, and returns it."""

        def there() -> str:
            self.tick()
            return self.state(name) if self.state(name) in states else ""

        return str(until(there, seconds))

    def ended(self, name: str, seconds: float = 30.0) -> str:
        """Ticks until a job has ended, and returns how."""
        return self.until_state(name, "succeeded", "failed", seconds=seconds)

    def folder(self, name: str) -> Path:
        """Returns the folder of a job's present attempt."""
        return Path(self.of(name).private["folder"])

    def node(self, name: str, index: int) -> dict[str, Any]:
        """Returns the record of a node."""
        record: dict[str, Any] = json.loads((self.folder(name) / f"node-{index}.json").read_text())
        return record

    def ranks_run(self, name: str, nodes: int) -> None:
        """Ticks until all nodes of a job have started their ranks."""

        def all_run() -> bool:
            self.tick()
            assert self.state(name) in ("queued", "running"), self.info(name)
            paths = (
                [self.folder(name) / f"node-{index}.json" for index in range(nodes)] if self.engine_has(name) else []
            )
            return bool(paths) and all(p.exists() and json.loads(p.read_text())["state"] == "running" for p in paths)

        until(all_run)

    def up(self, name: str, nodes: int) -> None:
        """Ticks until each rank of a job, one a node, has written "up"."""
        self.ranks_run(name, nodes)
        until(lambda: self.log(name).count("up\n") == nodes)

    def engine_has(self, name: str) -> bool:
        """Whether a job has been given to the engine."""
        return "handle" in self.of(name).private

    def logs(self, name: str) -> Path:
        """Returns the folder of a job's logs."""
        segment = self.of(name).document["properties"]["jobOutputDirectoryPathSegment"]
        return Path(self.root / "shares/acc/share" / segment / "stdouterr")

    def log(self, name: str, file: str = "stdout.txt") -> str:
        """Returns a log of a job."""
        return (self.logs(name) / file).read_text(encoding="utf-8")

    def execution_log(self, name: str, index: int = 0) -> str:
        """Returns the execution log of a job's node."""
        nodes = self.of(name).private["nodes"]
        return self.log(name, f"execution-{nodes[index]}.log" if len(nodes) > 1 else "execution.log")

    def command(self, name: str, command: str, nodes: int = 1, **properties: Any) -> None:
        """Queues a job whose ranks run a shell command, one a node, as Horovod's would."""
        script = self.root / "shares/acc/share" / f"{name}.py"
        script.write_text(f"import os, sys\nos.execv('/bin/bash', ['bash', '-c', {command!r}])\n")
        self.job(name, nodes, horovodSettings={"pythonScriptFilePath": f"{MOUNTED}/{name}.py"}, **properties)


@contextmanager
def live(
    root: Path,
    nodes: int = 4,
    prepare: str = "skip",
    patience: float = 8.0,
    clock: Callable[[], float] = time.time,
    **cluster: Any,
) -> Iterator[Live]:
    """Gives a world with a cluster at rest; whatever still runs at its end is ended, and the test fails for it."""
    root.mkdir(parents=True, exist_ok=True)
    site = Site(python=PYTHON, prepare=prepare, layers=str(root / "layers"))
    world = Live(root, engine=Processes(patience=patience), clock=clock, site=site)
    world.cluster(nodes=nodes, **cluster)
    world.tick(3)
    try:
        yield world
        until(lambda: not processes(root), 10)
    finally:
        for pid in processes(root):
            os.kill(pid, 9)
