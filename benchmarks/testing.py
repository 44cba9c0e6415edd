"""What the aids for other programs' tests cost: a clean group for each test, and the start of the file emulator.

    python benchmarks/testing.py [--output benchmarks/results/testing.json]

The first test of a session starts the service and is not counted. Other work makes the seconds longer, the processor's
hardly: both stand in the result, with the load.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TESTS, STARTS = 60, 5
MODULE = f"""
import pytest

@pytest.mark.parametrize("number", range({TESTS}))
def test_nothing(number, batchai):
    pass
"""
WATCH = """
import json, os, time
import pytest

TIMES = []

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_setup(item):
    wall, own = time.perf_counter(), time.process_time()
    yield
    TIMES.append((time.perf_counter() - wall, time.process_time() - own))

def pytest_sessionfinish():
    with open(os.environ["TIMES"], "w") as file:
        json.dump(TIMES, file)
"""


def main() -> None:
    """Measures, prints and writes the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "testing.json")
    options = parser.parse_args()
    load = round(os.getloadavg()[0], 1)
    result = {"fixture batchai": fixture(), "emulate files": emulator(), "load average": load, "cores": os.cpu_count()}
    options.output.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


def fixture() -> dict[str, Any]:
    """Returns what the fixture costs each test."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "test_module.py").write_text(MODULE)
        (Path(folder) / "conftest.py").write_text(WATCH)
        noted = Path(folder) / "times.json"
        environment = {**os.environ, "TIMES": str(noted)}
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            folder,
            "test_module.py",
        ]
        subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
        times = json.loads(noted.read_text())[1:]
    wall, own = (sorted(1000 * each[at] for each in times) for at in (0, 1))
    return {
        "tests": len(times),
        "ms": {"median": round(statistics.median(wall), 2), "worst": round(wall[-1], 2)},
        "CPU ms of the test's process": round(statistics.median(own), 2),
    }


def emulator() -> dict[str, Any]:
    """Returns when the file emulator is ready, and what it has taken until then."""
    seconds, spent, memory = [], [], []
    for _ in range(STARTS):
        start = time.perf_counter()
        command = [sys.executable, "-m", "batchhvd", "emulate", "files", "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout is not None
            while "AccountKey" not in process.stdout.readline():
                if process.poll() is not None:
                    raise SystemExit("the emulator did not start")
            seconds.append(round(time.perf_counter() - start, 3))
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            spent.append((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))
            status = Path(f"/proc/{process.pid}/status").read_text()
            memory.append(round(int(re.findall(r"VmHWM:\s*(\d+)", status)[0]) / 1024, 1))
            process.terminate()
    return {"ready after seconds": {"best": min(seconds)}, "CPU s": min(spent), "most memory, MiB": max(memory)}


if __name__ == "__main__":
    main()
