"""Slurm keeps the contract, on four nodes with addresses of their own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from batchhvd.engines.slurm import Slurm
from tests.e2e.engine_contract import EngineContract
from tests.support.slurm import Bed


@pytest.mark.slurm
class TestSlurm(EngineContract):
    @pytest.fixture(scope="class")
    @classmethod
    def make(cls, slurm: Bed) -> Callable[[], Slurm]:
        return lambda: Slurm(bin=str(slurm.bin), wait=30, pause=0.1)
