"""Many jobs with one request, where the service knows how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from batchhvd.wire.facts.documents import Body

if TYPE_CHECKING:
    from batchhvd.wire.connection import Connection

SLICE = 200
"""Jobs of one request: few enough that the service answers others in between."""


def create_jobs(connection: Connection, experiment: str, jobs: Sequence[tuple[str, Body]]) -> None:
    """Creates jobs of an experiment; those that are there already and are the same stay.

    Args:
        connection: the way to a service of this package.
        experiment: the experiment's id.
        jobs: names and bodies, at most ``SLICE``.
    """
    from azure.core.rest import HttpRequest

    bodies: list[Mapping[str, object]] = [{"name": name, **body} for name, body in jobs]
    url = f"{connection.endpoint}{experiment}/jobs"
    request = HttpRequest("POST", url, params={"api-version": "2018-05-01"}, json={"jobs": bodies})
    response = connection.resources._client.send_request(request)
    response.raise_for_status()
