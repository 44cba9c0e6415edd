"""``make upstream``, its second half: the scenarios of azure-cli and the tests of azure-mgmt-batchai, told again.

Prints a table, below each line by name what does not pass, and why. Arguments choose: ``sdk``, ``cli``, names of both.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

from tests.support.az import CACHE, ENVIRONMENT
from tests.upstream.batchai import cli
from tests.upstream.batchai.site import Site, start

_ROOT = Path(__file__).parents[3]
_OLD = CACHE / "batchhvd" / "upstream" / "azure-mgmt-batchai-2.0.0"
WIDTH = 48


@frozen
class Row:
    """A line of the table: how many of its checks passed, and the reasons of those that did not."""

    name: str
    passed: int
    count: int
    why: tuple[str, ...] = ()


def main(chosen: list[str]) -> int:
    """Runs what is chosen, or all; 1 if something does not pass."""
    parts = [part for part in ("sdk", "cli") if part in chosen] or ["sdk", "cli"]
    names = [name for name in chosen if name not in parts]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        process = start(root)
        try:
            rows = [row for part in parts for row in PARTS[part](Site(root), names)]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
    return 1 if any(row.why for row in rows) else 0


def told(row: Row) -> Row:
    """Prints a line of the table as soon as it is known, and below it what does not pass."""
    print("\n    ".join([f"{row.name:{WIDTH}}{row.passed:5} of {row.count}", *row.why]), flush=True)
    return row


def of_sdk(site: Site, names: list[str]) -> Iterator[Row]:
    """Yields a row for each generation of the package."""
    for version, path in (("2.0.0", str(_fetched())), ("7.0.0", "")):
        yield told(_of_package(site, version, path, names))


def _of_package(site: Site, version: str, path: str, names: list[str]) -> Row:
    command = [sys.executable, "-W", "ignore", "-m", "tests.upstream.batchai.sdk", str(site.root), *names]
    paths = os.pathsep.join(filter(None, [path, str(_ROOT)]))
    done = subprocess.run(
        command, cwd=_ROOT, env={**os.environ, "PYTHONPATH": paths}, text=True, stdout=subprocess.PIPE, check=True
    )
    notes = [json.loads(line) for line in done.stdout.splitlines()]
    why = tuple(f"{note['name']}: {note['why']}" for note in notes if note["why"])
    return Row(f"azure-mgmt-batchai {version}", len(notes) - len(why), len(notes), why)


def _fetched() -> Path:
    """Returns the folder of azure-mgmt-batchai 2.0.0; fetches it if the cache does not have it."""
    if not (_OLD / "msrestazure").is_dir():
        wanted = ["--target", str(_OLD), "azure-mgmt-batchai==2.0.0", "msrestazure"]
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *wanted], check=True, capture_output=True)
    return _OLD


def of_cli(site: Site, names: list[str]) -> Iterator[Row]:
    """Yields a row for each scenario, their sum, and one for the commands."""
    if ENVIRONMENT is None:
        yield told(Row("azure-cli 2.0.60", 0, 0, ("it is not here; tests/data/az-cli/install_az.sh installs it",)))
        return
    az, rows = ENVIRONMENT / "bin" / "az", []
    with cli.logged_in(site, az) as login:
        for scenario in cli.SCENARIOS:
            if not names or scenario.__name__ in names:
                run = cli.begin(site, az, login, scenario.__name__)
                scenario(run)
                failed = sum(not why.startswith("`az ") for why in run.failures)
                rows.append(Row(f"az: {scenario.__name__}", run.count - failed, run.count, tuple(run.failures)))
                yield told(rows[-1])
        told(Row("az: checks of all scenarios", sum(row.passed for row in rows), sum(row.count for row in rows)))
        if not names or "every_command" in names:
            run = cli.begin(site, az, login, "every_command")
            good = [passed for _, passed in cli.every_command(run)]
            yield told(Row("az batchai: commands", sum(good), len(good), tuple(run.failures)))


PARTS = {"sdk": of_sdk, "cli": of_cli}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
