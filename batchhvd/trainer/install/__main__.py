"""Builds Horovod for the Keras backends that are here, once, keeps the wheel, installs it and proves it.

    python -m batchhvd.trainer.install [--backend tensorflow,torch|auto] [--mpi] [--nccl|--no-nccl]
    python -m batchhvd.trainer.install --check

The wheel lies in the user's cache under a name made of everything that decides it, so another environment with
the same frameworks takes seconds. ``--check`` installs nothing: it says what is there and what is missing, and
runs the proof. Linux on x86-64 and aarch64; other systems by guess.
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
from batchhvd.trainer.install.proof import prove
from batchhvd.trainer.install.requirement import supply_command, unmet
from batchhvd.trainer.install.source import VERSION
from batchhvd.trainer.install.step_log import StepLog


def check(wanted: BuildPlan, steps: StepLog) -> bool:
    """Says what is installed and what is missing, and proves it; True where all is well."""
    found = installed()
    steps.say(f"frameworks: {wanted.names}; compiler: {wanted.compiler or 'none'}; cache: {wanted.folder}")
    missing = unmet(wanted)
    if missing:
        what = ", ".join(requirement.what for requirement in missing)
        steps.say(f"for building there is missing: {what}: {supply_command(missing)}")
    if not found:
        steps.say(f"Horovod is not installed; install it with: {COMMAND}")
        return False
    fits = found == wanted.version
    steps.say(f"Horovod {found} is installed" + ("" if fits else f", not the one that fits: {COMMAND}"))
    prove(wanted, steps)
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
    parser.add_argument("--nccl", action=argparse.BooleanOptionalAction, help="build for GPUs; default: where possible")
    parser.add_argument("--archive", type=Path, help=f"horovod-{VERSION}.tar.gz, for a machine without internet")
    parser.add_argument("--check", action="store_true", help="install nothing; say what there is, and prove it")
    return parser.parse_args(argv)


if __name__ == "__main__":
    raise SystemExit(main())
