"""What the tests themselves stand on: waiting once, and the two tiers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import tiers
from tests.support.waiting import once

FILE = """
import pytest

@pytest.mark.battery
@pytest.mark.parametrize("n", [1, 2])
def test_it(n):
    pass

def test_own():
    pass
"""
HOOKS = "from conftest_of_all import pytest_collection_modifyitems, pytest_terminal_summary"


def test_a_failure_is_kept_and_not_waited_for_again() -> None:
    asked: list[int] = []

    @once
    def fails(number: int) -> int:
        asked.append(number)
        if number:
            raise TimeoutError("it did not come")
        return number

    for _ in range(2):
        assert fails(0) == 0
        with pytest.raises(TimeoutError, match="did not come"):
            fails(1)
    assert asked == [0, 1]


@pytest.mark.parametrize("tier", ["", "all"])
def test_a_run_names_what_it_left_to_the_second_tier(tmp_path: Path, tier: str) -> None:
    (tmp_path / "test_table.py").write_text(FILE)
    (tmp_path / "conftest.py").write_text(
        "from conftest_of_all import pytest_collection_modifyitems, pytest_terminal_summary"
    )
    root = Path(__file__).parents[2]
    (tmp_path / "conftest_of_all.py").symlink_to(root / "conftest.py")
    options = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-n",
        "1",
        "-c",
        str(root / "pyproject.toml"),
        "--rootdir",
        str(tmp_path),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path / "test_table.py")],
        env={**os.environ, "BATCHHVD_TESTS": tier, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(root)])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = "left to make test-all: 2 tests\n  test_table.py: test_it[1], test_it[2]"
    assert (said in done.stdout, "3 passed" in done.stdout) == (not tier, bool(tier)), done.stdout


def test_what_is_left_is_counted_by_file() -> None:
    assert tiers.left(["b.py::x", "a.py::z", "a.py::y"]) == "left to make test-all: 3 tests\n  a.py: y, z\n  b.py: x"
