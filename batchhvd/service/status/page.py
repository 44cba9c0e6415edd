"""The status page: one HTML file with its script and style inside, which may not load or send anything elsewhere.

The page itself holds no secret, and everybody on this machine may have it. It asks for what it shows with the token
that follows ``#`` in its link: browsers do not send that part, so it reaches neither a log nor another site.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path

from batchhvd.service.http.exchange import Answer


@cache
def answer() -> Answer:
    """Answers the page."""
    html = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    headers = {
        "Content-Type": "text/html; charset=utf-8",
        "Content-Security-Policy": policy(html),
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "no-cache",
    }
    return Answer(200, html.encode(), headers)


def policy(html: str) -> str:
    """Returns the Content-Security-Policy under which a page's own script and style run, and nothing else.

    Source: Content Security Policy Level 3; the hashes are those of the elements' exact text.
    """
    script, style = (_hash(html, element) for element in ("script", "style"))
    return (
        f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    )


def _hash(html: str, element: str) -> str:
    texts = re.findall(f"<{element}>(.*?)</{element}>", html, re.DOTALL)
    return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in texts)
