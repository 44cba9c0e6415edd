"""The check on whole scripts in the patterns of the world, with the findings that are right written beside the lines.

How the findings themselves were verified: ``tests/e2e/trainer/observe_corpus.py`` runs each script and compares what it
does with what is written in it.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from batchhvd.trainer.check import check
from batchhvd.trainer.check.codes import CODES

CORPUS = Path(__file__).parents[2] / "data" / "check"
SCRIPTS = sorted(CORPUS.glob("*.py"))
_MARK = re.compile(r"#\s*finding:\s*([a-z0-9, -]+)$")


def expected(text: str) -> Counter[tuple[int, str]]:
    """Returns how often each code stands beside each line."""
    found: Counter[tuple[int, str]] = Counter()
    for number, line in enumerate(text.splitlines(), 1):
        mark = _MARK.search(line)
        found.update((number, code.strip()) for code in (mark[1].split(",") if mark else ()))
    return found


def reported(text: str) -> Counter[tuple[int, str]]:
    return Counter((line, finding.code) for finding in check(text) for line in finding.lines)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_has_no_false_finding(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not reported(text) - expected(text)


def test_nine_of_ten_true_findings_are_reported() -> None:
    texts = [path.read_text(encoding="utf-8") for path in SCRIPTS]
    true = sum((expected(text) for text in texts), Counter())
    found = sum((expected(text) & reported(text) for text in texts), Counter())
    assert len(SCRIPTS) >= 40 and true.total() >= 140
    missed = [(path.stem, expected(text) - reported(text)) for path, text in zip(SCRIPTS, texts, strict=True)]
    assert found.total() / true.total() >= 0.9, [each for each in missed if each[1]]
    for code in CODES:  # and of each kind, so that none is missed as a whole
        wanted, seen = (sum(count for (_, one), count in part.items() if one == code) for part in (true, found))
        assert seen / wanted >= 0.9, (code, [each for each in missed if each[1]])


def test_the_corpus_has_right_scripts_and_every_code() -> None:
    codes = [{code for _, code in expected(path.read_text(encoding="utf-8"))} for path in SCRIPTS]
    assert sum(not found for found in codes) >= 15
    assert set.union(*codes) == set(CODES)


def test_every_place_lies_on_what_it_names() -> None:
    for path in SCRIPTS:
        lines = path.read_text(encoding="utf-8").split("\n")
        for finding in check(path.read_text(encoding="utf-8")):
            for place in finding.places:
                assert 1 <= place.column <= len(lines[place.line - 1]) + 1
                assert (place.line, place.column) <= (place.end_line, place.end_column)


def test_what_a_remedy_shows_as_code_is_python() -> None:
    words = {"removed-api", "elastic", "unsupported-name"}  # many of these say to leave something out
    for path in SCRIPTS:
        for finding in check(path.read_text(encoding="utf-8")):
            pieces = re.findall(r"`([^`]+)`", finding.remedy)
            assert pieces or finding.code in words or "Hook" in finding.problem, finding
            for code in pieces:
                ast.parse(code)
