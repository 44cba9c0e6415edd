"""Two tiers of tests: where `make test` takes a representative, `make test-all`, as CI does, takes a whole table.

A test with the marker ``battery`` belongs to the second tier only. It is skipped, not deselected, so that a run names
what it left out (conftest.py).
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable

import pytest

#: Whether this run takes everything.
ALL = os.environ.get("BATCHHVD_TESTS") == "all"
REASON = "of the second tier: make test-all runs it"


def leave(items: Iterable[pytest.Item]) -> None:
    """Skips the tests of the second tier, unless this run takes everything."""
    for item in items:
        if not ALL and item.get_closest_marker("battery"):
            item.add_marker(pytest.mark.skip(reason=REASON))


def left(names: Iterable[str]) -> str:
    """Returns what a run left out, with number and names.

    Args:
        names: node ids of tests.
    """
    files: dict[str, list[str]] = defaultdict(list)
    for name in names:
        file, _, test = name.partition("::")
        files[file].append(test)
    lines = [f"  {file}: {', '.join(sorted(tests))}" for file, tests in sorted(files.items())]
    return "\n".join([f"left to make test-all: {sum(map(len, files.values()))} tests", *lines])
