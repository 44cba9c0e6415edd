"""Why some of Microsoft's tests cannot pass here: by the test's name, without ``_async``."""

from __future__ import annotations

NOT_APPLICABLE: dict[str, str] = {}
"""Tests of what this service does not claim to be."""

DIFFERS: dict[str, str] = {}
"""Tests that fail because the service answers otherwise than Azure, on purpose."""
