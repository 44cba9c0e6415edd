"""azure-cli 2.0.60 runs the tutorial's 17 commands with factory settings, through the service's own proxy.

A file of its own: it takes half a minute, and files are what the workers of a test run share out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support import az

pytestmark = az.NEEDED


def test_the_tutorials_commands_word_for_word(launch: Any, tmp_path: Path) -> None:
    running = launch("--tls")
    proxy, ca = (running.root / "proxy").read_text().strip(), running.root / "ca.pem"
    where = ["--proxy-url", proxy, "--ca-file", str(ca), "--secret", running.token]
    az.run_tutorial(tmp_path / "work", "--mode", "tls", *where)
