"""Who may enter a cluster: the administrator of its user settings, by password or key; the password is not kept."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Mapping

from batchhvd.service.store.records import Document

_COST = {"n": 1 << 14, "r": 8, "p": 1}  # 16 MiB and 50 ms for each try
_NOBODY = b"\0" * 16, b"\0" * 32  # costs as much as a real one, and no password has it


def kept(settings: Mapping[str, str]) -> Document:
    """Returns what a cluster's record keeps of its user settings: the public key, and a salted hash of the password."""
    found: Document = {"key": settings.get("adminUserSshPublicKey", "")}
    if password := settings.get("adminUserPassword", ""):
        salt = os.urandom(16)
        found["password"] = base64.b64encode(salt + _hashed(password, salt)).decode()
    return found


def has_password(login: Mapping[str, str], password: str) -> bool:
    """Whether a password is the right one; takes the same time if there is none.

    Args:
        login: what ``kept`` has returned.
        password: what was given.
    """
    both = base64.b64decode(login.get("password", ""))
    salt, hashed = (both[:16], both[16:]) if both else _NOBODY
    return hmac.compare_digest(_hashed(password, salt), hashed) and bool(both)


def same(login: Mapping[str, str], settings: Mapping[str, str]) -> bool:
    """Whether user settings are those that a cluster was created with."""
    password = settings.get("adminUserPassword", "")
    both = has_password(login, password) if password else not login.get("password")
    return both and login.get("key", "") == settings.get("adminUserSshPublicKey", "")


def key_data(line: str) -> bytes:
    """Returns a public key of OpenSSH's one-line form in binary; b"" if the line holds none."""
    words = line.split()
    try:
        return base64.b64decode(words[1], validate=True) if len(words) > 1 else b""
    except ValueError:
        return b""


def _hashed(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode("utf-8", "surrogateescape"), salt=salt, dklen=32, **_COST)
