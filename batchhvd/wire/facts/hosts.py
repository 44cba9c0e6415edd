"""The public names of Azure's hosts that a local service can stand in for, and how storage accounts may be named."""

from __future__ import annotations

MANAGEMENT_HOSTS = ("management.azure.com", "management.core.windows.net")
"""Resource Manager's hosts."""

LOGIN_HOSTS = ("login.microsoftonline.com", "login.windows.net")
"""The hosts that give tokens."""

FILE_DOMAIN = "file.core.windows.net"
"""The domain in which each storage account has a host for its files, named like the account."""

ACCOUNT_NAME = r"[a-z0-9]{3,24}"
"""The pattern of a storage account's name; source: Azure's naming rules."""
