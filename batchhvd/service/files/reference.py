"""The tables of docs/files.md, from the code's own: all operations, and what is done with each header.

``python -m batchhvd.service.files.reference docs/files.md`` writes them into the page; a test compares the two.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from batchhvd.service.files.protocol import headers
from batchhvd.service.files.route import Action, actions

BEGIN, END = "<!-- operations and headers: made by batchhvd.service.files.reference -->", "<!-- end -->"


def tables() -> str:
    """Returns both tables."""
    operations = _table(("Operation", "Request", "Links need", "Snapshots"), _operations())
    known = _table(
        ("Header", "Operations", "What is done"), ((f"`{name}`", on, done) for name, on, done in headers.TABLE.rows())
    )
    return f"{operations}\n\n{known}"


def replaced(page: str) -> str:
    """Returns a page with both tables between its marks."""
    return re.sub(
        f"(?s)({re.escape(BEGIN)}).*?({re.escape(END)})", lambda found: f"{BEGIN}\n\n{tables()}\n\n{END}", page
    )


def _operations() -> Iterator[Sequence[str]]:
    found: dict[str, tuple[Action, list[str]]] = {}
    for (method, level, query), action in actions():
        request = f"`{method} {level or '/'}{'?' if query and 'source' not in query else ''}{_plain(query)}`"
        found.setdefault(action.name, (action, []))[1].append(request + _with(query))
    for name, (action, requests) in found.items():
        letters = " or ".join(f"`{letter}`" for letter in action.letters)
        yield (
            name,
            ", ".join(requests),
            letters + ", account link" * action.manages,
            "yes" * action.reads,
        )


def _plain(query: str) -> str:
    plain = query.replace("x-ms-copy-source", "").strip(", ")
    return f"?{plain}" if plain and plain != query else plain


def _with(query: str) -> str:
    return " with `x-ms-copy-source`" if "x-ms-copy-source" in query else ""


def _table(heads: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(replaced(path.read_text(encoding="utf-8")), encoding="utf-8")
