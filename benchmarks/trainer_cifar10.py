"""Trains CIFAR-10 on this machine's processor several times, and reports accuracy, passes, time and images per second.

    python benchmarks/trainer_cifar10.py --data-dir DATA                          # the tutorial's network, 2 ranks
    python benchmarks/trainer_cifar10.py --data-dir DATA --precision float32 --epochs 9
    python benchmarks/trainer_cifar10.py --data-dir DATA --recipe fast --runs 1
    python benchmarks/trainer_cifar10.py --data-dir DATA --runs 0 --speed 1,2,4   # images per second only

Takes the machine for minutes to hours: nothing else should run. The result goes to ``--out`` as JSON with the
machine and the versions, one document per call, the newest last.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from batchhvd.trainer.measure import bench, machine_facts, ranks

Row = dict[str, Any]


def main() -> None:
    """Trains, measures, prints and writes."""
    options = parsed()
    trainings = [trained(options, seed) for seed in range(options.runs)]
    command, machine = " ".join(["python", *sys.argv]), machine_facts.machine()
    document: Row = {"command": command, "machine": machine, "trainings": trainings}
    if trainings:
        document["medians"] = medians(trainings, options.target)
        print("medians:", json.dumps(document["medians"]))
    if options.speed:
        document["speed"] = speed(options)
    written = json.loads(options.out.read_text()) if options.out.exists() else []
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps([*written, document], indent=1) + "\n")
    print("written to", options.out)


def parsed() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--recipe", default="tutorial", choices=["tutorial", "fast"])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--epochs", type=int, help="default: those of the recipe")
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--precision", default="auto", choices=["auto", "float32", "bfloat16"])
    parser.add_argument("--target", type=float, default=0.75, help="accuracy whose time is reported")
    parser.add_argument("--speed", help="numbers of ranks whose images per second are measured too, such as 1,2,4")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "trainer_cifar10.json")
    return parser.parse_args()


def trained(options: argparse.Namespace, seed: int) -> Row:
    """Trains once on all ranks and returns the figures."""
    with TemporaryDirectory(prefix="batchhvd-cifar10-") as folder:
        command = ranks.python("-m", "batchhvd.trainer", "--dir", folder, "--seed", str(seed), *arguments(options))
        began = time.monotonic()
        outcomes = ranks.run(command, options.ranks, timeout=6 * 3600)
        wall = time.monotonic() - began
        if any(outcome.exit_code for outcome in outcomes):
            raise SystemExit("\n".join(ranks.tail(outcome.output) for outcome in outcomes))
        records = [json.loads(line) for line in Path(folder, "epochs.jsonl").read_text().splitlines()]
        result = json.loads(Path(folder, "training.json").read_text())
    accuracies = [round(record["val_accuracy"], 4) for record in records]
    row: Row = {
        "seed": seed,
        "accuracy": accuracies,
        "seconds": [round(record["seconds"], 1) for record in records],
        "images_per_second": round(result["images_per_second"] * options.ranks, 1),
        "training_seconds": round(result["seconds"] + result["first_seconds"], 1),
        "wall_seconds": round(wall, 1),
        "batch": result["batch"],
        "ranks": options.ranks,
    }
    print(json.dumps(row), flush=True)
    return row


def arguments(options: argparse.Namespace) -> list[str]:
    """Returns the trainer's arguments."""
    chosen = ["--dataset", options.dataset, "--data-dir", options.data_dir, "--recipe", options.recipe]
    chosen += ["--precision", options.precision, "--checkpoints", "0"]
    chosen += ["--epochs", str(options.epochs)] if options.epochs else []
    return chosen + (["--batch-size", str(options.batch_size)] if options.batch_size else [])


def medians(trainings: list[Row], target: float) -> Row:
    """Returns the medians over all trainings; passes and seconds to the target are None where one never got there."""
    reached = [next((n for n, a in enumerate(row["accuracy"]) if a >= target), None) for row in trainings]
    found: Row = {
        "final_accuracy": statistics.median(row["accuracy"][-1] for row in trainings),
        "images_per_second": statistics.median(row["images_per_second"] for row in trainings),
        "training_seconds": statistics.median(row["training_seconds"] for row in trainings),
        "wall_seconds": statistics.median(row["wall_seconds"] for row in trainings),
        "target": target,
        "passes_to_target": None,
        "training_seconds_to_target": None,
    }
    if None not in reached:
        places = [place for place in reached if place is not None]
        found["passes_to_target"] = statistics.median(place + 1 for place in places)
        sums = [sum(row["seconds"][: place + 1]) for row, place in zip(trainings, places, strict=True)]
        found["training_seconds_to_target"] = round(statistics.median(sums), 1)
    return found


def speed(options: argparse.Namespace) -> list[Row]:
    """Measures images per second on several numbers of ranks, as ``python -m batchhvd.trainer bench`` does."""
    with TemporaryDirectory(prefix="batchhvd-cifar10-") as folder:
        chosen = ["--ranks", options.speed, "--dir", folder, "--dataset", options.dataset]
        chosen += ["--data-dir", options.data_dir, "--recipe", options.recipe, "--precision", options.precision]
        chosen += ["--batch-size", str(options.batch_size)] if options.batch_size else []
        if bench.main([*chosen, "--steps", "40"]):
            raise SystemExit(1)
        costs: list[Row] = json.loads(Path(folder, "bench.json").read_text())["costs"]
    return [{**cost, "of_first": round(cost["images_per_second"] / costs[0]["images_per_second"], 3)} for cost in costs]


if __name__ == "__main__":
    main()
