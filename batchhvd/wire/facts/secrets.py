"""The fields whose values nobody may see: neither a GET nor an exported file shows them."""

from __future__ import annotations

SECRET_FIELDS = frozenset({"accountKey", "password", "adminUserPassword", "instrumentationKey"})
