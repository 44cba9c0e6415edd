"""How many ranks pay, for a script, on this machine.

    python -m batchhvd.trainer scale [--ranks 1,2,4] [--seconds 20] [--precision 0.03] SCRIPT ARGUMENTS…

Each number of ranks runs the script until its training is measured, and no longer. See the page *How many ranks?*.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from attrs import asdict

from batchhvd.advice.scaling.judgement import ScaleAdvice, advise
from batchhvd.advice.scaling.measurement import ScaleRun, read_run
from batchhvd.errors import BatchHvdError, SpecError
from batchhvd.trainer.measure import ranks as processes
from batchhvd.trainer.measure.machine_facts import machine

_START = 600.0  # seconds in which a script must reach its training


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, and prints the advice."""
    options = _options(argv)
    try:
        found = scale(options)
    except BatchHvdError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    if options.json:
        document = {"machine": machine(), "script": options.script, "arguments": options.arguments, **asdict(found)}
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    print(found)
    return 0


def scale(options: argparse.Namespace) -> ScaleAdvice:
    """Measures each number of ranks, and returns the advice.

    Raises:
        SpecError: one rank is not to be measured, or there is no script.
        EngineError: a rank failed.
    """
    if not Path(options.script).is_file():
        raise SpecError(f"there is no script {options.script}", remedy="give the path of a Python script")
    sizes = sorted({1, *options.ranks})
    if sizes[0] < 1:
        raise SpecError(f"{sizes[0]} is not a number of ranks", remedy="give numbers such as --ranks 1,2,4")
    return advise([measured(size, options) for size in sizes])


def measured(size: int, options: argparse.Namespace) -> ScaleRun:
    """Runs the script on so many ranks until its training is measured.

    Raises:
        EngineError: a rank failed.
    """
    passed = ["--seconds", str(options.seconds), "--precision", str(options.precision)]
    passed += ["--bare"] if options.bare else []
    limit = _START + 4 * options.seconds
    module = "batchhvd.trainer.scaling.rank"
    run = read_run(processes.answer(module, size, [*passed, options.script, *options.arguments], timeout=limit))
    ranks = "1 rank" if size == 1 else f"{size} ranks"
    print(f"{ranks}: {run.steps} steps in {run.seconds:.0f} s", file=sys.stderr, flush=True)
    return run


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m batchhvd.trainer scale", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--ranks", type=processes.sizes, default=[1, 2, 4], help="numbers of ranks, default 1,2,4")
    parser.add_argument("--seconds", type=float, default=20.0, help="the most that one measurement takes, default 20")
    parser.add_argument("--precision", type=float, default=0.03, help="of a step's time, default 0.03")
    parser.add_argument("--json", type=Path, help="a file for all figures")
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("script", help="the script, which trains with model.fit after hvd.init()")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
