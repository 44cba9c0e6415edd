"""Workspaces and experiments of Batch AI, what it says about itself, and the table of all its operations."""

from __future__ import annotations

from typing import Any

from batchhvd.errors import ConflictError, NotFoundError
from batchhvd.service.arm import operations
from batchhvd.service.arm.groups import group, mark_deleting, open_group
from batchhvd.service.description.published import Description
from batchhvd.service.http import paging
from batchhvd.service.http.exchange import Answer, Ask, Here
from batchhvd.service.store.records import Record
from batchhvd.wire.facts import vm_sizes
from batchhvd.wire.facts.identity import SUBSCRIPTION

# How many nodes one cluster may ask for.
MOST_NODES = 1000
_KINDS = {
    "workspaces": "workspaceName",
    "experiments": "experimentName",
    "clusters": "clusterName",
    "fileServers": "fileServerName",
    "jobs": "jobName",
}


def find(here: Here, parent: Record, type: str, name: str) -> Record | None:
    """Returns a resource by its name in its parent, or None."""
    return here.store.get(child_id(parent, type, name))


def child_id(parent: Record, type: str, name: str) -> str:
    """Returns the id that a resource of this name has in its parent."""
    provider = "/providers/Microsoft.BatchAI" if type == "workspaces" else ""
    return f"{parent.id}{provider}/{type}/{name}"


def parent_of(here: Here, ask: Ask, type: str) -> Record:
    """Returns the resource that holds resources of a type, along the path of a request.

    Raises:
        NotFoundError: it, or one above it, is not there.
    """
    if type == "workspaces":
        return group(here, ask.names["resourceGroupName"])
    above = "experiments" if type == "jobs" else "workspaces"
    parent = parent_of(here, ask, above)
    return existing(find(here, parent, above, ask.names[_KINDS[above]]), above, ask, "ParentResourceNotFound")


def named(here: Here, ask: Ask, type: str) -> Record:
    """Returns the resource that a request's path names.

    Raises:
        NotFoundError: it, or one above it, is not there.
    """
    found = here.store.get(_id(ask, type))
    if found is not None:
        return found
    parent = parent_of(here, ask, type)
    return existing(find(here, parent, type, ask.names[_KINDS[type]]), type, ask, "ResourceNotFound")


def _id(ask: Ask, type: str) -> str:
    """Returns the id that a path names, without asking whether its parents are there."""
    if type == "workspaces":
        group_id = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{ask.names['resourceGroupName']}"
        above = f"{group_id}/providers/Microsoft.BatchAI"
    else:
        above = _id(ask, "experiments" if type == "jobs" else "workspaces")
    return f"{above}/{type}/{ask.names[_KINDS[type]]}"


def existing(record: Record | None, type: str, ask: Ask, code: str) -> Record:
    """Returns the record, if it is one.

    Raises:
        NotFoundError: with the given code and the resource's kind and name.
    """
    if record is None:
        kind, name = type.removesuffix("s"), ask.names[_KINDS[type]]
        raise NotFoundError(f"The {kind} '{name}' could not be found.", status=404, code=code, target=name)
    return record


def name_of(ask: Ask, type: str) -> str:
    """Returns the name that a request's path gives to a resource of a type."""
    return ask.names[_KINDS[type]]


def open_parent(here: Here, ask: Ask, type: str) -> Record:
    """Returns the parent for a new resource.

    Raises:
        NotFoundError: it is not there.
        ConflictError: it is being deleted.
    """
    parent = parent_of(here, ask, type)
    if parent.type == "groups":
        return open_group(here, ask.names["resourceGroupName"])
    return alive(parent)


def alive(record: Record) -> Record:
    """Returns the record if it may still be used.

    Raises:
        ConflictError: it is being deleted.
    """
    if record.document["properties"]["provisioningState"] == "deleting":
        raise ConflictError(
            f"{record.id} is being deleted; try again when it is gone.", status=409, code="ResourceBeingDeleted"
        )
    return record


def fresh(here: Here, parent: Record, type: str, name: str, properties: dict[str, Any]) -> dict[str, Any]:
    """Returns the document of a new resource that is provisioned at once."""
    time = here.time()
    states = {"creationTime": time, "provisioningState": "succeeded", "provisioningStateTransitionTime": time}
    return {
        "id": child_id(parent, type, name),
        "name": name,
        "type": f"Microsoft.BatchAI/{type[0].upper()}{type[1:]}",
        "properties": {**properties, **states},
    }


def create_workspace(here: Here, ask: Ask) -> Answer:
    """Creates a workspace; again it replaces the tags."""
    parent, name = open_parent(here, ask, "workspaces"), name_of(ask, "workspaces")
    old = find(here, parent, "workspaces", name)
    if old is not None:
        return _replace_workspace(here, alive(old), ask.body)
    tags = {"tags": ask.body["tags"]} if "tags" in ask.body else {}
    document = {**fresh(here, parent, "workspaces", name, {}), "location": ask.body["location"], **tags}
    return Answer(200, here.store.put(document["id"], "workspaces", parent.id, document).document)


def _replace_workspace(here: Here, old: Record, body: dict[str, Any]) -> Answer:
    if old.document["location"].lower() != body["location"].lower():
        raise ConflictError(
            f"The workspace exists already, in location '{old.document['location']}'.",
            status=409,
            code="InvalidResourceLocation",
            target="/location",
        )
    return _tag(here, old, body)


def update_workspace(here: Here, ask: Ask) -> Answer:
    """Replaces a workspace's tags."""
    return _tag(here, alive(named(here, ask, "workspaces")), ask.body)


def _tag(here: Here, old: Record, body: dict[str, Any]) -> Answer:
    if "tags" not in body:
        return Answer(200, old.document)
    changed = here.store.update(old.id, lambda document, private: document.update(tags=body["tags"]))
    return Answer(200, (changed or old).document)


def create_experiment(here: Here, ask: Ask) -> Answer:
    """Creates an experiment, or finds the one that is there."""
    parent, name = open_parent(here, ask, "experiments"), name_of(ask, "experiments")
    old = find(here, parent, "experiments", name)
    if old is not None:
        return Answer(200, alive(old).document)
    document = fresh(here, parent, "experiments", name, {})
    return Answer(200, here.store.put(document["id"], "experiments", parent.id, document).document)


def get(type: str, here: Here, ask: Ask) -> Answer:
    """Shows a resource."""
    return Answer(200, named(here, ask, type).document)


def list_children(type: str, here: Here, ask: Ask) -> Answer:
    """Lists the resources of a type in their parent."""
    return paging.records(ask, here.fetch(type, parent_of(here, ask, type).id))


def list_workspaces(here: Here, ask: Ask) -> Answer:
    """Lists the workspaces of all groups."""
    return paging.records(ask, here.fetch("workspaces"))


def delete(type: str, here: Here, ask: Ask) -> Answer:
    """Writes the wish that a resource, with all below it, goes away; 204 where it is not there."""
    record = find(here, parent_of(here, ask, type), type, name_of(ask, type))
    if record is None:
        return Answer(204)
    mark_deleting(here, record)
    return operations.begin(here, ask, "delete", record)


def list_usages(here: Here, ask: Ask) -> Answer:
    """Says how much of what is in use; there are no quotas, so the limit is the largest number that fits."""
    clusters = [record.document["properties"] for record in here.store.list("clusters")]
    counts = {"Clusters": len(clusters), "Jobs": len(here.store.list("jobs"))}
    for priority, words in (("dedicated", "Dedicated"), ("lowpriority", "Low Priority")):
        cores = sum(
            vm_sizes.size(cluster["vmSize"]).cores * cluster["currentNodeCount"]
            for cluster in clusters
            if cluster["vmPriority"] == priority
        )
        counts[f"Total Cluster {words} Regional vCPUs"] = cores
    return Answer(200, {"value": [_usage(name, count) for name, count in counts.items()]})


def _usage(name: str, count: int) -> dict[str, Any]:
    limit = 2**31 - 1
    return {"unit": "Count", "currentValue": count, "limit": limit, "name": {"value": name, "localizedValue": name}}


def list_operations(description: Description, here: Here, ask: Ask) -> Answer:
    """Lists what Batch AI can do, made from the description."""
    found: dict[str, dict[str, Any]] = {}
    for operation in description.operations:
        entry = _operation(operation.method, operation.template)
        found.setdefault(entry["name"], entry)
    return Answer(200, {"value": [found[name] for name in sorted(found)]})


_VERBS = {"GET": "read", "PUT": "write", "PATCH": "write", "DELETE": "delete", "POST": "action"}


def _operation(method: str, template: str) -> dict[str, Any]:
    parts = [part for part in template.partition("Microsoft.BatchAI/")[2].split("/") if not part.startswith("{")]
    verb, resource = _VERBS[method], parts[-2 if method == "POST" else -1]
    return {
        "name": "/".join(["Microsoft.BatchAI", *parts, verb]),
        "display": {
            "provider": "Batch AI on this machine",
            "resource": resource,
            "operation": parts[-1] if method == "POST" else verb,
            "description": f"{method} {'/'.join(parts)}",
        },
        "origin": "user,system",
        "properties": None,
    }
