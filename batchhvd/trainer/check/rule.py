"""All rules: one function for each kind of defect, named after what a right script does.

Each rule takes the meaning of a script and yields its findings. Findings of one code and cause are joined, so a script
that prints in nine places has one finding with nine places.
"""

from __future__ import annotations

import ast

from batchhvd.trainer.check.collision import downloads, prints, writes
from batchhvd.trainer.check.exchange import broadcasts, scales, wraps
from batchhvd.trainer.check.finding import Finding, Position
from batchhvd.trainer.check.joining import names, pins, starts
from batchhvd.trainer.check.legacy import removed
from batchhvd.trainer.check.meaning import Meaning
from batchhvd.trainer.check.parsed_script import Script
from batchhvd.trainer.check.sharing import passes, shards

RULES = (starts, pins, names, scales, wraps, broadcasts, passes, writes, downloads, shards, prints, removed)


def findings(script: Script) -> list[Finding]:
    """Returns the findings in a script, in the order of lines; equal findings are joined."""
    meaning = Meaning(script)
    joined: dict[tuple[str, str, str], dict[Position, ast.AST | None]] = {}
    for rule in RULES:
        for found in rule(meaning):
            places = joined.setdefault((found.code, found.problem, found.remedy), {})
            places.update(zip(found.places, found.nodes, strict=True))
    made = [
        script.placed(
            Finding(
                code,
                tuple(places),
                problem.replace("{hvd}", meaning.alias),
                remedy.replace("{hvd}", meaning.alias),
                tuple(places.values()),
            )
        )
        for (code, problem, remedy), places in joined.items()
    ]
    return sorted(made, key=lambda one: (one.line, one.code, one.column))
