"""What opens the status page: a code that is good once becomes a cookie, which opens the page and nothing else.

The page has a host name of its own, which only the holder of the service's secret can know. Cookies are shared by all
ports of a name: under a name that can be guessed, another user's server on this machine could be sent the cookie.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable

from batchhvd.service.http import limits

COOKIE = "batchhvd"
"""The name of the cookie that holds a session."""


class PageKeys:
    """Gives out the codes and sessions of the status page, and checks them.

    Codes live in this process only. Sessions are signed and outlive a restart; a new secret ends them all.
    """

    def __init__(self, secret: Callable[[], str], now: Callable[[], float]) -> None:
        """Creates it.

        Args:
            secret: returns the present content of the file ``token``.
            now: the clock, seconds since 1970.
        """
        self._secret, self._now = secret, now
        self._codes: dict[str, float] = {}

    @property
    def host(self) -> str:
        """The page's host name; browsers lead every name below ``localhost`` to their own machine."""
        return f"page-{self._sign('host of the status page')[:24]}.localhost"

    def is_host(self, host: str) -> bool:
        """Says whether a Host header names the page, with any port: it may come through a forwarded one."""
        name = host.partition(":")[0].lower()
        return name.endswith(".localhost") and hmac.compare_digest(name.encode("utf-8", "replace"), self.host.encode())

    def code(self) -> str:
        """Returns a new code; of too many that nobody has used, the oldest ends."""
        now = self._now()
        self._codes = {code: ends for code, ends in self._codes.items() if ends > now}
        while len(self._codes) >= limits.PAGE_CODES:
            del self._codes[next(iter(self._codes))]
        code = secrets.token_urlsafe(24)
        self._codes[code] = now + limits.PAGE_CODE_SECONDS
        return code

    def redeem(self, code: str) -> bool:
        """Says whether a code opens the page, and ends the code."""
        return self._codes.pop(code, 0.0) > self._now()

    def cookie(self) -> str:
        """Returns the header that gives a browser a new session."""
        ends = int(self._now()) + limits.PAGE_SESSION_SECONDS
        session = f"{ends}.{self._sign(f'status page until {ends}')}"
        return f"{COOKIE}={session}; Path=/; HttpOnly; SameSite=Strict"

    def left(self, cookies: str) -> float:
        """Returns the seconds for which a Cookie header still opens the page; 0 if it does not."""
        for pair in cookies.split(";"):
            name, _, value = pair.strip().partition("=")
            text, _, signature = value.partition(".")
            if name == COOKIE and text.isascii() and text.isdigit() and len(text) < 15:
                right = self._sign(f"status page until {int(text)}")
                if hmac.compare_digest(signature.encode("utf-8", "replace"), right.encode()):
                    return max(0.0, int(text) - self._now())
        return 0.0

    def _sign(self, text: str) -> str:
        return hmac.new(self._secret().encode(), text.encode(), hashlib.sha256).hexdigest()
