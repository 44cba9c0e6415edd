"""``fit(scale_rate=…)``: the rate of one rank on several ranks, said at the start, and as it was afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from batchhvd.trainer.measure import ranks
from tests.support import prefork

RANK = str(Path(__file__).with_name("rate_rank.py"))


@pytest.fixture(scope="module", params=["tensorflow"])
def found(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What rank 0 of two ranks found."""
    pytest.importorskip(request.param)
    variables = {"KERAS_BACKEND": request.param, "TF_CPP_MIN_LOG_LEVEL": "3"}
    outcomes = ranks.run(prefork.python(request.param, RANK), 2, variables=variables, timeout=200)
    assert outcomes[0].exit_code == 0, ranks.tail(outcomes[0].output, 40)
    answer: dict[str, Any] = json.loads(outcomes[0].output.strip().splitlines()[-1])
    return answer


@pytest.mark.horovod
def test_a_scaled_rate_trains_as_one_that_the_script_has_multiplied(found: dict[str, Any]) -> None:
    # Seen to fail without the multiplication.
    assert found["linear"]["weight"] == pytest.approx(found["given"]["weight"], rel=1e-5)
    assert found["None"]["weight"] < found["sqrt"]["weight"] < found["linear"]["weight"]
    for how in ("schedule", "function"):
        assert found[how]["weight"] == pytest.approx(found["given"]["weight"], rel=1e-5)


@pytest.mark.horovod
def test_the_rate_is_said_at_the_start_and_is_that_of_one_rank_afterwards(found: dict[str, Any]) -> None:
    plain = 'Learning rate 0.02 on 2 ranks: as compiled; scale_rate="linear" or "sqrt" scales that of one rank'
    assert found["None"]["lines"][0] == plain
    assert (
        found["linear"]["lines"][0] == 'Learning rate 0.04 on 2 ranks: 2 times that of one rank (scale_rate="linear")'
    )
    assert found["schedule"]["lines"][0].startswith("Learning rate 0.04 in the first step on 2 ranks: 2 times")
    for how in ("None", "linear", "sqrt", "schedule", "function"):
        assert found[how]["after"] == pytest.approx(0.02)


@pytest.mark.horovod
def test_what_would_overwrite_the_scaled_rate_is_refused(found: dict[str, Any]) -> None:
    assert "scale_rate='linear' scales the rate, and LearningRateScheduler sets it" in found["refused"]["callback"]
    assert "scales one rate, and a MultiOptimizer has one for each" in found["refused"]["several"]
    assert "cubic" in found["refused"]["unknown"]
