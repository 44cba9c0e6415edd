"""Reads a Keras script for Horovod, without running it, and says what is missing or wrong on several ranks.

    python -m batchhvd.trainer check script.py [--json]

The exit code is 0 if nothing was found, 1 if something was found, and 2 if the script cannot be read.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from attrs import asdict

from batchhvd.errors import SpecError
from batchhvd.trainer.check import Finding, check


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    options = _options(argv)
    try:
        found = check(options.script.read_text(encoding="utf-8"), str(options.script))
    except (OSError, UnicodeDecodeError, SpecError) as error:
        print(f"{options.script} cannot be read: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps([asdict(finding) for finding in found], indent=2))
    else:
        print("\n".join(_text(str(options.script), finding) for finding in found) or "nothing found")
    return 1 if found else 0


def _text(name: str, finding: Finding) -> str:
    more = f" (also {', '.join(map(str, finding.lines[1:]))})" if len(finding.lines) > 1 else ""
    return f"{name}:{finding.lines[0]}: {finding.code}: {finding.problem}{more}\n    {finding.remedy}"


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m batchhvd.trainer check", description=__doc__.split("\n")[0])
    parser.add_argument("script", type=Path)
    parser.add_argument("--json", action="store_true", help="as JSON: kind, lines, problem, remedy")
    return parser.parse_args(argv)


if __name__ == "__main__":
    raise SystemExit(main())
