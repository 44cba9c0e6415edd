"""What all kinds of Batch AI's resources have in common: how they are found, shown, listed and deleted."""

from __future__ import annotations

from collections.abc import Mapping

from batchhvd.errors import ConflictError, NotFoundError
from batchhvd.service.arm import operations
from batchhvd.service.arm.groups import group, mark_deleting, open_group
from batchhvd.service.http import paging
from batchhvd.service.http.conditions import tagged
from batchhvd.service.http.exchange import Answer, Ask, Here
from batchhvd.service.store.records import Document, Record
from batchhvd.wire.facts.identity import SUBSCRIPTION
from batchhvd.wire.facts.states import ProvisioningState

_KINDS = {
    "workspaces": "workspaceName",
    "experiments": "experimentName",
    "clusters": "clusterName",
    "fileServers": "fileServerName",
    "jobs": "jobName",
}


# Source: the recordings of azure-mgmt-batchai's tests; the published examples have older names.
_TYPES = {
    "workspaces": "Microsoft.BatchAI/workspaces",
    "experiments": "Microsoft.BatchAI/workspaces/experiments",
    "jobs": "Microsoft.BatchAI/workspaces/experiments/jobs",
    "clusters": "Microsoft.BatchAI/workspaces/clusters",
    "fileServers": "Microsoft.BatchAI/workspaces/fileservers",
}

_SEGMENTS = {"fileServers": "fileservers"}  # in an id, as the recordings show it


def find(here: Here, parent: Record, type: str, name: str) -> Record | None:
    """Returns a resource by its name in its parent, or None."""
    return here.store.get(child_id(parent, type, name))


def child_id(parent: Record, type: str, name: str) -> str:
    """Returns the id that a resource of this name has in its parent."""
    provider = "/providers/Microsoft.BatchAI" if type == "workspaces" else ""
    return f"{parent.id}{provider}/{_SEGMENTS.get(type, type)}/{name}"


def parent_of(here: Here, ask: Ask, type: str) -> Record:
    """Returns the resource that holds resources of a type, along the path of a request.

    Raises:
        NotFoundError: it, or a resource above it, does not exist.
    """
    return _above(here, ask, type)[-1]


def _above(here: Here, ask: Ask, type: str) -> list[Record]:
    """Returns the resources that hold those of a type, along the path of a request, the outermost first."""
    if type == "workspaces":
        return [group(here, ask.names["resourceGroupName"])]
    above = "experiments" if type == "jobs" else "workspaces"
    outer = _above(here, ask, above)
    found = find(here, outer[-1], above, ask.names[_KINDS[above]])
    return [*outer, existing(found, above, ask, "ParentResourceNotFound")]


def named(here: Here, ask: Ask, type: str) -> Record:
    """Returns the resource that a request's path names.

    Raises:
        NotFoundError: it, or a resource above it, does not exist.
    """
    found = here.store.get(_id(ask, type))
    if found is not None:
        return found
    parent = parent_of(here, ask, type)
    return existing(find(here, parent, type, ask.names[_KINDS[type]]), type, ask, "ResourceNotFound")


def _id(ask: Ask, type: str) -> str:
    """Returns the id that a path names, whether or not its parents exist."""
    if type == "workspaces":
        group_id = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{ask.names['resourceGroupName']}"
        above = f"{group_id}/providers/Microsoft.BatchAI"
    else:
        above = _id(ask, "experiments" if type == "jobs" else "workspaces")
    return f"{above}/{type}/{ask.names[_KINDS[type]]}"


def existing(record: Record | None, type: str, ask: Ask, code: str) -> Record:
    """Returns the record unless it is None.

    Raises:
        NotFoundError: with the given code and the resource's kind and name.
    """
    if record is None:
        kind, name = type.removesuffix("s"), ask.names[_KINDS[type]]
        if type == "jobs":
            raise NotFoundError(f"The specified job {name} is not found", code="JobNotFound", target=name)
        raise NotFoundError(f"The {kind} '{name}' could not be found.", code=code, target=name)
    return record


def name_of(ask: Ask, type: str) -> str:
    """Returns the name that a request's path gives to a resource of a type."""
    return ask.names[_KINDS[type]]


def open_parent(here: Here, ask: Ask, type: str) -> Record:
    """Returns the parent for a new resource.

    Raises:
        NotFoundError: it does not exist.
        ConflictError: it, or a resource above it, is being deleted: what is in that may not be marked yet.
    """
    _, *inner = _above(here, ask, type)
    for record in reversed(inner):
        alive(record)
    return [open_group(here, ask.names["resourceGroupName"]), *inner][-1]


def alive(record: Record) -> Record:
    """Returns the record if it may still be used.

    Raises:
        ConflictError: it is being deleted.
    """
    if record.document["properties"]["provisioningState"] == ProvisioningState.DELETING:
        raise ConflictError(f"{record.id} is being deleted; try again when it is gone.", code="ResourceBeingDeleted")
    return record


def fresh(here: Here, parent: Record, type: str, name: str, properties: Mapping[str, object]) -> Document:
    """Returns the document of a new resource that is provisioned at once."""
    time = here.time()
    state = ProvisioningState.SUCCEEDED
    states = {"creationTime": time, "provisioningState": state, "provisioningStateTransitionTime": time}
    return {
        "id": child_id(parent, type, name),
        "name": name,
        "type": _TYPES[type],
        "properties": {**properties, **states},
    }


def get(type: str, here: Here, ask: Ask) -> Answer:
    """Shows a resource; its document goes out as it is stored, because this is what clients ask for most."""
    text = here.store.document(_id(ask, type))
    return tagged(named(here, ask, type).document if text is None else text)


def list_children(type: str, here: Here, ask: Ask) -> Answer:
    """Lists the resources of a type in their parent."""
    parent = parent_of(here, ask, type).id
    return paging.stored(ask, lambda after, most: here.store.documents(type, parent, after=after, most=most))


def delete(type: str, here: Here, ask: Ask) -> Answer:
    """Asks for the deletion of a resource with all below it; answers 204 when it does not exist."""
    record = find(here, parent_of(here, ask, type), type, name_of(ask, type))
    if record is None:
        return Answer(204)
    mark_deleting(here, record)
    return operations.begin(here, ask, "delete", record)
