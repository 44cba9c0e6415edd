"""The parts of Resource Manager that users of Batch AI need: subscriptions, providers, resource groups, resources."""

from __future__ import annotations

from typing import Any

from batchhvd.errors import ConflictError, NotFoundError
from batchhvd.service.arm import operations
from batchhvd.service.arm.filtering import narrowed
from batchhvd.service.description.reader import Reader, Schema, refuse
from batchhvd.service.http import paging
from batchhvd.service.http.exchange import Answer, Ask, Handler, Here
from batchhvd.service.store import doomed
from batchhvd.service.store.records import Document, Record
from batchhvd.wire.facts.identity import SUBSCRIPTION, TENANT

_TAGS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
GROUP: Schema = {"required": ["location"], "properties": {"location": {"type": "string"}, "tags": _TAGS}}
GROUP_UPDATE: Schema = {"properties": {"tags": _TAGS}}
# A name that ends in a dot could be ".." and lead out of a directory.
# Source: Azure's naming rules for resource groups.
GROUP_NAME: Schema = {"type": "string", "pattern": r"^[-\w._()]*[-\w_()]$", "minLength": 1, "maxLength": 90}
_PROVIDERS = {
    "Microsoft.BatchAI": ("workspaces", "workspaces/experiments", "workspaces/clusters", "workspaces/fileServers"),
    "Microsoft.Batch": (),  # every recipe of Batch AI registers it, and none uses it
    "Microsoft.Storage": ("storageAccounts",),
    "Microsoft.Resources": ("resourceGroups",),
}


def read(schema: Schema, body: object) -> Any:
    """Returns a body read by a schema.

    Raises:
        BadRequestError: 400, with the JSON pointer of the first wrong field.
    """
    reader = Reader(lambda part: part)
    value = reader.read(schema, {} if body is None else body)
    refuse(reader.problems)
    return value


def group(here: Here, name: str) -> Record:
    """Returns a resource group.

    Raises:
        NotFoundError: there is no group of this name.
    """
    record = here.store.get(f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{name}")
    if record is None:
        raise NotFoundError(
            f"Resource group '{name}' could not be found; create it first.", code="ResourceGroupNotFound"
        )
    return record


def open_group(here: Here, name: str) -> Record:
    """Returns a resource group that takes new resources.

    Raises:
        NotFoundError: there is no group of this name.
        ConflictError: it is being deleted.
    """
    record = group(here, name)
    if record.document["properties"]["provisioningState"] == "Deleting":
        raise ConflictError(
            f"Resource group '{name}' is being deleted; try again once it is deleted.",
            code="ResourceGroupBeingDeleted",
        )
    return record


def mark_deleting(here: Here, target: Record) -> None:
    """Marks a resource for deletion, and the first ones of those below it; the scheduler marks the rest, and removes.

    Nothing new is made in it from now on, because a new resource looks at everything above it.
    """
    found = doomed.below(here.store, target.id.lower())
    keys = [record.key for record in found if not record.marked]
    doomed.mark(here.store, [target.id.lower(), *keys], here.time())


def put_group(here: Here, ask: Ask) -> Answer:
    """Creates a group or replaces its tags."""
    read({"properties": {"name": GROUP_NAME}}, {"name": ask.names["group"]})
    body = read(GROUP, ask.body)
    id = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{ask.names['group']}"
    old = here.store.get(id)
    if old is not None:
        return _replace_group(here, open_group(here, ask.names["group"]), body)
    document = {
        "id": id,
        "name": ask.names["group"],
        "type": "Microsoft.Resources/resourceGroups",
        "location": body["location"],
        "tags": body.get("tags", {}),
        "properties": {"provisioningState": "Succeeded"},
    }
    here.store.put(id, "groups", "", document)
    return Answer(201, document)


def _replace_group(here: Here, old: Record, body: Document) -> Answer:
    if _location(old.document["location"]) != _location(body["location"]):
        raise ConflictError(
            f"Resource group '{old.document['name']}' exists already, in location '{old.document['location']}'.",
            code="InvalidResourceGroupLocation",
            target="/location",
        )
    return _tag(here, old, body.get("tags", {}))


def _location(text: str) -> str:
    return text.replace(" ", "").lower()


def _tag(here: Here, old: Record, tags: dict[str, str]) -> Answer:
    record = here.store.update(old.id, lambda document, private: document.update(tags=tags))
    return Answer(200, (record or old).document)


def patch_group(here: Here, ask: Ask) -> Answer:
    """Changes a group's tags."""
    old = open_group(here, ask.names["group"])
    return _tag(here, old, read(GROUP_UPDATE, ask.body).get("tags", old.document["tags"]))


def get_group(here: Here, ask: Ask) -> Answer:
    """Shows a group."""
    return Answer(200, group(here, ask.names["group"]).document)


def head_group(here: Here, ask: Ask) -> Answer:
    """Says whether a group exists."""
    group(here, ask.names["group"])
    return Answer(204)


def list_groups(here: Here, ask: Ask) -> Answer:
    """Lists the groups."""
    return paging.records(ask, narrowed(ask, here.fetch("groups")))


def delete_group(here: Here, ask: Ask) -> Answer:
    """Deletes a group with everything in it: jobs end first."""
    record = group(here, ask.names["group"])
    mark_deleting(here, record)
    return operations.begin(here, ask, "delete", record)


def list_resources(here: Here, ask: Ask) -> Answer:
    """Lists what a group, or the subscription, holds: workspaces and storage accounts."""
    parent = group(here, ask.names["group"]).id if "group" in ask.names else None
    kinds, shown = ("workspaces", "storageAccounts"), ("id", "name", "type", "location", "tags")

    def fetch(after: int, most: int) -> list[Record]:
        found = [record for kind in kinds for record in here.store.list(kind, parent, after=after, most=most)]
        return sorted(found, key=_by_number)[:most]

    return paging.records(
        ask, narrowed(ask, fetch), lambda r: {name: r.document[name] for name in shown if name in r.document}
    )


def _by_number(record: Record) -> int:
    return record.number


def list_subscriptions(here: Here, ask: Ask) -> Answer:
    """Lists the only subscription."""
    return Answer(200, {"value": [_subscription()]})


def get_subscription(here: Here, ask: Ask) -> Answer:
    """Shows the only subscription."""
    return Answer(200, _subscription())


def list_tenants(here: Here, ask: Ask) -> Answer:
    """Lists the only tenant."""
    return Answer(200, {"value": [{"id": f"/tenants/{TENANT}", "tenantId": TENANT}]})


def list_locations(here: Here, ask: Ask) -> Answer:
    """Lists one location; any other name works as well."""
    id = f"/subscriptions/{SUBSCRIPTION}/locations/local"
    return Answer(200, {"value": [{"id": id, "name": "local", "displayName": "this machine"}]})


def _subscription() -> Document:
    return {
        "id": f"/subscriptions/{SUBSCRIPTION}",
        "subscriptionId": SUBSCRIPTION,
        "tenantId": TENANT,
        "displayName": "batchhvd on this machine",
        "state": "Enabled",
        "authorizationSource": "RoleBased",
        "subscriptionPolicies": {"locationPlacementId": "", "quotaId": "", "spendingLimit": "Off"},
    }


def list_providers(here: Here, ask: Ask) -> Answer:
    """Lists the providers that this service implements, all registered."""
    return Answer(200, {"value": [_provider(name) for name in _PROVIDERS]})


def get_provider(here: Here, ask: Ask) -> Answer:
    """Shows one provider; registering one that is registered changes nothing."""
    for name in _PROVIDERS:
        if name.lower() == ask.names["provider"].lower():
            return Answer(200, _provider(name))
    raise NotFoundError(f"This service has no provider '{ask.names['provider']}'.", code="InvalidResourceNamespace")


def _provider(name: str) -> Document:
    types = [{"resourceType": type, "locations": ["local"], "apiVersions": []} for type in _PROVIDERS[name]]
    id = f"/subscriptions/{SUBSCRIPTION}/providers/{name}"
    return {"id": id, "namespace": name, "registrationState": "Registered", "resourceTypes": types}


_GROUP = "/subscriptions/{subscription}/resourceGroups/{group}"
_PROVIDER = "/subscriptions/{subscription}/providers/{provider}"
_OPERATION = "/subscriptions/{subscription}/providers/{provider}/locations/{location}"
ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "/subscriptions", list_subscriptions),
    ("GET", "/subscriptions/{subscription}", get_subscription),
    ("GET", "/subscriptions/{subscription}/locations", list_locations),
    ("GET", "/tenants", list_tenants),
    ("GET", "/subscriptions/{subscription}/resourceGroups", list_groups),
    ("PUT", _GROUP, put_group),
    ("PATCH", _GROUP, patch_group),
    ("GET", _GROUP, get_group),
    ("HEAD", _GROUP, head_group),
    ("DELETE", _GROUP, delete_group),
    ("GET", _GROUP + "/resources", list_resources),
    ("GET", "/subscriptions/{subscription}/resources", list_resources),
    ("GET", "/subscriptions/{subscription}/providers", list_providers),
    ("GET", _PROVIDER, get_provider),
    ("POST", _PROVIDER + "/register", get_provider),
    ("GET", _OPERATION + "/operationresults/{operation}", operations.status),
    ("GET", _OPERATION + "/operationstatuses/{operation}", operations.result),
    ("GET", _OPERATION + "/operations/{operation}", operations.status),  # by which an older service called it
)
