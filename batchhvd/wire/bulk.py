"""Thousands of jobs: created many with one request, where the service knows how, and listed as plain JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from batchhvd.wire.facts.documents import Body, Document

if TYPE_CHECKING:
    from batchhvd.wire.connection import Connection

SLICE = 200
"""Jobs of one request: few enough that the service answers others in between."""

PAGE = 1000
"""Jobs of one page, the most that the published description allows."""

_VERSION = {"api-version": "2018-05-01"}
_BYTES = 2 << 20  # of one request; the service takes twice as many


def create_jobs(connection: Connection, experiment: str, jobs: Iterable[tuple[str, Body]]) -> None:
    """Creates jobs of an experiment; those that are there already and are the same stay.

    The next ones are taken from ``jobs`` while the service works on those before.

    Args:
        connection: the way to a service of this package.
        experiment: the experiment's id.
        jobs: names and bodies.
    """
    url = f"{connection.endpoint}{experiment}/jobs"
    with ThreadPoolExecutor(1, "batchhvd jobs") as pool:
        sent: Future[None] | None = None
        for body in _requests(jobs):
            if sent is not None:
                sent.result()
            sent = pool.submit(_send, connection, url, body)
        if sent is not None:
            sent.result()


def list_jobs(connection: Connection, experiment: str) -> Iterator[Document]:
    """Yields all jobs of an experiment as the wire has them; the Azure package's models would take ten times as long.

    Args:
        connection: the way to a service.
        experiment: the experiment's id.
    """
    from azure.core.rest import HttpRequest

    url = f"{connection.endpoint}{experiment}/jobs?{urlencode({**_VERSION, 'maxresults': PAGE})}"
    while url:
        response = connection.resources._client.send_request(HttpRequest("GET", url))
        response.raise_for_status()
        page = response.json()
        yield from page.get("value") or ()
        url = str(page.get("nextLink") or "")


def _requests(jobs: Iterable[tuple[str, Body]]) -> Iterator[str]:
    """Yields the body of each request; one job alone may be larger than the service takes, which then says so."""
    entries: list[str] = []
    size = 0
    for name, body in jobs:
        entry = json.dumps({"name": name, **body})
        if entries and (len(entries) == SLICE or size + len(entry) > _BYTES):
            yield _joined(entries)
            entries, size = [], 0
        entries.append(entry)
        size += len(entry)
    if entries:
        yield _joined(entries)


def _joined(entries: Sequence[str]) -> str:
    return f'{{"jobs": [{", ".join(entries)}]}}'


def _send(connection: Connection, url: str, body: str) -> None:
    from azure.core.rest import HttpRequest

    request = HttpRequest("POST", url, params=_VERSION, content=body, headers={"Content-Type": "application/json"})
    response = connection.resources._client.send_request(request)
    response.raise_for_status()
