"""The four nodes under Slurm leave nothing behind, however they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import bed
from tests.support.slurm import CHECKOUT, beds

pytestmark = pytest.mark.slurm


@pytest.fixture(autouse=True)
def possible() -> None:
    if problem := bed.obstacle():
        pytest.skip(f"Slurm {problem}")


def outside() -> tuple[set[str], list[str]]:
    """Returns what a bed could leave on the machine itself: network links and mounts."""
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    return set(os.listdir("/sys/class/net")), [line for line in mounts if "batchhvd-bed" in line]


def of(folder: Path) -> list[int]:
    """Returns all processes, in whatever namespace, that have the bed's folder on their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.fsencode(folder) in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_nothing_is_left_when_it_is_taken_down(tmp_path: Path) -> None:
    before = outside()
    with beds(tmp_path, "--nodes", "2") as two:
        assert two.slurm("sinfo", "-hN", "-p", "main", "-o", "%N").split() == ["node1", "node2"]
        assert len(of(two.folder)) > 4
        names = two("on-node", "node2", "sh", "-c", "hostname; ls /tmp").split()
        assert names[0] == "node2"
        shared = {path.parts[2] for path in (two.folder, tmp_path, CHECKOUT) if path.is_relative_to("/tmp")}
        assert set(names[1:]) <= shared  # of /tmp it sees what it shares, and no more
        assert outside()[0] == before[0]
        folder = two.folder
    assert not folder.exists()
    assert of(folder) == []
    assert outside() == before


def test_it_goes_when_its_caller_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "bed"
    holder = (
        f"import subprocess, sys, time; p = subprocess.Popen({[sys.executable, bed.__file__, 'hold', str(folder)]!r}"
    )
    holder += " + ['--nodes', '1'], stdin=subprocess.PIPE); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", holder], stdout=subprocess.PIPE, text=True) as caller:
        assert caller.stdout is not None and "idle" in caller.stdout.readline()
        caller.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 20
    while of(folder):
        assert time.monotonic() < deadline, of(folder)
        time.sleep(0.05)


def test_a_bed_that_cannot_come_up_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    folder, share = tmp_path / "bed", tmp_path / "no such folder"
    command = [sys.executable, bed.__file__, "up", str(folder), "--nodes", "1", "--share", str(share)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "node1 did not come up; see" in done.stderr
    assert "no such folder" in (folder / "log/node1.log").read_text()
    assert of(folder) == []
    assert not (folder / "bed.json").exists()
