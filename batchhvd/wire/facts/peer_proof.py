"""How a service proves that it holds its root's token, before a client sends that token or anything else to it.

The client sends a number that nobody has used before; the answer can be made only with the token, and only for the
address at which the service itself listens. Whoever merely passes the question on to the service gets the proof for
another address.
"""

from __future__ import annotations

import hashlib
import hmac

PROOF_PATH = "/status.proof"
"""Where a service answers the question, which is the query's parameter ``nonce``: 64 hexadecimal digits."""


def proof(secret: str, nonce: str, host: str, port: int) -> str:
    """Returns the proof for a nonce.

    Args:
        secret: the root's token.
        nonce: the client's number.
        host: the address at which the service listens, and which the client has reached.
        port: its port.
    """
    key = hmac.digest(secret.encode(), b"batchhvd: this is the service of the root", hashlib.sha256)
    return hmac.new(key, f"{nonce} {host}:{port}".encode(), hashlib.sha256).hexdigest()
