"""Findings as text, as JSON, and as SARIF 2.1.0, which editors and code hosts read."""

from __future__ import annotations

from pathlib import PurePath
from typing import TypeAlias
from urllib.parse import quote

from attrs import asdict, frozen

from batchhvd._version import __version__
from batchhvd.trainer.check.codes import CODES
from batchhvd.trainer.check.finding import Finding, Position

#: A value of JSON.
Json: TypeAlias = "dict[str, Json] | list[Json] | str | int"
_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


@frozen
class ScriptReport:
    """What was found in one script.

    Attributes:
        name: the script's path, as it was given.
        findings: in the order of lines.
    """

    name: str
    findings: list[Finding]


def as_text(report: ScriptReport) -> str:
    """Returns two lines for each finding: place, code and problem; and the remedy."""
    return "\n".join(_lines(report.name, finding) for finding in report.findings)


def _lines(name: str, finding: Finding) -> str:
    more = f" (also {', '.join(map(str, finding.lines[1:]))})" if len(finding.lines) > 1 else ""
    return f"{name}:{finding.line}:{finding.column}: {finding.code}: {finding.problem}{more}\n    {finding.remedy}"


def as_json(reports: list[ScriptReport]) -> list[Json]:
    """Returns a dictionary for each finding."""
    return [
        {
            "file": report.name,
            "code": finding.code,
            "line": finding.line,
            "column": finding.column,
            "lines": list(finding.lines),
            "places": [asdict(place) for place in finding.places],
            "problem": finding.problem,
            "remedy": finding.remedy,
            "fix": CODES[finding.code].fixed,
        }
        for report in reports
        for finding in report.findings
    ]


def as_sarif(reports: list[ScriptReport]) -> dict[str, Json]:
    """Returns a log of SARIF with one run, and in it one result for each place of each finding."""
    rules: list[Json] = [
        {"id": code, "shortDescription": {"text": kind.meaning}, "defaultConfiguration": {"level": "warning"}}
        for code, kind in CODES.items()
    ]
    results = [
        _result(report.name, one, place) for report in reports for one in report.findings for place in one.places
    ]
    driver: Json = {"name": "batchhvd trainer check", "version": __version__, "rules": rules}
    run: Json = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _result(name: str, finding: Finding, place: Position) -> Json:
    path = PurePath(name)
    region: dict[str, Json] = {"startLine": place.line, "startColumn": place.column}
    region |= {"endLine": place.end_line, "endColumn": place.end_column}
    uri = path.as_uri() if path.is_absolute() else quote(path.as_posix())
    return {
        "ruleId": finding.code,
        "ruleIndex": list(CODES).index(finding.code),
        "level": "warning",
        "message": {"text": f"{finding.problem}. Remedy: {finding.remedy}"},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}],
    }
