"""Measures what a user of the SDK waits for: import, a job's first line, a log's lag, many jobs; and an idle service.

    python benchmarks/client.py [--output benchmarks/results/client.json]

Everything goes through ``batchhvd.local()`` and the real service, on a root in a temporary folder.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import batchhvd
from batchhvd import CustomToolkit, JobSpec
from batchhvd.resources.session import Session
from batchhvd.wire import local_service

GOAL = {
    "import_s": 0.15,
    "first_line_s": 1.0,
    "log_lag_s": 0.3,
    "hundred_jobs_s": 10.0,
    "idle_mb": 80,
    "idle_core": 0.01,
}
LINES = "import time\nfor _ in range(60):\n    print(time.time(), flush=True)\n    time.sleep(0.1)\n"


@contextmanager
def service(folder: str) -> Iterator[Session]:
    """Starts a service for the measurements, and ends it with them: by itself it would stay for the next script."""
    try:
        with batchhvd.local(folder) as session:
            yield session
    finally:
        local_service.stop(Path(folder))


def main() -> int:
    """Measures, prints and writes the result; returns 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "client.json")
    options = parser.parse_args()
    result = {"machine": machine(), "goal": GOAL, "import_s": spread(import_seconds() for _ in range(15))}
    with tempfile.TemporaryDirectory() as folder, service(folder) as session:
        bench = Bench(session)
        result |= {"first_line_s": spread(bench.first_line() for _ in range(10)), "log_lag_s": spread(bench.lags())}
        result["hundred_jobs_s"] = bench.hundred()
        result |= idle(json.loads(Path(folder, "service.json").read_text())["pid"])
    options.output.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    return int(any(_median(result[name]) > limit for name, limit in GOAL.items()))


def machine() -> dict[str, Any]:
    """Returns what the figures depend on."""
    return {
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load before": round(os.getloadavg()[0], 2),
    }


def spread(values: Iterable[float]) -> dict[str, float]:
    """Returns median and worst, in seconds."""
    found = sorted(values)
    return {"median": round(statistics.median(found), 4), "worst": round(found[-1], 4), "times": len(found)}


def _median(found: Any) -> float:
    return float(found["median"] if isinstance(found, dict) else found)


def import_seconds() -> float:
    """Returns what ``import batchhvd`` takes in a process of its own, without the interpreter's start."""
    code = "import time; t = time.perf_counter(); import batchhvd; print(time.perf_counter() - t)"
    return float(subprocess.check_output([sys.executable, "-c", code]))


class Bench:
    """A cluster at rest and an experiment to put jobs into."""

    def __init__(self, session: Any) -> None:
        group = session.create_group("bench")
        workspace = group.create_workspace("w")
        self.share = group.create_storage_account("benchstore").create_share("files")
        self.share.create_directory("logs")
        self.cluster = workspace.create_cluster("c", vm_size="Standard_NC6", nodes=2).wait(timeout=30)
        self.experiment = workspace.create_experiment("e")
        self.count = 0

    def submit(self, command: str) -> Any:
        """Starts a job of one shell command."""
        self.count += 1
        mount = self.share.mount("data")
        spec = JobSpec(nodes=1, task=CustomToolkit(command), mounts=[mount], logs=mount / "logs")
        return self.experiment.create_job(f"j{self.count}", spec, cluster=self.cluster)

    def first_line(self) -> float:
        """Returns the seconds from submitting a job to having its first line here."""
        began = time.perf_counter()
        job = self.submit("echo here")
        next(iter(job.stream()))
        took = time.perf_counter() - began
        job.wait(timeout=30)
        return took

    def lags(self) -> list[float]:
        """Returns the seconds from each line's being written to its being here."""
        job = self.submit(f"{sys.executable} -c '{LINES}'")
        found = []
        for piece in job.stream():
            now = time.time()
            found += [now - float(line) for line in piece.split()]
        return found

    def hundred(self) -> float:
        """Returns the seconds that submitting a hundred jobs takes."""
        began = time.perf_counter()
        jobs = [self.submit("true") for _ in range(100)]
        took = time.perf_counter() - began
        for job in jobs:
            job.wait("ended", timeout=120)
        return round(took, 2)


def idle(pid: int, seconds: float = 20.0) -> dict[str, float]:
    """Returns the memory and the part of a core that the service uses when nothing runs."""
    time.sleep(3)
    before, began = _cpu(pid), time.monotonic()
    time.sleep(seconds)
    share = (_cpu(pid) - before) / (time.monotonic() - began)
    text = Path("/proc", str(pid), "status").read_text()
    memory = next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS"))
    return {"idle_mb": round(memory / 1024, 1), "idle_core": round(share, 4)}


def _cpu(pid: int) -> float:
    fields = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
