"""The package managers of Debian and Python, as far as the installer needs them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence

from batchhvd.errors import HorovodMissingError
from batchhvd.trainer.install.step_log import StepLog
from batchhvd.trainer.measure import ranks


def apt_command(packages: Iterable[str]) -> str:
    """Returns the command with which root installs Debian packages."""
    return "apt-get update && apt-get install -y --no-install-recommends " + " ".join(packages)


def apt(arguments: Sequence[str]) -> None:
    """Runs ``apt-get``.

    Raises:
        HorovodMissingError: It failed.
    """
    command = ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=300", *arguments]
    done = subprocess.run(
        command,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise HorovodMissingError(
            f"{' '.join(command)} failed with exit code {done.returncode}: {ranks.tail(done.stdout + done.stderr)}",
            remedy=" ".join(command),
        )


def pip(arguments: Sequence[str], steps: StepLog, what: str) -> None:
    """Prints what is about to happen, and runs the ``pip`` of this environment.

    Raises:
        HorovodMissingError: It failed.
    """
    steps.say(what)
    command = ranks.python("-m", "pip", "--disable-pip-version-check", *arguments)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise HorovodMissingError(f"{what} failed: {ranks.tail(done.stdout + done.stderr)}", remedy=" ".join(command))
