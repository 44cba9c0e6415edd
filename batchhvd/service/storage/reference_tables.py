"""Tables of operations and headers for the documentation, made from the code's own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from batchhvd.service.storage.protocol.header_rules import Table


def header_table(known: Table) -> str:
    """Returns the table of what is done with each header."""
    rows = ((f"`{name}`", on, done) for name, on, done in known.rows())
    return table(("Header", "Operations", "What is done"), rows)


def replaced(page: str, begin: str, end: str, tables: str) -> str:
    """Returns a page with tables between its marks."""
    return re.sub(f"(?s)({re.escape(begin)}).*?({re.escape(end)})", lambda found: f"{begin}\n\n{tables}\n\n{end}", page)


def request_text(method: str, level: str, query: str) -> str:
    """Returns a request as the table of operations shows it."""
    parts = query.split(", ") if query else []
    asked = "&".join(part for part in parts if not part.startswith("x-ms-"))
    headers = " and ".join(f"`{part}`" for part in parts if part.startswith("x-ms-"))
    return f"`{method} {level or '/'}{'?' if asked else ''}{asked}`{' with ' if headers else ''}{headers}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
