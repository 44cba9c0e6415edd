"""The tables of docs/files.md, from the code's own: all operations, and what is done with each header.

``python -m batchhvd.service.files.reference docs/files.md`` writes them into the page; a test compares the two.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from batchhvd.service.files.protocol import headers
from batchhvd.service.files.route import Action, actions
from batchhvd.service.storage import reference_tables
from batchhvd.service.storage.reference_tables import header_table, request_text, table

BEGIN, END = "<!-- operations and headers: made by batchhvd.service.files.reference -->", "<!-- end -->"


def tables() -> str:
    """Returns both tables."""
    operations = table(("Operation", "Request", "Links need", "Snapshots"), _operations())
    return f"{operations}\n\n{header_table(headers.TABLE)}"


def replaced(page: str) -> str:
    """Returns a page with both tables between its marks."""
    return reference_tables.replaced(page, BEGIN, END, tables())


def _operations() -> Iterator[Sequence[str]]:
    found: dict[str, tuple[Action, list[str]]] = {}
    for (method, level, query), action in actions():
        found.setdefault(action.name, (action, []))[1].append(request_text(method, level, query))
    for name, (action, requests) in found.items():
        letters = " or ".join(f"`{letter}`" for letter in action.letters)
        yield (
            name,
            ", ".join(requests),
            letters + ", account link" * action.manages,
            "yes" * action.reads,
        )


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(replaced(path.read_text(encoding="utf-8")), encoding="utf-8")
