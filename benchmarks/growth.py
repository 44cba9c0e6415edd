"""What grows with what a root holds: a service on roots of several sizes, filled directly.

    python benchmarks/growth.py [--sizes 1000,10000,100000] [--minutes 5] [--output benchmarks/results/growth.json]
    python benchmarks/growth.py --soak 60     only memory, for so many minutes: benchmarks/results/growth_soak.json

Each size is a number of finished jobs; a root also has a hundredth as many clusters, twice as many files in one
directory, and a fifth as many jobs in a group that is deleted while another client reads a job. CPU is the service's.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parents[1]))

from batchhvd.wire.facts.identity import SUBSCRIPTION
from tests.support import filled

BATCHAI, STORAGE = "?api-version=2018-05-01", "?api-version=2019-06-01"
RESULTS = Path(__file__).parent / "results"
GOAL = {
    "start_s": 1.0,
    "get_median_ms": 3.0,
    "get_p99_ms": 15.0,
    "page_cpu_ms": 50.0,
    "sigterm_s": 2.0,
    "memory_growth": 0.2,
}


def main() -> int:
    """Measures, prints and writes the result; returns 1 if a goal is missed at the largest size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sizes", default="1000,10000,100000")
    parser.add_argument("--minutes", type=float, default=5, help="how long memory is watched under load")
    parser.add_argument("--soak", type=float, help="only watch memory, for so many minutes")
    parser.add_argument("--output", type=Path, default=RESULTS / "growth.json")
    options = parser.parse_args()
    if options.soak:
        return soak(options.soak)
    sizes = [size(int(text)) for text in options.sizes.split(",")]
    result = {
        "sizes": sizes,
        "memory": memory(options.minutes),
        "goal": GOAL,
        "cores": os.cpu_count(),
        "load_before": os.getloadavg()[0],
        "python": platform.python_version(),
    }
    write(options.output, result)
    missed = missing(sizes[-1], result["memory"])
    print(f"missed: {', '.join(missed)}" if missed else "all goals are reached", file=sys.stderr)
    return int(bool(missed))


def soak(minutes: float) -> int:
    """Measures memory alone and writes it; returns 1 if the goal is missed."""
    found = memory(minutes)
    goal = {"memory_growth": GOAL["memory_growth"]}
    command = f"python benchmarks/growth.py --soak {minutes:g}"
    write(RESULTS / "growth_soak.json", {"command": command, "memory": found, "goal": goal, "cores": os.cpu_count()})
    return int(found["growth"] > goal["memory_growth"])


def write(path: Path, result: dict[str, Any]) -> None:
    """Prints and keeps a result."""
    text = json.dumps(result, indent=2)
    print(text)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text + "\n")


def missing(found: dict[str, Any], memory: dict[str, Any]) -> list[str]:
    """Returns the names of the goals that a size misses."""
    pages = [value for name, value in found.items() if name.startswith("page of")]
    reached = {
        "start_s": found["start, s"],
        "get_median_ms": found["GET during the deletion, median ms"],
        "get_p99_ms": found["GET during the deletion, 99 % ms"],
        "page_cpu_ms": max(pages),
        "sigterm_s": found["SIGTERM during the deletion, s"],
        "memory_growth": memory["growth"],
    }
    return [name for name, limit in GOAL.items() if reached[name] > limit]


class Service:
    """A service on a root, and one connection to it."""

    def __init__(self, root: Path) -> None:
        (root / "endpoint").unlink(missing_ok=True)
        began = time.perf_counter()
        self.process = subprocess.Popen([sys.executable, "-m", "batchhvd.service", "--root", str(root)])
        while not (root / "endpoint").exists():
            if self.process.poll() is not None:
                raise SystemExit("the service did not start")
            time.sleep(0.005)
        self.started = time.perf_counter() - began
        self.url, self.token = (root / "endpoint").read_text().strip(), (root / "token").read_text()
        self.connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=120)

    def ask(self, method: str, path: str) -> tuple[int, bytes]:
        """Sends one request and returns status and body."""
        self.connection.request(method, path, headers={"Authorization": f"Bearer {self.token}"})
        answer = self.connection.getresponse()
        return answer.status, answer.read()

    def cpu(self) -> float:
        """Returns the CPU that the process has used, in seconds."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def memory(self) -> float:
        """Returns the resident memory in MiB."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024

    def end(self) -> float:
        """Sends SIGTERM and returns how many seconds the end took."""
        began = time.perf_counter()
        self.process.terminate()
        self.process.wait()
        return time.perf_counter() - began


@contextmanager
def running(root: Path) -> Iterator[Service]:
    """Runs a service."""
    service = Service(root)
    try:
        yield service
    finally:
        if service.process.poll() is None:
            service.end()


def size(jobs: int) -> dict[str, Any]:
    """Returns the figures of one size."""
    with tempfile.TemporaryDirectory(prefix="batchhvd-growth-") as folder:
        root = Path(folder, "root")
        root.mkdir(mode=0o700)
        filled.fill(root, jobs, max(1, jobs // 100), 2 * jobs, jobs // 5).close()
        subprocess.run(["sync"], check=True)  # what was written for the measurement must not be waited for in it
        with running(root) as service:
            found = {"jobs": jobs, "start, s": round(service.started, 3), **quiet(service, root)}
            found |= deletion(service)
        with running(root) as service:
            found["next start, s"] = round(service.started, 3)
            took = timed(lambda: gone(service))
            found["rest of the deletion, s"] = round(took, 1)
    return found


def quiet(service: Service, root: Path) -> dict[str, Any]:
    """Returns the CPU of single requests, in milliseconds."""
    time.sleep(3)
    idle = spent(service, lambda: time.sleep(5)) / 5
    jobs, experiment = filled.experiment("keep") + "/jobs", filled.experiment("keep")
    output = f"{experiment}/jobs/j0/listOutputFiles{BATCHAI}&outputdirectoryid=stdouterr"
    found = {
        "idle CPU, %": round(100 * idle, 2),
        **spread("GET of a job", times(service, 2000)),
        "page of jobs, CPU ms": page(service, "GET", f"{jobs}{BATCHAI}"),
        "page of clusters, CPU ms": page(service, "GET", f"{experiment.rpartition('/exp')[0]}/clusters{BATCHAI}"),
        "first page of output files, CPU ms once": page(service, "POST", output, tries=1),
        "page of output files, CPU ms": page(service, "POST", output),
        "usages, CPU ms": page(service, "GET", _usages()),
        "status page, CPU ms": page(service, "GET", "/status.json"),
    }
    account = filled.account("unusedaccount")
    found["DELETE of an unused account, CPU ms"] = page(service, "DELETE", f"{account}{STORAGE}", tries=1)
    return found


def _usages() -> str:
    return f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.BatchAI/locations/local/usages{BATCHAI}"


def page(service: Service, method: str, path: str, tries: int = 7) -> float:
    """Returns the CPU of a request in milliseconds, the median of some tries."""

    def ask() -> None:
        status, body = service.ask(method, path)
        assert status < 300, (path, status, body[:500])

    return round(1e3 * statistics.median(spent(service, ask) for _ in range(tries)), 2)


def spent(service: Service, action: Callable[[], object]) -> float:
    """Returns the CPU that the service uses for an action."""
    before = service.cpu()
    action()
    return service.cpu() - before


def timed(action: Callable[[], object]) -> float:
    """Returns how many seconds an action takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def times(service: Service, count: int) -> list[float]:
    """Returns how long each of some GETs of a job takes."""
    path = f"{filled.experiment('keep')}/jobs/j1{BATCHAI}"
    return [timed(lambda: service.ask("GET", path)) for _ in range(count)]


def deletion(service: Service, seconds: float = 5.0) -> dict[str, Any]:
    """Returns how long GETs take while a group is deleted, and how soon a signal ends the service then."""
    before = service.cpu()
    took = timed(lambda: service.ask("DELETE", f"{filled.group('gone')}{STORAGE}"))
    found: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        found += times(service, 20)
        time.sleep(0.02)
    cpu, ended = service.cpu() - before, service.end()
    return {
        "DELETE of a group, s": round(took, 3),
        **spread("GET during the deletion", found),
        "CPU in these seconds, %": round(100 * cpu / seconds),
        "SIGTERM during the deletion, s": round(ended, 2),
    }


def spread(name: str, found: list[float]) -> dict[str, float]:
    """Returns median, 99th percentile and worst of some times, in milliseconds."""
    found.sort()
    figures = {"median": statistics.median(found), "99 %": found[int(len(found) * 0.99)], "worst": found[-1]}
    return {f"{name}, {which} ms": round(1e3 * value, 2) for which, value in figures.items()}


def gone(service: Service) -> None:
    """Waits until the deleted group is gone."""
    while service.ask("GET", f"{filled.group('gone')}{STORAGE}")[0] != 404:
        time.sleep(0.1)


def memory(minutes: float) -> dict[str, Any]:
    """Returns the memory after a fifth of the time under load, at most a minute, and at its end."""
    with tempfile.TemporaryDirectory(prefix="batchhvd-growth-") as folder:
        root = Path(folder, "root")
        root.mkdir(mode=0o700)
        filled.fill(root, 1000, 10, 2000).close()
        with running(root) as service:
            early = min(60.0, 12 * minutes)
            load(service, early)
            first = service.memory()
            asked = load(service, 60 * minutes - early)
            last = service.memory()
    growth = round(last / first - 1, 3)
    found = {"minutes": minutes, "MiB early": round(first), "MiB at the end": round(last), "growth": growth}
    return {**found, "requests": asked}


def load(service: Service, seconds: float) -> int:
    """Reads, lists, creates and deletes for some seconds, and returns how many requests that were."""
    end, number = time.perf_counter() + seconds, 0
    experiment = filled.experiment("keep")
    while time.perf_counter() < end:
        number += 1
        times(service, 20)
        service.ask("GET", f"{experiment}/jobs{BATCHAI}&maxresults=100")
        service.ask("POST", f"{experiment}/jobs/j0/listOutputFiles{BATCHAI}&outputdirectoryid=stdouterr&maxresults=100")
        service.ask("GET", "/status.json")
        service.ask("PUT", f"{experiment.rpartition('/')[0]}/e{number % 10}{BATCHAI}")
        service.ask("DELETE", f"{experiment.rpartition('/')[0]}/e{number % 10}{BATCHAI}")
    return 25 * number


if __name__ == "__main__":
    sys.exit(main())
