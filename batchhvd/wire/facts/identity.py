"""Which API, subscription and tenant the local service speaks for."""

from __future__ import annotations

API_VERSION = "2018-05-01"
"""The version of Batch AI's API, as clients name it in ``api-version``."""

SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
"""The only subscription of a local service."""

TENANT = "00000000-0000-0000-0000-00000000000a"
"""The tenant that a local service's subscription belongs to."""
