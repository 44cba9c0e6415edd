"""The public names of Azure's hosts that a local service can stand in for, and how storage accounts may be named."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

MANAGEMENT_HOSTS = ("management.azure.com", "management.core.windows.net")
"""Resource Manager's hosts."""

LOGIN_HOSTS = ("login.microsoftonline.com", "login.windows.net")
"""The hosts that give tokens."""

FILE_DOMAIN = "file.core.windows.net"
"""The domain in which each storage account has a host for its files, named like the account."""

BLOB_DOMAIN = "blob.core.windows.net"
"""The domain in which each storage account has a host for its blobs."""

ACCOUNT_NAME = r"[a-z0-9]{3,24}"
"""The pattern of a storage account's name; source: Azure's naming rules."""

_HOST = re.compile(r"[\w.-]+")
_SIGNS = re.compile(r"[^\s\x00-\x1f\x7f\ud800-\udfff]+")


def read_url(text: str) -> SplitResult:
    """Returns the parts of a URL; all of them are empty for a text that is not one, such as ``https://[[HOST]]/``."""
    try:
        parts = urlsplit(text)
        name = parts.hostname or ""
        fine = parts.port != 0 and (":" in name or _HOST.fullmatch(name)) and _SIGNS.fullmatch(text)
    except ValueError:  # brackets around what is not an address, a port that is not a number
        fine = None
    return parts if fine else urlsplit("")
