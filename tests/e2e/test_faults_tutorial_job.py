"""The tutorial's job.json as printed: image, preparation and all; its logs as printed; the machine as before.

The printed preparation asks the machine's package mirrors; ``BATCHHVD_TEST_NETWORK=1`` runs it. Without that its place
is taken by a command that changes the same places.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.faults import live
from tests.support.stage import PYTHON

JOB = Path(__file__).parents[1] / "data" / "jobs" / "tutorial-4-nodes.json"
SCRIPT = """
import os, sys
print("rank", os.environ["HOROVOD_RANK"], "of", os.environ["HOROVOD_SIZE"], *sys.argv[1:])
"""
# Writes where apt and pip write.
STAND_IN = r"""
set -e; test "$(stat -c %d /)" != DEVICE || exit 99  # nothing of this on the machine itself
site=$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
touch /usr/bin/batchhvd-probe /var/lib/apt/batchhvd-probe "$site/batchhvd_probe.py"
printf '%s\n' 'Package: batchhvd-probe' 'Status: install ok installed' 'Maintainer: x <x@y>' 'Architecture: all' \
    'Version: 1' 'Description: x' '' >> /var/lib/dpkg/status
dpkg-query -W batchhvd-probe; python3 -c 'import batchhvd_probe'
"""


def machine() -> dict[str, Any]:
    """Returns what packages are installed and how the folders that installing changes look."""
    listed = [["dpkg-query", "-W"], [PYTHON, "-m", "pip", "freeze"]]
    found: dict[str, Any] = {command[0]: subprocess.run(command, capture_output=True).stdout for command in listed}
    site = Path(pytest.__file__).parents[1]
    for folder in (
        "/etc",
        "/usr/bin",
        "/usr/lib",
        "/usr/share",
        "/var/lib/dpkg",
        "/var/lib/apt",
        "/var/cache/apt",
        site,
    ):
        for path in (Path(folder), *Path(folder).glob("*")):
            facts = path.lstat()
            found[str(path)] = (facts.st_size, facts.st_mtime_ns) if path.name != "__pycache__" else ()
    return found


def job() -> dict[str, Any]:
    properties: dict[str, Any] = json.loads(JOB.read_text())["properties"]
    share = properties["mountVolumes"]["azureFileShares"][0]
    share.update(azureFileUrl="https://acc.file.core.windows.net/share", accountName="acc", credentials={})
    if "BATCHHVD_TEST_NETWORK" not in os.environ:
        properties["jobPreparation"]["commandLine"] = STAND_IN.replace("DEVICE", str(os.stat("/").st_dev))
    return properties


@pytest.mark.timeout(600)
@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="a copy-on-write view needs root on Linux")
def test_the_tutorials_job_as_printed(tmp_path: Path) -> None:
    before = machine()
    with live(tmp_path / "wurzel ü", nodes=4, prepare="overlay") as world:
        folder = world.root / "shares/acc/share/cifar"
        folder.mkdir()
        (folder / "cifar_cnn_distributed.py").write_text(SCRIPT)
        properties = job()
        world.job("cifar_distributed", properties.pop("nodeCount"), **properties)
        assert world.ended("cifar_distributed", seconds=500) == "succeeded", world.info("cifar_distributed")
        logs = next(folder.rglob("stdouterr"))
        node = r"tvm-\d{9}_[1-4]-\d{8}t\d{6}z-p"
        kinds = [rf"execution-{node}\.log"] * 4 + [rf"stderr-job_prep-{node}\.txt"] * 4 + [r"stderr\.txt"]
        kinds += [rf"stdout-job_prep-{node}\.txt"] * 4 + [r"stdout\.txt"]
        names = sorted(path.name for path in logs.iterdir())
        assert len(names) == len(kinds)
        assert all(re.fullmatch(kind, name) for kind, name in zip(kinds, names, strict=True)), names
        root = f"--dir={world.folder('cifar_distributed')}/mounts/myshare/cifar"
        wanted = [f"rank {rank} of 4 {root}" for rank in range(4)]
        assert sorted((logs / "stdout.txt").read_text().splitlines()) == wanted
        assert "tensorflow/tensorflow:1.8.0-gpu is not run" in (logs / names[0]).read_text()
    after = machine()
    assert {name: after.get(name) for name in before} == before
