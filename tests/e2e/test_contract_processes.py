"""The engine of this machine keeps the contract."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from batchhvd.engines.processes import Processes
from tests.e2e.engine_contract import EngineContract


class TestProcesses(EngineContract):
    @pytest.fixture
    def make(self) -> Callable[[], Processes]:
        return Processes
