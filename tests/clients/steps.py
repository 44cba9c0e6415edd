"""Runs named steps and prints one line for each; a step that fails does not keep the next ones from running."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

CONNECTION, ENDPOINT, ACCOUNT, KEY = (os.environ.get(name, "") for name in ("CONNECTION", "ENDPOINT", "ACCOUNT", "KEY"))


def run(steps: list[Callable[[], object]]) -> None:
    """Runs the steps; ends with 1 if one failed."""
    failed = 0
    for step in steps:
        name = step.__name__.replace("_", " ")
        try:
            step()
        except Exception as error:
            failed += 1
            print(f"FAIL {name}: {' '.join(str(error).split())[:200]}", flush=True)
        else:
            print(f"ok {name}", flush=True)
    sys.exit(1 if failed else 0)
