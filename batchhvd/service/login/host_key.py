"""The host key of each cluster: derived from a secret of the root, so that it is the same after every restart."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from pathlib import Path

from batchhvd.service.store import durable

_SEED = 32  # bytes


def folder(root: Path) -> Path:
    """Returns the folder for all about logins in a service's root; creates it for the owner only."""
    path = root / "logins"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def private_key(root: Path, cluster: str, number: int) -> str:
    """Returns the private key of a cluster (ed25519) in OpenSSH's form.

    Args:
        root: the service's folder.
        cluster: the cluster's id.
        number: the number of its record: a cluster of the same name that is created later has another key.
    """
    from cryptography.hazmat.primitives import serialization as forms

    form = forms.Encoding.PEM, forms.PrivateFormat.OpenSSH, forms.NoEncryption()
    return _key(root, cluster, number).private_bytes(*form).decode()  # type: ignore[attr-defined, no-any-return]


def public_key(root: Path, cluster: str, number: int) -> str:
    """Returns the public key of a cluster in OpenSSH's one-line form, without a comment."""
    from cryptography.hazmat.primitives import serialization as forms

    public = _key(root, cluster, number).public_key()  # type: ignore[attr-defined]
    return str(public.public_bytes(forms.Encoding.OpenSSH, forms.PublicFormat.OpenSSH).decode())


def fingerprint(public: str) -> str:
    """Returns the fingerprint of a public key as ``ssh`` shows it."""
    digest = hashlib.sha256(base64.b64decode(public.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def _key(root: Path, cluster: str, number: int) -> object:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # takes 40 ms to load

    text = f"host key\0{cluster.lower()}\0{number}".encode()
    return Ed25519PrivateKey.from_private_bytes(hmac.digest(_seed(root), text, "sha256"))


def _seed(root: Path) -> bytes:
    path = folder(root) / "seed"
    if not path.exists():
        durable.replace(path, os.urandom(_SEED).hex(), 0o600)
    seed = bytes.fromhex(path.read_text(encoding="ascii"))
    if len(seed) != _SEED:
        raise OSError(f"{path} is damaged; remove it, and the clusters get new host keys")
    return seed
