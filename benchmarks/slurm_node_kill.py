"""Measures what a node that dies in mid-training costs under Slurm, and whether the model in the end is the same.

    python benchmarks/slurm_node_kill.py [--epochs 12] [--kill-after 4] [--json FILE]

It needs root and Debian's packages of Slurm: ``python3 tests/support/bed.py install``. Five nodes come up under a Slurm
of their own; the tutorial's script trains twice on four of them with ``--resume``, and the second time a node loses its
power in the middle of an epoch. Slurm's own pauses are left as they are. Prints one JSON document; times are seconds.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen

sys.path.insert(0, str(Path(__file__).parents[1]))

import batchhvd
from batchhvd import Horovod, JobSpec
from batchhvd.cli.flows.walkthrough import SCRIPT
from batchhvd.resources.job import Job
from batchhvd.trainer.epoch_records import read_records
from batchhvd.wire.local_service import stop
from tests.support.slurm import Bed, beds

RANKS = 4
GOAL = 60.0  # seconds that may be lost beyond what Slurm itself waits


def main() -> None:
    """Trains with and without a node's death and prints what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--kill-after", type=int, default=4, help="epochs that are finished when the node dies")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    nodes = ("--nodes", str(RANKS + 1))
    with tempfile.TemporaryDirectory(prefix="batchhvd-benchmark-") as folder, beds(Path(folder), *nodes) as bed:
        found = measure(bed, Path(folder, "root"), options.epochs, options.kill_after)
    text = json.dumps(found, indent=2)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")


def measure(bed: Bed, root: Path, epochs: int, kill_after: int) -> dict[str, Any]:
    """Runs both trainings with one service."""
    os.environ["PATH"] = f"{bed.bin}:{os.environ['PATH']}"
    machine = {"cores": os.cpu_count(), "load before": os.getloadavg()[0]}
    try:
        place = Place.made(root, epochs)
        calm = undisturbed(place)
        killed = disturbed(bed, place, kill_after)
    finally:
        stop(root)
    return {
        "nodes": RANKS + 1,
        "ranks": RANKS,
        "epochs": epochs,
        "without": calm,
        "with a dead node": killed,
        "same": compared(place.final("calm"), place.final("killed")),
        "goal": {"lost": GOAL, "same": True},
        **machine,
        "slurm": bed.slurm("sinfo", "--version").strip(),
    }


@frozen
class Place:
    """Where both trainings run.

    Attributes:
        share: the folder of the share that they write to.
        epochs: how long each is.
        submit: starts a training of a name.
    """

    share: Path
    epochs: int
    submit: Callable[[str], Job]

    @classmethod
    def made(cls, root: Path, epochs: int) -> Place:
        """Starts the service, and makes a cluster and a share with the script."""
        group = batchhvd.local(root, engine="slurm").create_group("g", location="eastus")
        workspace = group.create_workspace("w")
        experiment = workspace.create_experiment("e")
        cluster = workspace.create_cluster("c", vm_size="Standard_NC6", nodes=RANKS)
        share = group.create_storage_account("account").create_share("share")
        share.upload(SCRIPT)
        mount = share.mount("share")
        cluster.wait(timeout=60)

        def submit(name: str) -> Job:
            args = f"--dir={mount / name} --epochs={epochs} --resume"
            task = Horovod(script=mount / SCRIPT.name, args=args)
            spec = JobSpec(nodes=RANKS, task=task, mounts=[mount], logs=mount)
            return experiment.create_job(name, spec, cluster=cluster)

        return cls(root / "shares/account/share", epochs, submit)

    def finished(self, name: str) -> int:
        """How many epochs a training has written down."""
        return len(read_records(self.share / name / "epochs.jsonl"))

    def final(self, name: str) -> dict[str, Any]:
        """Returns the weights and the optimizer's state after the last epoch."""
        path = self.share / name / "checkpoints" / f"checkpoint-{self.epochs:05d}.npz"
        with np.load(path) as archive:
            return {key: archive[key] for key in archive.files if key.startswith(("weight/", "optimizer/"))}

    def accuracy(self, name: str) -> float:
        """Returns the accuracy on the test data after the last epoch."""
        return float(read_records(self.share / name / "epochs.jsonl")[-1]["val_accuracy"])


def undisturbed(place: Place) -> dict[str, Any]:
    """Trains, and says how long it took and what came out."""
    began = time.monotonic()
    place.submit("calm").wait(timeout=600)
    return {"seconds": time.monotonic() - began, "accuracy": place.accuracy("calm")}


def disturbed(bed: Bed, place: Place, kill_after: int) -> dict[str, Any]:
    """Trains, takes a node's power away in the middle of an epoch, and times what follows."""
    began = time.monotonic()
    job = place.submit("killed")
    until(lambda: place.finished("killed") >= kill_after)
    time.sleep(float(read_records(place.share / "killed" / "epochs.jsonl")[-1]["seconds"]) / 2)
    done, hosts = place.finished("killed"), running_on(bed)
    killed = time.monotonic()
    bed("node-kill", hosts[1])
    requeued = until(lambda: bed.slurm("squeue", "-h", "-t", "pending", "-o", "%i"))
    started = until(lambda: bed.slurm("squeue", "-h", "-t", "running", "-o", "%i"))
    counts = [done]  # without the checkpoint it would train from the first epoch, and drop these records
    again = until(lambda: counts.append(place.finished("killed")) or counts[-1] > done)
    others = running_on(bed)
    job.wait(timeout=600)
    return {
        "seconds": time.monotonic() - began,
        "accuracy": place.accuracy("killed"),
        "nodes": hosts,
        "node that died": hosts[1],
        "nodes afterwards": others,
        "epochs before it died": done,
        "epochs that were kept": min(counts),
        "Slurm noticed after": requeued - killed,
        "Slurm started it again after": started - requeued,
        "lost, from that start to the end of the epoch that was cut off": again - started,
    }


def running_on(bed: Bed) -> list[str]:
    """Returns the nodes of the job that runs."""
    names = bed.slurm("squeue", "-h", "-t", "running", "-o", "%N").strip()
    return bed.slurm("scontrol", "show", "hostnames", names).split()


def compared(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Compares weights and optimizer of two trainings bit by bit."""
    assert one.keys() == other.keys()
    gap = max(float(np.max(np.abs(one[key].astype("float64") - other[key]), initial=0.0)) for key in one)
    return {"digest": digest(one), "equal digest": digest(one) == digest(other), "largest difference": gap}


def digest(arrays: dict[str, Any]) -> str:
    """Returns the first half of the SHA-256 of all arrays."""
    whole = hashlib.sha256()
    for key in sorted(arrays):
        whole.update(key.encode() + arrays[key].tobytes())
    return whole.hexdigest()[:32]


def until(condition: Callable[[], Any], seconds: float = 400.0) -> float:
    """Waits until something is true and returns when it was."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("it did not come to pass in time")
        time.sleep(0.1)
    return time.monotonic()


if __name__ == "__main__":
    main()
