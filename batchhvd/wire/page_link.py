"""A link to the status page: it opens the page once, and is not the service's token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from azure.core.rest import HttpRequest

if TYPE_CHECKING:
    from batchhvd.wire.connection import Connection


def page_link(connection: Connection) -> str:
    """Asks a local service for a link that opens its status page once, within a few minutes.

    Args:
        connection: the way to the service.
    """
    with connection.translating("the status page cannot be opened"):
        request = HttpRequest("POST", f"{connection.endpoint}/status.link")
        response = connection.resources._client.send_request(request)
        response.raise_for_status()
        url: str = response.json()["url"]
        return url
