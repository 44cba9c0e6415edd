"""A real training that loses a node goes on from its checkpoint and ends with the very model that it would have had."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from batchhvd.service import drills
from batchhvd.trainer.install import COMMAND, installed
from batchhvd.trainer.install.installation import framework_version
from tests.support import prefork
from tests.support.faults import MOUNTED, Live, live
from tests.support.waiting import until

# The trainer's own command. Its ranks wait after the last epoch until a file is there: the moment of the drill.
TRAINING = """
import sys, time
from pathlib import Path

from batchhvd.trainer import backend, train

backend.prepare()
import keras


class Wait(keras.callbacks.Callback):
    def on_train_end(self, logs=None):
        while not Path(sys.argv[0]).with_name("go").exists():
            time.sleep(0.02)


writers = train.writers
train.writers = lambda settings: [*writers(settings), Wait()]
sys.exit(train.main(sys.argv[1:]))
"""
OPTIONS = "--epochs 3 --batch-size 16 --recipe tutorial --step plain --checkpoints 2 --resume"


def start(world: Live) -> Path:
    """Starts a training of two ranks on a few pictures and returns the folder of its checkpoints."""
    share = world.root / "shares/acc/share"
    dice = np.random.default_rng(0)
    labels = dice.integers(0, 2, 96)
    pictures = dice.normal(90 + 60 * labels[:, None, None, None], 20, (96, 32, 32, 3)).clip(0, 255).astype("uint8")
    parts = {"x_train": pictures[:64], "y_train": labels[:64], "x_test": pictures[64:], "y_test": labels[64:]}
    np.savez(share / "pictures.npz", **parts)
    (share / "training.py").write_text(TRAINING)
    words = f"--dir '{share / 'training'}' --dataset '{share / 'pictures.npz'}' {OPTIONS}"
    world.job(
        "j",
        2,
        horovodSettings={
            "pythonScriptFilePath": f"{MOUNTED}/training.py",
            "commandLineArgs": words,
            "pythonInterpreterPath": prefork.interpreter("torch", world.root),
        },
        environmentVariables=[{"name": "KERAS_BACKEND", "value": "torch"}],
    )
    return share / "training" / "checkpoints"


@pytest.mark.horovod
def test_a_training_that_loses_a_node_ends_with_the_same_model(tmp_path: Path) -> None:
    if not installed() or not framework_version("torch"):
        pytest.skip(f"Horovod is not built for PyTorch; build it with: {COMMAND}")
    with live(tmp_path / "wurzel ü", nodes=3, vmPriority="lowpriority") as world:
        kept = start(world)
        last, calm = kept / "checkpoint-00003.npz", tmp_path / "calm.npz"
        until(lambda: world.tick() or last.exists() or world.state("j") == "failed", 120)
        assert world.state("j") == "running", world.info("j")
        drills.evict(world.folder("j"), 1)
        last.rename(calm)  # as if the node had gone before the third epoch was saved
        (kept.parent.parent / "go").touch()
        assert world.ended("j", 120) == "succeeded", world.info("j")
        assert world.of("j").private["attempt"] == 2
        assert [world.log("j").count(f"Epoch {epoch}/3") for epoch in (1, 2)] == [1, 1]  # it did not begin again
        with np.load(calm) as one, np.load(last) as other:
            names = [name for name in one.files if name.startswith(("weight/", "optimizer/"))]
            assert len(names) > 20
            assert [name for name in names if not np.array_equal(one[name], other[name])] == []
