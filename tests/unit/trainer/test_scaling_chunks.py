"""When a measurement ends: never on too few chunks, and only when the interval is narrow."""

from __future__ import annotations

import math
import random

import pytest

from batchhvd.trainer.scaling import __main__ as scaling
from batchhvd.trainer.scaling import chunks


def test_the_interval_of_a_mean_contains_the_truth_as_often_as_it_says() -> None:
    dice = random.Random(1)
    inside = 0
    for _ in range(1000):
        means = [dice.gauss(1.0, 0.1) for _ in range(6)]
        mean = sum(means) / 6
        inside += abs(mean - 1) <= chunks.spread(means) * mean
    assert 930 <= inside <= 970


def test_equal_means_are_not_believed_before_there_are_four() -> None:
    assert chunks.spread([1.0]) == math.inf
    assert not chunks.is_enough([1.0, 1.0, 1.0], 0.03)
    assert chunks.is_enough([1.0, 1.0, 1.0, 1.0], 0.03)
    assert not chunks.is_enough([1.0, 1.5, 0.5, 1.0, 1.2], 0.03)


@pytest.mark.parametrize(("step", "expected"), [(10.0, 2), (0.1, 4), (0.001, 200), (0.0, 200)])
def test_a_chunk_takes_about_as_long_whatever_a_step_takes(step: float, expected: int) -> None:
    assert chunks.length(step) == expected


def test_what_cannot_be_measured_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert scaling.main(["nowhere.py"]) == 1
    assert scaling.main(["--ranks", "0", __file__]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "there is no script nowhere.py" in lines[0] and "0 is not a number of ranks" in lines[1]
