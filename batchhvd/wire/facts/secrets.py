"""Secrets on the wire: the fields whose values nobody may see, and what a root's token must be to protect anything."""

from __future__ import annotations

SECRET_FIELDS = frozenset({"accountKey", "password", "adminUserPassword", "instrumentationKey"})
"""Neither a GET nor an exported file shows them."""

SECRET_LENGTH = 43
"""Characters that a root's token has at least: 32 random bytes in base64."""


def is_secret(token: bytes) -> bool:
    """Says whether the content of a root's file ``token``, without space around it, could protect the service."""
    return len(token) >= SECRET_LENGTH and token.isascii()
