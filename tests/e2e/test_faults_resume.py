"""A job that keeps checkpoints ends the same with a fire drill in the middle as without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batchhvd.service import drills
from tests.support.faults import MOUNTED, Live, live
from tests.support.waiting import until

# Stands for a training: a step depends on all before it, rank 0 keeps checkpoints, a fresh start goes on from the last.
TRAINING = """
import hashlib, json, os, pathlib, sys, time

folder, rank = pathlib.Path(sys.argv[1]), os.environ["HOROVOD_RANK"]
folder.mkdir(exist_ok=True)
checkpoint = folder / "checkpoint.json"
step, state = json.loads(checkpoint.read_text()) if checkpoint.exists() else (0, "")
print("goes on from step", step, flush=True)
while step < 30:
    step, state = step + 1, hashlib.sha256(f"{state}{step}".encode()).hexdigest()
    if rank == "0":
        new = checkpoint.with_suffix(".new")
        new.write_text(json.dumps([step, state]))
        new.replace(checkpoint)
        print("step", step, flush=True)
    time.sleep(0.03)
if rank == "0":
    (folder / "model").write_text(state)
"""


def train(world: Live, name: str, **properties: Any) -> None:
    block = {
        "pythonScriptFilePath": f"{MOUNTED}/training.py",
        "commandLineArgs": f"'{world.root}/shares/acc/share/{name}'",
    }
    world.job(name, 2, horovodSettings=block, **properties)


@pytest.mark.parametrize("drill", ["evict", "kill_runner", "kill_rank"])
def test_a_drill_changes_nothing_in_the_end(tmp_path: Path, drill: str) -> None:
    with live(tmp_path / "wurzel ü", nodes=4, vmPriority="lowpriority") as world:
        share = world.root / "shares/acc/share"
        (share / "training.py").write_text(TRAINING)
        train(world, "calm")
        train(world, "drilled", environmentVariables=[{"name": "BATCHHVD_RETRIES", "value": "1"}])
        until(lambda: world.tick() or (share / "drilled" / "checkpoint.json").exists())
        until(lambda: "step 5\n" in world.log("drilled") and world.log("drilled").count("goes on") == 2)
        getattr(drills, drill)(world.folder("drilled"), 1)
        assert (world.ended("calm"), world.ended("drilled")) == ("succeeded", "succeeded")
        assert world.of("drilled").private["attempt"] == 2
        begun = [line for line in world.log("drilled").splitlines() if line.startswith("goes on")]
        assert len(begun) == 4
        assert all(int(line.split()[-1]) >= 5 for line in begun[2:])  # it did not begin again
        assert (share / "drilled" / "model").read_text() == (share / "calm" / "model").read_text()
