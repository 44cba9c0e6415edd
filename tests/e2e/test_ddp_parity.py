"""The parity certificate of a DDP script: what holds, what does not, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from batchhvd.errors import SpecError
from batchhvd.trainer import __main__ as trainer
from batchhvd.trainer.measure import ddp_certificate
from batchhvd.trainer.measure.ddp_recording import Recorded
from tests.support import prefork

# Looked for, not imported: that takes two seconds, in each worker.
pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
SCRIPT = Path(__file__).parents[1] / "data" / "toolkits" / "parity.py"
RIGHT = {"size": 2, "wrapped": 1, "loaders": 1, "full_batches": 12, "done": 12}


def parity(folder: Path, *arguments: str) -> tuple[int, str, dict[str, Any]]:
    command = [sys.executable, "-m", "batchhvd.trainer", "parity", "--script", str(SCRIPT), "--ranks", "2"]
    command += ["--dir", str(folder), "--", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    certificate = json.loads((folder / "parity.json").read_text()) if done.returncode in (0, 1) else {}
    return done.returncode, done.stdout + done.stderr, certificate


def test_two_ranks_of_a_ddp_script_do_what_one_does_with_the_global_batch(tmp_path: Path) -> None:
    # Seen to fail with batches of the reference as large as those of a rank.
    code, said, certificate = parity(tmp_path)
    assert (code, certificate["holds"]) == (0, True), said
    assert "dropout was off in 1 layers" in said
    found = certificate["ranks"][0]
    assert found["steps"] == 12  # the full batches of an epoch: 203 examples are 102 for each rank
    assert found["gradient_error"] <= 1e-5 and found["weight_error"] <= 1e-5 and found["moved"] > 1e-2


def test_a_script_that_goes_round_ddp_does_not_hold_and_is_told_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "executable", prefork.interpreter("torch", tmp_path))  # the test above starts real ones
    code = trainer.main(["parity", "--script", str(SCRIPT), "--ranks", "2", "--dir", str(tmp_path), "--", "module"])
    said, certificate = "".join(capsys.readouterr()), json.loads((tmp_path / "parity.json").read_text())
    assert (code, certificate["holds"]) == (1, False)
    assert "call the DistributedDataParallel itself, not its .module" in said


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"wrapped": 0}, "never makes a DistributedDataParallel"),
        ({"wrapped": 2}, "wraps 2 models"),
        ({"size": 1}, "has 1 ranks instead of 2"),
        ({"loaders": 0, "full_batches": None}, "no DataLoader of the script has a DistributedSampler"),
        ({"by_parts": ["net.1"]}, "net.1: batch normalization"),
        ({"full_batches": 0, "done": 0}, "not one full batch"),
        ({"done": 0}, "made no step"),
    ],
)
def test_what_cannot_be_compared_is_refused(found: dict[str, object], said: str) -> None:
    ddp_certificate._check([Recorded(**RIGHT)] * 2, 2)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match=said):
        ddp_certificate._check([Recorded(**{**RIGHT, **found})] * 2, 2)  # type: ignore[arg-type]


def test_the_sum_of_losses_is_recognized_by_the_size_of_the_gradients() -> None:
    same = [Recorded(gradient=1.0), Recorded(gradient=1.0)]
    assert ddp_certificate._notes(same, 2, ratio=1.0) == []
    assert "the loss is a sum" in ddp_certificate._notes(same, 2, ratio=0.5)[0]


def test_a_script_that_is_not_there_and_one_rank_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="there is no script"):
        ddp_certificate.certify(tmp_path / "none.py", [], [2])
    with pytest.raises(SpecError, match="cannot be compared with one"):
        ddp_certificate.certify(SCRIPT, [], [2, 1])
