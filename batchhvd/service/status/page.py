"""The status page: a document, a style and scripts, which may neither load nor send anything elsewhere.

They hold no secret: whoever knows the page's host name may have them. What they show needs a session.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from batchhvd.service.http.exchange import Answer

FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/sweep.js": ("sweep.js", "text/javascript; charset=utf-8"),
}
"""What makes up the page, by path: the file, and its type."""

HEADERS = {
    # Source: Content Security Policy Level 3. No script or style inside the document runs, only the files.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""What every answer of the page's host says, errors included."""


@cache
def answer(path: str) -> Answer:
    """Answers one of the page's files."""
    name, type = FILES[path]
    content = Path(__file__).with_name(name).read_bytes()
    return Answer(200, content, {"Content-Type": type, "Cache-Control": "no-cache"})
