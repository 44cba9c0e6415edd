"""``make upstream``: the tests that Microsoft publishes with its clients, run against this checkout's services.

    python -m tests.upstream.run [files | blobs] [ARGUMENT of pytest...]

Their source archive is fetched into the user's cache, once. What became of each test is printed per file: ``passed``
(the service was asked, and answered none of its requests with 501), ``refused`` (501), ``differs``, ``n/a``; and below,
by name and with the reason, all that differs and, grouped by reason, all that is not applicable.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from tests.upstream import reasons

SUITES = {"files": ("azure-storage-file-share", "12.27.1"), "blobs": ("azure-storage-blob", "12.31.1")}
KINDS = ("passed", "refused", "differs", "n/a")
_ROOT = Path(__file__).parents[2]
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "batchhvd" / "upstream"


def main(arguments: list[str]) -> int:
    """Runs all tests of a suite, or those that pytest's arguments select; 1 if one differs without a known reason."""
    suite, rest = (arguments[0], arguments[1:]) if arguments and arguments[0] in SUITES else ("files", arguments)
    notes = run(suite, fetch(*SUITES[suite]), rest)
    verdicts = {note["test"]: verdict(note, suite) for note in notes}
    print(table(verdicts))
    return 1 if any(kind == "differs" and why.startswith("?") for kind, why in verdicts.values()) else 0


def fetch(package: str, version: str) -> Path:
    """Returns the folder of Microsoft's tests; fetches it if the cache does not have it."""
    folder = _CACHE / f"{package.replace('-', '_')}-{version}"
    if not (folder / "tests").is_dir():
        _CACHE.mkdir(parents=True, exist_ok=True)
        wanted = ["--no-binary", ":all:", "--no-deps", "--dest", str(_CACHE), f"{package}=={version}"]
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", *wanted], check=True)
        with tarfile.open(f"{folder}.tar.gz") as archive:
            archive.extractall(_CACHE, filter="data")
    return folder / "tests"


def run(suite: str, tests: Path, arguments: list[str]) -> list[dict[str, Any]]:
    """Returns what became of each test."""
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder) / "notes"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.upstream.plugin", "-o", "asyncio_mode=auto",
                   "-o", "cache_dir=" + folder, "--timeout=120", "--tb=no", "--no-header",
                   "--no-summary", "-W", "ignore",
                   "--ignore=perfstress_tests", "--rootdir=.", "-c", os.devnull]  # fmt: skip
        paths = os.pathsep.join([str(_ROOT), str(tests)])
        told = {"UPSTREAM_NOTES": str(notes), "UPSTREAM_SUITE": suite, "PYTHONDONTWRITEBYTECODE": "1"}
        environment = {**os.environ, "PYTHONPATH": paths, **told}
        subprocess.run([*command, *arguments], cwd=tests, env=environment, check=False)
        return [json.loads(line) for line in notes.read_text(encoding="utf-8").splitlines()]


def verdict(note: dict[str, Any], suite: str = "files") -> tuple[str, str]:
    """Returns what a test's result counts as, and why."""
    name = note["test"].partition("[")[0].rpartition("::")[2].removesuffix("_async")
    if note["outcome"] == "skipped":
        return "n/a", note["why"]
    if name in reasons.NOT_APPLICABLE[suite]:
        return "n/a", reasons.NOT_APPLICABLE[suite][name]
    if note["refused"]:
        return "refused", note["refused"][0]
    if note["outcome"] == "failed":
        return "differs", f"{reasons.DIFFERS[suite].get(name, '?')} {note['why']}"
    return ("passed", "") if note["asked"] else ("n/a", "it contacts no service")


def table(verdicts: dict[str, tuple[str, str]]) -> str:
    """Returns the results per file, then names and reasons."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for test, (kind, _) in verdicts.items():
        counts[test.partition("::")[0]][kind] += 1
    rows = [f"{'file':40}" + "".join(f"{kind:>9}" for kind in KINDS)]
    for name, count in [*sorted(counts.items()), ("sum", sum(counts.values(), Counter()))]:
        rows.append(f"{name:40}" + "".join(f"{count[kind]:9}" for kind in KINDS))
    for kind in ("refused", "differs"):
        rows += ["", f"{kind}:", *(f"  {test}: {why}" for test, (is_, why) in sorted(verdicts.items()) if is_ == kind)]
    return "\n".join([*rows, "", "not applicable:", *_grouped(verdicts)])


def _grouped(verdicts: dict[str, tuple[str, str]]) -> list[str]:
    groups: dict[str, list[str]] = defaultdict(list)
    for test, (kind, why) in sorted(verdicts.items()):
        if kind == "n/a":
            groups[why].append(test.partition("::")[2].rpartition("::")[2])
    return [f"  {why} ({len(tests)}): {', '.join(tests)}" for why, tests in groups.items()]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
