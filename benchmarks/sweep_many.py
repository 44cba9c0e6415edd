"""Runs many jobs that do nothing through a sweep, from the command line in a terminal, to their end.

    python benchmarks/sweep_many.py [--jobs 10000] [--nodes 8] [--json benchmarks/results/sweep_many.json]

Measures how soon all are accepted, how long they take, GETs of one job meanwhile (ten a second), the memory of the
service and of the client, and how many lines the terminal has of the wait. 10,000 jobs take some minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import batchhvd

WHERE = ["-g", "many", "-w", "work", "-e", "tries"]
SWEEP = "nop"


def main() -> None:
    """Runs the sweep and prints what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="batchhvd-many-") as folder:
        found = measure(Path(folder), options.jobs, options.nodes)
    text = json.dumps({"command": "python benchmarks/sweep_many.py", **found}, indent=2)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")


def measure(root: Path, jobs: int, nodes: int) -> dict[str, Any]:
    """Runs the sweep on a service of its own while somebody else asks for a job."""
    with batchhvd.local(root / "service", idle=3600) as session:
        prepare(session, root, nodes)
        watch = Watch(session)
        terminal = Terminal(root, jobs)
        watch.follow(terminal, jobs)
        sweep = session.group("many").workspace("work").experiment("tries").open_sweep(SWEEP).refresh()
        states = [str(trial.state) for trial in sweep]
        session.stop_service()
    return {
        "jobs": jobs,
        "nodes": nodes,
        "states": {state: states.count(state) for state in sorted(set(states))},
        **watch.result(),
        **terminal.result(),
        "cores": os.cpu_count(),
        "load_at_the_end": os.getloadavg()[0],
    }


def prepare(session: Any, root: Path, nodes: int) -> None:
    """Makes what the sweep needs, and one job beside it for the GETs."""
    group = session.create_group("many")
    workspace = group.create_workspace("work")
    cluster = workspace.create_cluster("nodes", vm_size="Standard_D2s_v3", nodes=nodes).wait()
    share = group.create_storage_account("manyfiles").create_share("files")
    mount = share.mount()
    task = batchhvd.CustomToolkit("true {x}")
    spec = batchhvd.JobSpec(nodes=1, task=task, mounts=[mount], logs=mount / "logs")
    spec.write(root / f"{SWEEP}.json")
    plain = batchhvd.JobSpec(nodes=1, task=batchhvd.CustomToolkit("true"), mounts=[mount], logs=mount / "logs")
    workspace.create_experiment("beside").create_job("one", plain, cluster=cluster).wait()
    workspace.create_experiment("tries")


class Terminal:
    """The command line in a pseudo-terminal."""

    def __init__(self, root: Path, jobs: int) -> None:
        """Starts the sweep."""
        main, other = pty.openpty()
        values = ["--random", str(jobs), "--set", "x=integer:1:1000000", "--name", SWEEP]
        command = [
            sys.executable,
            "-m",
            "batchhvd",
            "sweep",
            str(root / f"{SWEEP}.json"),
            *values,
            *WHERE,
            "-c",
            "nodes",
        ]
        environment = {**os.environ, "BATCHHVD_ROOT": str(root / "service")}
        with (root / "out.txt").open("wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=other, env=environment, cwd=root)
        os.close(other)
        self.text = b""
        threading.Thread(target=self._read, args=(main,), daemon=True).start()

    def _read(self, main: int) -> None:
        while True:
            try:
                data = os.read(main, 65536)
            except OSError:  # the other end is closed
                return
            self.text += data

    def result(self) -> dict[str, Any]:
        """Returns how it ended, and what stood in the terminal."""
        lines = [line.rpartition("\x1b[2K")[2] for line in self.text.decode().split("\r\n")]
        left = [line for line in lines if line.strip()]
        return {"exit_code": self.process.returncode, "progress_updates": self.text.count(b"\x1b[2K"), "lines": left}


class Watch:
    """Looks at the service and the client from outside while the sweep runs."""

    def __init__(self, session: Any) -> None:
        """Begins to count."""
        self.session, self.pid = session, session.service.pid
        self.began = time.monotonic()
        self.gets: list[float] = []
        self.memory: list[tuple[float, float, float]] = []
        self.accepted: float | None = None
        self.ran: float | None = None

    def follow(self, terminal: Terminal, jobs: int) -> None:
        """Asks ten times a second until the command has ended."""
        job = self.session.group("many").workspace("work").experiment("beside").job("one").refresh()
        getter = Getter(self.session, job.id)
        while terminal.process.poll() is None:
            self.gets.append(getter.ask())
            if len(self.gets) % 20 == 0:
                self._note(terminal, jobs)
            time.sleep(0.1)

    def _note(self, terminal: Terminal, jobs: int) -> None:
        now = time.monotonic() - self.began
        self.memory.append((now, resident(self.pid), resident(terminal.process.pid)))
        shown = terminal.text.decode(errors="replace")
        if self.accepted is None and f"{jobs} trials: " in shown and "planned" not in shown.rpartition("\x1b[2K")[2]:
            self.accepted = now
        if self.ran is None and f"{jobs} trials: {jobs} succeeded" in shown:
            self.ran = now

    def result(self) -> dict[str, Any]:
        """Returns the figures."""
        times = sorted(self.gets)
        at = [self.memory[int(part * (len(self.memory) - 1))] for part in (0.1, 0.25, 0.5, 0.75, 1.0)]
        return {
            "seconds_in_all": round(time.monotonic() - self.began, 1),
            "seconds_until_all_were_accepted": rounded(self.accepted),
            "seconds_until_all_had_run": rounded(self.ran),
            "get_median_ms": round(1000 * statistics.median(times), 2),
            "get_p99_ms": round(1000 * times[int(0.99 * len(times))], 2),
            "gets": len(times),
            "memory_after_seconds_service_MiB_client_MiB": [[round(one) for one in row] for row in at],
        }


def rounded(seconds: float | None) -> float | None:
    """Returns seconds with one digit."""
    return None if seconds is None else round(seconds, 1)


class Getter:
    """GETs of one job on one connection."""

    def __init__(self, session: Any, job: str) -> None:
        """Opens the connection."""
        import http.client
        from urllib.parse import urlsplit

        root = Path(session.service.root)
        self.connection = http.client.HTTPConnection(urlsplit(session.service.endpoint).netloc, timeout=60)
        self.path = f"{job}?api-version=2018-05-01"
        self.headers = {"Authorization": f"Bearer {(root / 'token').read_text().strip()}"}

    def ask(self) -> float:
        """Returns how many seconds a GET takes."""
        began = time.perf_counter()
        self.connection.request("GET", self.path, headers=self.headers)
        answer = self.connection.getresponse()
        answer.read()
        assert answer.status == 200, answer.status
        return time.perf_counter() - began


def resident(pid: int) -> float:
    """Returns a process's resident memory in MiB, 0 once it has ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


if __name__ == "__main__":
    main()
