"""Windows permissions as texts (SDDL) and the keys by which clients name them. They are kept, not enforced."""

from __future__ import annotations

import hashlib
import re

from batchhvd.service.storage.protocol.refusal import refusal

_BYTES = 8192
# Owner, group, access list, audit list, each at most once and in this order; the lists are flags and entries.
_ENTRY = r"\([A-Z]{1,2};[A-Z]*;[A-Z0-9]*(?:0x[0-9a-fA-F]+)?;[-0-9a-fA-F{}]*;[-0-9a-fA-F{}]*;[-A-Z0-9]+(?:;[^()]*)?\)"
_SID = r"(?:S-1(?:-[0-9A-Za-z]+)+?|[A-Z]{2})"
_SDDL = re.compile(rf"(?:O:{_SID})?(?:G:{_SID})?(?:D:[A-Z_]*(?:{_ENTRY})*)?(?:S:[A-Z_]*(?:{_ENTRY})*)?")


def check(text: str) -> str:
    """Returns a permission; refuses what is not one in the security descriptor definition language."""
    if len(text) > _BYTES:
        raise refusal("InvalidHeaderValue", "A permission may have 8 KiB.")
    if not text or not _SDDL.fullmatch(text):
        raise refusal("InvalidHeaderValue", f"{text[:60]!r} is not a permission in SDDL: O:…G:…D:…S:….")
    return text


def key_of(text: str) -> str:
    """Returns the key of a permission, the same for the same text."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"{int.from_bytes(digest[:8], 'big')}*{int.from_bytes(digest[8:16], 'big')}"


DEFAULT = "O:SYG:SYD:(A;;FA;;;BA)(A;;FA;;;SY)"
"""What files and directories have that nobody gave a permission."""

DEFAULT_KEY = key_of(DEFAULT)
