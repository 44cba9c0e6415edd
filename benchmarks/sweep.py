"""Measures what ASHA saves: 24 trainings of a digits network, two ranks each, on eight nodes, with it and without.

    python benchmarks/sweep.py [--epochs 60] [--json benchmarks/results/sweep.json]

Both sweeps run in turn, ASHA's first, on a service of their own. Node-seconds are those that the service has noted of
the jobs; on a machine with other work they are longer for both. Trained epochs do not depend on that.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import batchhvd
from batchhvd import sweeps
from batchhvd.resources.sweep import Sweep

TRAINING = Path(__file__).parent / "digits_trial.py"
SPACE = {"rate": [0.003, 0.01, 0.03, 0.1, 0.3, 1.0], "width": [8, 16], "dropout": [0.0, 0.3]}
METRIC, NODES, RANKS = "val_accuracy", 8, 2


def main() -> None:
    """Runs both sweeps and prints what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="batchhvd-sweep-") as folder:
        found = measure(Path(folder), options.epochs)
    text = json.dumps({"command": "python benchmarks/sweep.py", **found}, indent=2)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")


def measure(root: Path, epochs: int) -> dict[str, Any]:
    """Runs a sweep with ASHA and the whole grid, and compares them."""
    with batchhvd.local(root, idle=3600) as session:
        group = session.create_group("measure")
        workspace = group.create_workspace("digits")
        cluster = workspace.create_cluster("nodes", vm_size="Standard_D2s_v3", nodes=NODES).wait()
        share = group.create_storage_account("measuredfiles").create_share("files")
        share.upload(TRAINING, "code/digits_trial.py")
        mount = share.mount()
        task = batchhvd.Horovod(
            script=mount / "code/digits_trial.py",
            args=f"{{rate}} {{width}} {{dropout}} {epochs}",
            processes=RANKS,
            python=sys.executable,
        )
        spec = batchhvd.JobSpec(
            nodes=RANKS, task=task, mounts=[mount], logs=mount / "logs", environment={"OMP_NUM_THREADS": "1"}
        )
        experiment = workspace.create_experiment("asha")
        rule = sweeps.asha(METRIC, first=2, factor=3)
        space = sweeps.grid(**SPACE)
        asha = experiment.sweep("asha", spec, space, cluster=cluster, stop=rule, at_once=NODES // RANKS)
        short = outcome(asha)
        grid = experiment.sweep("grid", spec, space, cluster=cluster)
        whole = outcome(grid)
        session.stop_service()
    return {**compared(asha, grid, short, whole), "asha": short, "grid": whole, "about": about(epochs)}


def outcome(sweep: Sweep) -> dict[str, Any]:
    """Runs a sweep and returns its sums."""
    began = time.monotonic()
    sweep.run(report=lambda line: print(f"{sweep.name}: {line}", file=sys.stderr, flush=True))
    rows = sweep.table()
    assert not any(row["state"] == "failed" for row in rows), rows
    best = sweep.best(METRIC)
    return {
        "node_seconds": round(sum(NODES_OF_A_TRIAL * (trial.seconds or 0.0) for trial in sweep), 1),
        "epochs": sum(len(trial.metrics) for trial in sweep),
        "wall_seconds": round(time.monotonic() - began, 1),
        "given_up": sum(row["state"] == "given up" for row in rows),
        "best_point": dict(best.point),
        "best_accuracy": round(max(best.curve(METRIC)), 5),
    }


NODES_OF_A_TRIAL = RANKS  # one rank on each


def compared(asha: Sweep, grid: Sweep, short: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    """Returns the parts, and how much worse the point that ASHA found is in the grid."""
    number = asha.best(METRIC).number
    there = next(max(trial.curve(METRIC)) for trial in grid if trial.number == number)
    return {
        "part_of_node_seconds": round(short["node_seconds"] / whole["node_seconds"], 3),
        "part_of_epochs": round(short["epochs"] / whole["epochs"], 3),
        "points_below_the_best": round(100 * (whole["best_accuracy"] - there), 2),
    }


def about(epochs: int) -> dict[str, Any]:
    """Returns what was measured and where."""
    return {
        "trainings": "24: " + ", ".join(f"{len(values)} {name}" for name, values in SPACE.items()),
        "epochs_of_each": epochs,
        "nodes": f"{NODES}, each a local process; two ranks on two nodes for each training",
        "cores": os.cpu_count(),
        "load_at_the_end": os.getloadavg()[0],
        "test_pictures": 360,
        "rule": "asha(val_accuracy, first=2, factor=3)",
    }


if __name__ == "__main__":
    main()
