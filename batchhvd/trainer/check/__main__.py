"""Reads scripts for Horovod, without running them, and says what is missing or wrong on several ranks.

    python -m batchhvd.trainer check SCRIPT [SCRIPT …] [--json | --sarif] [--diff | --fix]

The exit code is 0 if nothing was found, 1 if something was found (with --fix: is left; with --diff: is left or would be
fixed), and 2 if a script cannot be read or is not Python.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from batchhvd.errors import SpecError
from batchhvd.trainer.check import check
from batchhvd.trainer.check.fix import fixed
from batchhvd.trainer.check.report import ScriptReport, as_json, as_sarif, as_text
from batchhvd.trainer.check.source_file import SourceFile


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    options = _options(argv)
    reports, unreadable, changed = list[ScriptReport](), False, False
    for path in options.scripts:
        try:
            report, would = _examine(path, options)
        except (OSError, SyntaxError, UnicodeDecodeError, SpecError) as error:
            print(f"{path} cannot be read: {error}", file=sys.stderr)
            unreadable = True
        else:
            reports.append(report)
            changed |= would and options.diff
    _show(reports, options)
    if unreadable:
        return 2
    return 1 if changed or any(report.findings for report in reports) else 0


def _examine(path: Path, options: argparse.Namespace) -> tuple[ScriptReport, bool]:
    """Returns what is found in a script, after fixing it if that is wanted, and whether there was something to fix."""
    file = SourceFile.read(path)
    found = check(file.text, str(path))
    if not options.fix and not options.diff:
        return ScriptReport(str(path), found), False
    after = file.with_text(fixed(file.text, str(path)))
    difference = file.difference(after)
    print(difference, end="", file=sys.stderr if options.json or options.sarif else sys.stdout)
    if options.fix and difference:
        after.write()
    return ScriptReport(str(path), check(after.text, str(path))), bool(difference)


def _show(reports: list[ScriptReport], options: argparse.Namespace) -> None:
    if options.json or options.sarif:
        print(json.dumps(as_sarif(reports) if options.sarif else as_json(reports), indent=2))
        return
    texts = [as_text(report) for report in reports if report.findings]
    left = " is left" if options.fix or options.diff else " found"
    print("\n".join(texts) if texts else f"nothing{left}")


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m batchhvd.trainer check",
        description=(__doc__ or "").split("\n")[0],
        epilog="Exit code: 0 nothing found, 1 something found or left, 2 a script cannot be read.",
    )
    parser.add_argument("scripts", type=Path, nargs="+", metavar="SCRIPT")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as JSON: file, code, line, column, problem, remedy, fix")
    form.add_argument("--sarif", action="store_true", help="as SARIF 2.1.0, for editors and code hosts")
    change = parser.add_mutually_exclusive_group()
    change.add_argument("--diff", action="store_true", help="show what --fix would change, and what would be left")
    change.add_argument("--fix", action="store_true", help="write what is mechanical into the script, and show it")
    return parser.parse_args(argv)


if __name__ == "__main__":
    raise SystemExit(main())
