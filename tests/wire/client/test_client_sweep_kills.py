"""The client and the service of a sweep are killed at random; ``benchmarks/sweep_kills.py`` kills more often.

``BATCHHVD_TEST_SEED`` decides who dies and when.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sweep_kills import Storm

SEED = int(os.environ.get("BATCHHVD_TEST_SEED", str(time.time_ns() % 100_000)))


@pytest.fixture
def storm(tmp_path: Path) -> Iterator[Storm]:
    made = Storm(tmp_path / "root", points=8, seed=SEED)
    yield made
    made.end()


@pytest.mark.timeout(600)
def test_a_sweep_under_kills_ends_with_the_table_of_an_undisturbed_one(storm: Storm) -> None:
    print(f"seed {SEED}")
    calm = storm.calm("calm")
    assert [row["state"] for row in calm] == ["succeeded"] * 8
    assert storm.blow("storm", kills=4) == calm
    assert storm.started("storm") == {f"storm_{number:04}": 1 for number in range(1, 9)}  # none twice, none lost
    assert sum(storm.killed.values()) > 1
