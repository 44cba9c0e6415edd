"""Puts what trainer_gpus.sh measured into one document: ``python benchmarks/gather.py OUT > RESULT``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

Row = dict[str, Any]
WAYS = {"batch4096": "asynchronous", "batch1024": "asynchronous", "waiting": "waits for each step"}


def main(out: Path) -> None:
    """Reads the folder and prints the document."""
    parity = json.loads((out / "parity.json").read_text())
    accuracy = lines(out / "accuracy.jsonl")
    document: Row = {"command": "benchmarks/trainer_gpus.sh DATA OUT", "machine": parity["versions"]}
    document["speed"] = speed(out)
    document["parity"] = [{"network": parity["network"], **row} for row in parity["ranks"]]
    document["together"] = [kept(row) for row in lines(out / "together.jsonl")]
    for name in dict.fromkeys(row["part"] for row in accuracy):
        document[name] = [kept(row) for row in accuracy if row["part"] == name]
    print(json.dumps(document, indent=1))


def lines(path: Path) -> list[Row]:
    """Returns the rows of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def kept(row: Row) -> Row:
    """Returns a row without what is the same in all."""
    return {name: value for name, value in row.items() if name not in ("part", "machine", "torch", "keras")}


def speed(out: Path) -> list[Row]:
    """Returns the rows of all measurements of speed; efficiency is against one rank with the same batch."""
    found = []
    for folder, way in WAYS.items():
        for cost in json.loads((out / folder / "bench.json").read_text())["costs"]:
            row = {
                "ranks": cost["ranks"],
                "batch": cost["batch"],
                "images_per_second": round(cost["images_per_second"]),
            }
            parts = ("step", "input", "compute", "communication")
            row |= {f"{name}_ms": round(1e3 * cost[name], 3) for name in parts}
            found.append({**row, "horovod": way})
    alone = {row["batch"]: row["images_per_second"] for row in found if row["ranks"] == 1}
    return [
        {**row, "efficiency": round(row["images_per_second"] / row["ranks"] / alone[row["batch"]], 3)} for row in found
    ]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
