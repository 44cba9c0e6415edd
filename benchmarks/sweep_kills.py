"""Kills the client and the service of a sweep 20 times at random, and compares its table with an undisturbed one's.

    python benchmarks/sweep_kills.py [--kills 20] [--points 40] [--seed 1] [--json benchmarks/results/sweep_kills.json]

Twice: every trial trains to its end; and with ASHA, where what is given up depends on the order of events, so that the
best point is compared. Each training notes that it begins. Exit code 1 if a table or a best point differs, or a point
began twice or never.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.sweep_kills import Storm

Table = list[dict[str, object]]


def main() -> int:
    """Runs the drill and prints what came out; returns 1 where something was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--points", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="batchhvd-kills-") as folder:
        storm = Storm(Path(folder, "root"), points=options.points, seed=options.seed)
        try:
            found = drill(storm, options.kills)
        finally:
            storm.end()
    text = json.dumps({"command": "python benchmarks/sweep_kills.py", **found}, indent=2)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")
    wrong = (
        found["whole"]["begun_twice"] + found["whole"]["lost"] + found["asha"]["begun_twice"] + found["asha"]["lost"]
    )
    return int(bool(wrong) or not found["whole"]["same_table"] or not found["asha"]["same_best"])


def drill(storm: Storm, kills: int) -> dict[str, Any]:
    """Runs each kind of sweep in peace and under kills."""
    calm, stormy = storm.calm("calm"), storm.blow("storm", kills)
    whole = {"same_table": calm == stormy, **counted(storm, "storm", stormy)}
    storm.killed.clear()
    calm, stormy = storm.calm("calm-asha", "asha"), storm.blow("storm-asha", kills, "asha")
    asha = {"same_best": best(calm) == best(stormy), **counted(storm, "storm-asha", stormy)}
    about = {"points": storm.points, "seed": storm.seed, "cores": os.cpu_count(), "load_at_the_end": os.getloadavg()[0]}
    return {"whole": whole, "asha": asha, "about": about}


def best(table: Table) -> object:
    """Returns the point with the highest score."""
    return max(table, key=lambda row: float(str(row.get("score", "-inf"))))["x"]


def counted(storm: Storm, name: str, table: Table) -> dict[str, Any]:
    """Returns the kills, and how often the points began and how they ended."""
    begun = storm.started(name)
    ended = [str(row["state"]) for row in table]
    return {
        "kills": dict(storm.killed),
        "clients_that_gave_up_by_themselves": storm.again,
        "begun_twice": sum(count > 1 for count in begun.values()),
        "lost": sum(state not in ("succeeded", "given up") for state in ended),
        "states": {state: ended.count(state) for state in sorted(set(ended))},
    }


if __name__ == "__main__":
    sys.exit(main())
