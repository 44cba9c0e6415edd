"""The way into a node of a running job or of a cluster, for programs on the service's machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchhvd.errors import ConflictError, NotFoundError, SpecError
from batchhvd.wire import local_service

if TYPE_CHECKING:
    from batchhvd.wire.connection import Connection
    from batchhvd.wire.facts.documents import Body


def entrance(connection: Connection, kind: str, id: str, node: int, *, terminal: bool, name: str) -> list[str]:
    """Returns the words before a command line with which it runs in a node.

    Args:
        connection: the way to the service.
        kind: ``"job"`` or ``"cluster"``.
        id: the id of the job or cluster.
        node: the node's number in it, from 0.
        terminal: whether the command's input and output are a terminal.
        name: the name of the job or cluster, for messages.

    Raises:
        SpecError: the service is not one of this machine and user, so the words would mean nothing here.
        ConflictError: the job does not run, or the cluster's node cannot be entered now.
        NotFoundError: there is no such node.
        BadRequestError: the nodes of the engine cannot be entered.
    """
    if not connection.root or local_service.find(connection.root) is None:
        raise SpecError(
            f"nodes of {kind} {name!r} can be entered on the machine of its local service only",
            remedy="log in there, and use that service's root",
        )
    try:
        with connection.translating(f"node {node} of {kind} {name!r} cannot be entered"):
            return _words(connection, kind, {kind: id, "node": node, "terminal": terminal})
    except ConflictError as error:
        if error.code == "JobNotRunning":
            error.told(f"{error}. `batchhvd job logs {name}` shows its output")
        raise
    except NotFoundError as error:
        if error.code == "ResourceNotFound":
            error.told(f"{error}. `batchhvd {kind} list` lists what there is")
        raise


def _words(connection: Connection, kind: str, body: Body) -> list[str]:
    from azure.core.rest import HttpRequest

    request = HttpRequest("POST", f"{connection.endpoint}/{kind}.entrance", json=body)
    response = connection.resources._client.send_request(request)
    response.raise_for_status()
    return [str(word) for word in response.json()["words"]]
