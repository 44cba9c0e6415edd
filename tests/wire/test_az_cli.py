"""Microsoft's own command line of 2019, azure-cli 2.0.60, runs the tutorial's 17 commands word for word.

It needs Python 3.6 and packages of that time, so it is looked for in ``BATCHHVD_AZ`` (a virtual environment) and in
``~/.cache/batchhvd/azold``; docs/service.md says how to make one. The commands run with factory settings through the
service's own proxy, and against its plain http endpoint.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
PLACES = [os.environ.get("BATCHHVD_AZ", ""), str(CACHE / "batchhvd" / "azold")]
ENVIRONMENT = next((Path(place) for place in PLACES if place and (Path(place) / "bin" / "az").exists()), None)
SHARED = Path(__file__).parents[2].parent / "shared" / "az-cli" / "run_tutorial.sh"

pytestmark = [
    pytest.mark.az,
    pytest.mark.timeout(900),
    pytest.mark.skipif(ENVIRONMENT is None, reason="no azure-cli 2.0.60; name its environment in BATCHHVD_AZ"),
    pytest.mark.skipif(not SHARED.exists(), reason=f"no {SHARED}, which runs the commands"),
]


@pytest.mark.parametrize("mode", ["http", "tls"])
def test_the_tutorials_commands_word_for_word(launch: Any, tmp_path: Path, mode: str) -> None:
    running = launch("--tls")
    if mode == "http":
        where = ["--base-url", running.url, "--token", running.token]
    else:
        ca = str(running.root / "ca.pem")
        proxy = (running.root / "proxy").read_text().strip()
        where = ["--proxy-url", proxy, "--ca-file", ca, "--secret", running.token]
    work = tmp_path / "work"
    command = ["bash", str(SHARED), "--venv", str(ENVIRONMENT), "--mode", mode, "--work", str(work), *where]
    done = subprocess.run(command, text=True, capture_output=True, timeout=880)
    passed = re.findall(r"^PASS", done.stdout, re.MULTILINE)
    assert done.returncode == 0 and len(passed) == 17, done.stdout + done.stderr
    assert (work / "cwd" / "keras_cifar10_trained_model.h5").stat().st_size > 0
    shutil.rmtree(work)
