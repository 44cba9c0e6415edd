"""Builds Horovod once for the installed Keras backends, keeps the wheel, installs it and verifies it.

    python -m batchhvd.trainer.install [--backend tensorflow,torch|auto] [--mpi] [--nccl|--no-nccl]
    python -m batchhvd.trainer.install --check

The wheel is kept in the user's cache under a name made of everything that determines it, so installing it into another
environment with the same frameworks takes seconds. ``--check`` installs nothing: it shows what is installed and what is
missing, and verifies it. Supported: Linux on x86-64 and aarch64; other systems are untested.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from batchhvd.errors import BatchHvdError
from batchhvd.trainer.install.build_plan import BuildPlan, plan
from batchhvd.trainer.install.installation import BACKENDS, COMMAND, installed
from batchhvd.trainer.install.installer import install
from batchhvd.trainer.install.requirement import supply_command, unmet
from batchhvd.trainer.install.source import VERSION
from batchhvd.trainer.install.step_log import StepLog
from batchhvd.trainer.install.verification import verify


def check(wanted: BuildPlan, steps: StepLog) -> bool:
    """Shows what is installed and what is missing, and verifies it; True if everything is in order."""
    found = installed()
    steps.say(f"frameworks: {wanted.names}; compiler: {wanted.compiler or 'none'}; cache: {wanted.folder}")
    missing = unmet(wanted)
    if missing:
        what = ", ".join(requirement.what for requirement in missing)
        steps.say(f"missing for a build: {what}; install it with: {supply_command(missing)}")
    if not found:
        steps.say(f"Horovod is not installed; install it with: {COMMAND}")
        return False
    fits = found == wanted.version
    steps.say(f"Horovod {found} is installed" + ("" if fits else f", but another build fits: {COMMAND}"))
    verify(wanted, steps)
    return fits


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    options = _options(argv)
    backends = () if options.backend == "auto" else tuple(options.backend.split(","))
    steps = StepLog()
    try:
        if options.check:
            return 0 if check(plan(backends, mpi=options.mpi, nccl=options.nccl), steps) else 1
        install(backends, mpi=options.mpi, nccl=options.nccl, archive=options.archive, steps=steps)
    except BatchHvdError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m batchhvd.trainer.install", description=__doc__.split("\n")[0])
    parser.add_argument("--backend", default="auto", help=f"{','.join(BACKENDS)} or one of them; auto: all installed")
    parser.add_argument("--mpi", action="store_true", help="build for MPI too")
    parser.add_argument("--nccl", action=argparse.BooleanOptionalAction, help="build for GPUs; default: if possible")
    parser.add_argument("--archive", type=Path, help=f"horovod-{VERSION}.tar.gz, for a machine without internet access")
    parser.add_argument("--check", action="store_true", help="install nothing; show what is installed, and verify it")
    return parser.parse_args(argv)


if __name__ == "__main__":
    raise SystemExit(main())
