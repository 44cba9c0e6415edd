"""azure-cli 2.0.60 runs the tutorial's 17 commands word for word, against the service's plain http endpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import az

# The same commands with factory settings, which need no registered cloud, are in test_az_cli_tls.py.
pytestmark = [*az.NEEDED, pytest.mark.battery]


def test_the_tutorials_commands_word_for_word(launch: Any, tmp_path: Path) -> None:
    running = launch()
    az.run_tutorial(tmp_path / "work", "--mode", "http", "--base-url", running.url, "--token", running.token)
