"""Every limit of the service, in one place; docs/security.md has the same table, and a test compares them."""

from __future__ import annotations

BODY_BYTES = 4 << 20
"""The body of a request to Resource Manager and Batch AI."""

PAGE_BODY_BYTES = 1 << 10
"""The body with which a browser opens a session of the status page."""

PAGE_LOG_BYTES = 1 << 20
"""The piece of a log that the status page reads at a time."""

PAGE_CODES = 16
"""Codes for the status page that are given out and not used; the oldest ends when there would be more."""

PAGE_CODE_SECONDS = 300
"""How long the link to the status page opens it."""

PAGE_SESSION_SECONDS = 12 * 3600
"""How long a browser may go on after it last looked at the status page."""
