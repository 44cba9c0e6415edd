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
    plain = _plain(query)
    return f"`{method} {level or '/'}{'?' if query and 'source' not in query else ''}{plain}`{_with(query)}"


def _plain(query: str) -> str:
    plain = query.replace("x-ms-copy-source", "").strip(", ")
    return f"?{plain}" if plain and plain != query else plain


def _with(query: str) -> str:
    return " with `x-ms-copy-source`" if "x-ms-copy-source" in query else ""


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
