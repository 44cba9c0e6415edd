"""How a node is entered by SSH."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from batchhvd.wire.facts.additions import FIELD, HOST_KEY


@frozen
class NodeLogin:
    """How a node of a cluster is entered by SSH.

    Attributes:
        node: the node's name, as the logs show it.
        address: its IP address, or None if it cannot be entered.
        port: the port of its SSH server, or None.
        host_key: the fingerprint of its host key as ``ssh`` shows it (``SHA256:…``), or None if the service tells none.
    """

    node: str
    address: str | None = None
    port: int | None = None
    host_key: str | None = None

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> NodeLogin:
        """Returns the value of an entry of the wire's list."""
        own = document.get(FIELD) or {}
        address, port = document.get("ipAddress"), document.get("port")
        return cls(str(document.get("nodeId")), address, port, own.get(HOST_KEY))
