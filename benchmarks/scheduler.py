"""Measures the scheduler: a tick among many jobs, and how soon a queued job's first rank runs.

    python benchmarks/scheduler.py [--finished 1000] [--active 50] [--json FILE]

Prints one JSON document; times are seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from batchhvd.engines.processes import Processes
from batchhvd.service.scheduler.task import Site
from tests.support.world import World


def main() -> None:
    """Runs both measurements and prints what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--finished", type=int, default=1000)
    parser.add_argument("--active", type=int, default=50)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="batchhvd-benchmark-") as folder:
        found = {
            "cores": os.cpu_count(),
            "tick": tick(Path(folder, "memory"), options.finished, options.active, real=False),
            "tick with processes": tick(Path(folder, "processes"), options.finished, options.active, real=True),
            "start": start(Path(folder, "start")),
        }
    text = json.dumps(found, indent=2)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")


def tick(root: Path, finished: int, active: int, real: bool) -> dict[str, Any]:
    """Times ticks with finished jobs, and active ones of which half run (one node each) and half wait."""
    world = _world(root, real)
    world.cluster(nodes=active // 2)
    for number in range(finished):
        world.job(f"old{number}")
        world.change(f"old{number}", executionState="succeeded", executionInfo={"exitCode": 0})
    command = {"commandLine": "sleep 1000"}
    for number in range(active):
        world.job(f"new{number}", customToolkitSettings=command)
    world.tick(4)
    _until(lambda: not real or all(_begun(job) for job in world.store.active() if "handle" in job.private))
    world.tick(2)
    times = [_timed(world.tick) for _ in range(100)]
    running = sum(world.state(f"new{number}") == "running" for number in range(active))
    for job in world.store.active():
        world.terminate(job.document["name"])
    _until(lambda: world.tick() or not world.store.active())
    spread = {"median": statistics.median(times), "worst": max(times)}
    return {"finished": finished, "running": running, "waiting": active - running, **spread}


def start(root: Path, times: int = 20) -> dict[str, Any]:
    """Times from a job's being queued to its first rank's process, with ticks as the service makes them."""
    world = _world(root, real=True)
    world.cluster(nodes=4)
    world.tick(3)
    found = [_start(world, number) for number in range(times)]
    return {"jobs": times, "nodes": 4, "median": statistics.median(found), "worst": max(found)}


def _start(world: World, number: int) -> float:
    world.job(f"j{number}", 4, customToolkitSettings={"commandLine": "date +%s.%N > $AZ_BATCHAI_SHARED_JOB_TEMP/began"})
    queued = time.time()
    world.tick()  # the request wakes the scheduler
    began = Path(world.of(f"j{number}").private["folder"], "shared", "began")
    _until(lambda: world.tick() or world.state(f"j{number}") == "succeeded")
    return float(began.read_text()) - queued


def _world(root: Path, real: bool) -> World:
    root.mkdir()
    world = World(root, site=Site(python=sys.executable, prepare="skip"))
    world.clock = time.time
    if real:
        world.engine = Processes()
    world.restart()
    world.store._connection().execute("PRAGMA synchronous = FULL")  # as the service has it
    return world


def _begun(job: Any) -> bool:
    path = Path(job.private["folder"], "node-0.json")
    return path.exists() and json.loads(path.read_text())["state"] == "running"


def _until(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("it did not come to pass in time")
        time.sleep(0.02)


def _timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
