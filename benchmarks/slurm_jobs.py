"""Measures many jobs under Slurm: 1,000 submitted at once, and 50 trivial functions beside submitit, on one bed.

    python benchmarks/slurm_jobs.py [--submit 1000] [--small 50] [--submitit PYTHON] [--limited 300] [--json FILE]

PYTHON is the interpreter of an environment with submitit; without it, only batchhvd is measured. Brings up four nodes
on this machine (root, Debian's Slurm). Each job of the 50 has a whole node. --limited runs jobs with MaxSubmitJobs=20
on a bed with accounting (bed.py install --accounting). Times are seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import batchhvd
from batchhvd import CustomToolkit, JobSpec
from batchhvd.sweeps import points
from tests.support.slurm import Bed, beds

HOME = "/srv" if os.access("/srv", os.W_OK) else "/var/tmp"  # what the nodes see; each has a /tmp of its own
SUBMITIT = """
import json, sys, time, statistics, submitit
folder, count, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]
def ended(number):
    import time
    return time.time()
executor = submitit.AutoExecutor(folder, cluster="slurm")
whole = {"exclusive": True, "mem": 0}
executor.update_parameters(timeout_min=5, slurm_additional_parameters=whole, slurm_array_parallelism=1000)
begun = time.time()
if kind == "array":
    with executor.batch():
        jobs = [executor.submit(ended, number) for number in range(count)]
else:
    jobs = [executor.submit(ended, number) for number in range(count)]
submitted = time.time() - begun
lags, left = [], set(jobs)
while left:
    for job in [job for job in left if job.done()]:
        lags.append(time.time() - job.result())
        left.remove(job)
    time.sleep(0.05)
done = time.time() - begun
told = {"submitted": submitted, "all done": done, "lag median": statistics.median(lags), "lag most": max(lags)}
print(json.dumps(told))
"""


def main() -> None:
    """Runs the measurements and prints what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--submit", type=int, default=1000)
    parser.add_argument("--small", type=int, default=50)
    parser.add_argument("--submitit", default="")
    parser.add_argument("--limited", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="batchhvd-benchmark-", dir=HOME) as folder, beds(Path(folder)) as bed:
        os.environ["PATH"] = f"{bed.bin}:{os.environ['PATH']}"
        found: dict[str, Any] = {
            "cores": os.cpu_count(),
            "load": os.getloadavg()[0],
            "slurm": bed.slurm("sbatch", "-V").strip(),
        }
        if options.submit:
            found["submit"] = submitted(bed, Path(folder, "submit"), options.submit)
        if options.small:
            found["small"] = {"batchhvd": small(Path(folder, "small"), options.small)}
            for kind in ("single", "array") if options.submitit else ():
                found["small"][f"submitit, {kind}"] = submitit(
                    options.submitit, Path(folder, kind), options.small, kind
                )
    if options.limited:
        found["limited"] = limited(options.limited)
    text = json.dumps(found, indent=2)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")


def place(root: Path, nodes: int, **settings: str) -> tuple[Any, Any, Any, Any]:
    """Starts a service and returns its session, experiment, cluster and a mount."""
    session = batchhvd.local(root, engine="slurm", engine_options=settings)
    group = session.create_group("g")
    share = group.create_storage_account("account").create_share("share")
    workspace = group.create_workspace("w")
    cluster = workspace.create_cluster("c", vm_size="Standard_NC6", nodes=nodes)
    until(lambda: cluster.refresh().nodes.idle == nodes)
    return session, workspace.create_experiment("e"), cluster, share.mount("m")


def submitted(bed: Bed, root: Path, count: int) -> dict[str, float]:
    """Submits many jobs, of which few can run, and says when Slurm had them all."""
    sharing = {"ahead": str(count), "cpus-per-task": "1", "mem": "200"}
    session, experiment, cluster, mount = place(root, count, **sharing)
    try:
        spec = JobSpec(nodes=1, task=CustomToolkit(command="sleep 1000; : {number}"), mounts=[mount], logs=mount)
        space = points([{"number": number} for number in range(count)])
        sweep = experiment.sweep("many", spec, space, cluster=cluster)
        begun = time.monotonic()
        sweep.submit()
        accepted = time.monotonic() - begun
        until(lambda: len(bed.slurm("squeue", "-hr").splitlines()) >= count)
        queued = time.monotonic() - begun
        return {"jobs": count, "accepted by the service": accepted, "in Slurm's queue": queued}
    finally:
        bed.slurm("scancel", "-u", "root")
        session.stop_service()


def small(root: Path, count: int) -> dict[str, float]:
    """Runs trivial jobs, a whole node each, and says how soon their ends were known."""
    session, experiment, cluster, mount = place(root, count, ahead=str(count))
    try:
        spec = JobSpec(nodes=1, task=CustomToolkit(command="date +%s.%N; : {number}"), mounts=[mount], logs=mount)
        space = points([{"number": number} for number in range(count)])
        sweep = experiment.sweep("small", spec, space, cluster=cluster)
        begun = time.time()
        sweep.submit()
        accepted = time.time() - begun
        seen: dict[str, float] = {}
        while len(seen) < count:
            for trial in sweep.refresh():
                if trial.is_over and trial.job:
                    seen.setdefault(trial.job.name, time.time())
            time.sleep(0.05)
        done = time.time() - begun
        lags = [seen[job.name] - float("".join(job.stream())) for job in experiment.jobs()]
        return {"submitted": accepted, "all done": done, "lag median": statistics.median(lags), "lag most": max(lags)}
    finally:
        session.stop_service()


def limited(count: int) -> dict[str, object]:
    """Runs jobs of which Slurm takes 20 at a time."""
    sharing = {"ahead": str(count), "cpus-per-task": "1", "mem": "200"}
    home = tempfile.TemporaryDirectory(prefix="batchhvd-benchmark-", dir=HOME)
    with home as folder, beds(Path(folder), "--accounting") as bed:
        before = os.environ["PATH"]
        os.environ["PATH"] = f"{bed.bin}:{before}"
        bed.slurm("sacctmgr", "-i", "modify", "user", "root", "set", "maxsubmitjobs=20")
        session, experiment, cluster, mount = place(Path(folder, "root"), count, **sharing)
        try:
            spec = JobSpec(nodes=1, task=CustomToolkit(command="echo {number}"), mounts=[mount], logs=mount)
            space = points([{"number": number} for number in range(count)])
            begun = time.monotonic()
            sweep = experiment.sweep("limited", spec, space, cluster=cluster).run(timeout=3600)
            states = [str(trial.state) for trial in sweep]
            told = bed.slurm("sacct", "-nX", "-o", "state").split()
            return {
                "jobs": count,
                "succeeded": states.count("succeeded"),
                "COMPLETED in Slurm's accounting": told.count("COMPLETED"),
                "all done": time.monotonic() - begun,
            }
        finally:
            session.stop_service()
            os.environ["PATH"] = before


def submitit(python: str, folder: Path, count: int, kind: str) -> dict[str, float]:
    """Runs as many functions with submitit."""
    command = [python, "-c", SUBMITIT, str(folder), str(count), kind]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=900)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def until(condition: Callable[[], object], seconds: float = 600.0) -> None:
    """Waits until something is true."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise SystemExit("it took too long")
        time.sleep(0.05)


if __name__ == "__main__":
    main()
