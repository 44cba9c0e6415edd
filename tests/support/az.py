"""Microsoft's own command line of 2019, azure-cli 2.0.60, as the tests use it.

It needs Python 3.6 and packages of that time, so it is looked for in ``BATCHHVD_AZ`` (a virtual environment) and in
``~/.cache/batchhvd/azold``; docs/service.md says how to make one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
PLACES = [os.environ.get("BATCHHVD_AZ", ""), str(CACHE / "batchhvd" / "azold")]
ENVIRONMENT = next((Path(place) for place in PLACES if place and (Path(place) / "bin" / "az").exists()), None)
TUTORIAL = Path(__file__).parents[1] / "data" / "az-cli" / "run_tutorial.sh"
NEEDED = [
    pytest.mark.az,
    pytest.mark.timeout(900),
    pytest.mark.skipif(ENVIRONMENT is None, reason="no azure-cli 2.0.60; name its environment in BATCHHVD_AZ"),
]


# `az batchai job file stream` reads the file, then asks for the job's state, and ends when that is final: what a job
# prints in between it never shows. So this one does not end right after its last line.
SCRIPT = """
import argparse, os, time
parser = argparse.ArgumentParser()
parser.add_argument("--dir")
folder = os.path.join(parser.parse_args().dir, "saved_models")
print("50000 train samples", flush=True)
if os.environ["HOROVOD_RANK"] == "0":
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "keras_cifar10_trained_model.h5"), "wb") as file:
        file.write(bytes(5000))
time.sleep(5)
"""


def run_tutorial(work: Path, *options: str) -> None:
    """Runs the tutorial's 17 commands; each one must pass."""
    work.mkdir()
    script = work / "cifar_cnn_distributed.py"
    script.write_text(SCRIPT)
    command = ["bash", str(TUTORIAL), "--venv", str(ENVIRONMENT), "--work", str(work / "az"), *options]
    done = subprocess.run([*command, "--script", str(script)], text=True, capture_output=True, timeout=880)
    passed = re.findall(r"^PASS", done.stdout, re.MULTILINE)
    assert done.returncode == 0 and len(passed) == 17, done.stdout + done.stderr
    assert (work / "az" / "cwd" / "keras_cifar10_trained_model.h5").stat().st_size > 0
    shutil.rmtree(work)
