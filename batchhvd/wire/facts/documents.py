"""Documents of the wire: JSON objects of which only the description knows what is inside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Document = Mapping[str, Any]
"""A JSON object that is read."""

Body = dict[str, Any]
"""A JSON object that is put together."""
