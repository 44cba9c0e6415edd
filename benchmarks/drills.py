"""Three long drills of the service: poisoned records, power cuts, growth. ``make drills`` runs this.

    python benchmarks/drills.py [--minutes 2] [--output benchmarks/results/drills.json]

The first two are the properties of the tests of the same names, with many more examples than a run of the tests takes,
and new ones each time; the third is benchmarks/growth.py. Together they take at most twenty minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DRILLS = {
    "poison": ("tests/unit/service/test_poison.py", "tests/e2e/test_faults_folder.py"),
    "power cut": ("tests/unit/service/test_power_cut.py",),
}
_EXAMPLES = re.compile(r"(\d+) passing(?: examples)?, (\d+) failing")
_COUNTS = re.compile(r"(\d+) (passed|failed|skipped|error)")


def main() -> int:
    """Runs the drills, prints and writes what came out; returns 1 if one failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=2, help="how long the growth drill watches memory")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "drills.json")
    options = parser.parse_args()
    result: dict[str, Any] = {"command": "make drills", "cores": os.cpu_count(), "python": platform.python_version()}
    for name, paths in DRILLS.items():
        result[name] = properties(*paths)
        write(options.output, result)  # a drill that is interrupted keeps what it has found
    result["growth"] = growth(options.minutes)
    write(options.output, result)
    print(json.dumps(result, indent=2))
    return int(any(drill["exit code"] for drill in result.values() if isinstance(drill, dict)))


def write(path: Path, result: dict[str, Any]) -> None:
    """Writes what has come out so far."""
    path.write_text(json.dumps({**result, "load": round(os.getloadavg()[0], 1)}, indent=2) + "\n")


def properties(*paths: str) -> dict[str, Any]:
    """Runs tests with many examples and returns how many there were."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=1200", *paths]
    command += ["--hypothesis-show-statistics", "--hypothesis-seed=random"]
    began = time.monotonic()
    run = subprocess.run(
        command,
        cwd=HERE.parent,
        env={**os.environ, "BATCHHVD_DRILLS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    sys.stderr.write(run.stdout[-3000:] if run.returncode else "")
    found = [(int(good), int(bad or 0)) for good, bad in _EXAMPLES.findall(run.stdout)]
    counts = {word: int(number) for number, word in _COUNTS.findall(run.stdout.rpartition("\n=")[2] or run.stdout)}
    return {
        "tests": counts.get("passed", 0),
        "failed": counts.get("failed", 0) + counts.get("error", 0),
        "examples": sum(good for good, _ in found),
        "failing examples": sum(bad for _, bad in found),
        "seconds": round(time.monotonic() - began),
        "exit code": run.returncode,
    }


def growth(minutes: float) -> dict[str, Any]:
    """Runs the growth benchmark, which writes its own result."""
    began = time.monotonic()
    command = [sys.executable, str(HERE / "growth.py"), "--minutes", str(minutes)]
    code = subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
    return {"goals": "missed" if code else "reached", "seconds": round(time.monotonic() - began), "exit code": code}


if __name__ == "__main__":
    sys.exit(main())
