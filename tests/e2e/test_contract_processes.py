"""The engine of this machine keeps the contract."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from batchhvd.engines.processes import Processes
from tests.e2e.engine_contract import EngineContract


class TestProcesses(EngineContract):
    @pytest.fixture(scope="class")
    @classmethod
    def make(cls) -> Callable[[], Processes]:
        return Processes
