"""Puts what trainer_gpus.sh measured into one document: ``python benchmarks/gather.py OUT > RESULT``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

Row = dict[str, Any]
EXCHANGES = {"horovod": "Horovod", "torch": "torch.distributed"}
PARTS = ("step", "input", "compute", "communication")


def main(out: Path) -> None:
    """Reads the folder and prints the document."""
    measured = [name for name in EXCHANGES if (out / name).is_dir()]
    document: Row = {"command": "benchmarks/trainer_gpus.sh DATA OUT RANKS"}
    document["machine"] = json.loads((out / measured[0] / "parity.json").read_text())["versions"]
    document["not measured"] = [EXCHANGES[name] for name in EXCHANGES if name not in measured]
    document["speed"] = [row for name in measured for row in speed(out / name, EXCHANGES[name])]
    document["parity"] = [row for name in measured for row in parity(out / name, EXCHANGES[name])]
    print(json.dumps(document, indent=1))


def parity(folder: Path, exchange: str) -> list[Row]:
    """Returns the rows of a certificate."""
    found = json.loads((folder / "parity.json").read_text())
    return [{"exchange": exchange, "network": found["network"], **row} for row in found["ranks"]]


def speed(folder: Path, exchange: str) -> list[Row]:
    """Returns the rows of speed; efficiency is against one rank with the same batch."""
    rows = []
    for batch in (4096, 1024):
        costs = json.loads((folder / f"batch{batch}" / "bench.json").read_text())["costs"]
        alone = costs[0]["images_per_second"] / costs[0]["ranks"]
        for cost in costs:
            row = {"exchange": exchange, "ranks": cost["ranks"], "batch": batch}
            row |= {"images_per_second": round(cost["images_per_second"])}
            row |= {"efficiency": round(cost["images_per_second"] / cost["ranks"] / alone, 3)}
            row |= {f"{name}_ms": round(1e3 * cost[name], 3) for name in PARTS}
            rows.append({**row, "first_seconds": round(cost["first"], 1)})
    return rows


if __name__ == "__main__":
    main(Path(sys.argv[1]))
