"""Measures the printed tutorial on its own stack of 2018 beside ours, in turn on the same machine.

    python benchmarks/printed_tutorial.py --old VENV --script FILE --data-dir DATA

VENV is a virtual environment of Python 3.6 with tensorflow 1.8.0, keras 2.2.2 and horovod 0.13.11, built with Open MPI;
FILE holds the tutorial's script as it is printed. Both train two ranks with augmentation, several times in turn; the
result goes to benchmarks/results/printed_tutorial.json.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from batchhvd.trainer.measure import bench, machine_facts

BATCH = 32  # of one rank, in the printed script
PROGRESS = re.compile(rb"\r\s*(\d+)/\d+ \[")
Row = dict[str, Any]


def main() -> None:
    """Measures in turn, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, required=True)
    parser.add_argument("--script", type=Path, required=True)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=40.0, help="of each measurement of the printed script")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "printed_tutorial.json")
    options = parser.parse_args()
    turns = [turn(options) for _ in range(options.turns)]
    medians = {name: statistics.median(row[name] for row in turns) for name in turns[0]}
    command = "python benchmarks/printed_tutorial.py --old VENV --script FILE --data-dir DATA"
    document = {"command": command, "machine": machine_facts.machine(), "unit": "images per second of all ranks"}
    document |= {"ranks": options.ranks, "medians": medians, "turns": turns}
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(medians, indent=1))


def turn(options: argparse.Namespace) -> Row:
    """Measures each side once."""
    old = printed(options)
    row = {"printed": round(old), **{name: round(ours(options, name)) for name in ("auto", "float32")}}
    row |= {f"{name} / printed": round(row[name] / old, 2) for name in ("auto", "float32")}
    print(json.dumps(row), flush=True)
    return row


def printed(options: argparse.Namespace) -> float:
    """Runs the printed script under its own stack for a while, and returns its images per second."""
    with TemporaryDirectory(prefix="batchhvd-printed-") as folder:
        datasets = Path(folder, ".keras", "datasets")
        datasets.mkdir(parents=True)
        with tarfile.open(datasets / "cifar-10-batches-py.tar.gz", "w") as tar:  # where its loader looks first
            tar.add(options.data_dir / "cifar-10-batches-py", "cifar-10-batches-py")
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(options.ranks)]
        command += [str(options.old.absolute() / "bin" / "python"), str(options.script.absolute()), "--dir=out"]
        variables = {**os.environ, "HOME": folder, "PYTHONUNBUFFERED": "1"}
        log = Path(folder, "log")
        with log.open("wb") as stream:
            process = subprocess.Popen(
                command, cwd=folder, env=variables, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            return BATCH * options.ranks * steps_per_second(process, log, options.seconds)
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def steps_per_second(process: subprocess.Popen[bytes], log: Path, seconds: float) -> float:
    """Reads Keras's progress bar from its tenth step on."""
    while (first := step(log)) < 10:
        if process.poll() is not None:
            raise SystemExit(log.read_text(errors="replace")[-2000:])
        time.sleep(0.1)
    began = time.monotonic()
    time.sleep(seconds)
    return (step(log) - first) / (time.monotonic() - began)


def step(log: Path) -> int:
    """Returns the step that the progress bar shows, 0 where there is none yet."""
    return max((int(number) for number in PROGRESS.findall(log.read_bytes())), default=0)


def ours(options: argparse.Namespace, precision: str) -> float:
    """Returns our images per second."""
    with TemporaryDirectory(prefix="batchhvd-printed-") as folder:
        chosen = ["--ranks", str(options.ranks), "--dir", folder, "--dataset", "cifar10", "--steps", "40"]
        if bench.main([*chosen, "--data-dir", str(options.data_dir), "--precision", precision]):
            raise SystemExit(1)
        cost = json.loads(Path(folder, "bench.json").read_text())["costs"][0]
    return float(cost["images_per_second"])


if __name__ == "__main__":
    sys.exit(main())
