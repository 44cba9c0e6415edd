"""Workspaces of Batch AI."""

from __future__ import annotations

from batchhvd.errors import ConflictError
from batchhvd.service.batchai.kinds import alive, find, fresh, name_of, named, open_parent
from batchhvd.service.http import paging
from batchhvd.service.http.conditions import tagged
from batchhvd.service.http.exchange import Answer, Ask, Here
from batchhvd.service.store.records import Document, Record


def create(here: Here, ask: Ask) -> Answer:
    """Creates a workspace; when it exists already, its tags are replaced."""
    parent, name = open_parent(here, ask, "workspaces"), name_of(ask, "workspaces")
    old = find(here, parent, "workspaces", name)
    if old is not None:
        return _replace(here, alive(old), ask.body)
    tags = {"tags": ask.body["tags"]} if "tags" in ask.body else {}
    document = {**fresh(here, parent, "workspaces", name, {}), "location": ask.body["location"], **tags}
    return tagged(here.store.put(document["id"], "workspaces", parent.id, document).document)


def _replace(here: Here, old: Record, body: Document) -> Answer:
    if old.document["location"].lower() != body["location"].lower():
        raise ConflictError(
            f"The workspace exists already, in location '{old.document['location']}'.",
            code="InvalidResourceLocation",
            target="/location",
        )
    return _tag(here, old, body)


def update(here: Here, ask: Ask) -> Answer:
    """Replaces a workspace's tags."""
    return _tag(here, alive(named(here, ask, "workspaces")), ask.body)


def _tag(here: Here, old: Record, body: Document) -> Answer:
    if "tags" not in body:
        return tagged(old.document)
    changed = here.store.update(old.id, lambda document, private: document.update(tags=body["tags"]))
    return tagged((changed or old).document)


def list_all(here: Here, ask: Ask) -> Answer:
    """Lists the workspaces of all groups."""
    return paging.records(ask, here.fetch("workspaces"))
