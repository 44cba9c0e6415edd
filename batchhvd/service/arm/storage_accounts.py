"""Storage accounts: created, listed and deleted here; the file service serves what they hold."""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Iterator

from batchhvd.errors import BadRequestError, ConflictError, NotFoundError
from batchhvd.service.arm.groups import group, open_group, read
from batchhvd.service.description.reader import Problem, Schema, refuse
from batchhvd.service.http import paging
from batchhvd.service.http.exchange import Answer, Ask, Handler, Here
from batchhvd.service.store import trash
from batchhvd.service.store.accounts import find, folders, job_with_key
from batchhvd.service.store.records import Document, Record, merged
from batchhvd.wire.facts.account_kinds import FILE_SKUS, FILE_STORAGE
from batchhvd.wire.facts.hosts import ACCOUNT_NAME, BLOB_DOMAIN, FILE_DOMAIN

_TAGS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
_SKU: Schema = {"required": ["name"], "properties": {"name": {"type": "string"}}}
CREATE: Schema = {
    "required": ["sku", "kind", "location"],
    "properties": {
        "sku": _SKU,
        "kind": {"type": "string"},
        "location": {"type": "string"},
        "tags": _TAGS,
        "properties": {"type": "object", "additionalProperties": {}},
    },
}
_ANY_OBJECT: Schema = {"type": "object", "additionalProperties": {}}
_SETTINGS: Schema = {
    **_ANY_OBJECT,
    "properties": dict.fromkeys(("encryption", "networkAcls", "customDomain"), _ANY_OBJECT),
}
UPDATE: Schema = {
    "properties": {"sku": _SKU, "tags": _TAGS, "properties": _SETTINGS, "identity": _ANY_OBJECT},
}
# az storage account update sends back what it was shown. What a disk encrypts is the machine's matter.
_SOURCE = "Microsoft.Storage"
_ENCRYPTION: Document = {"keySource": _SOURCE, "services": {"blob": {"enabled": True}, "file": {"enabled": True}}}
_NAMED: Schema = {"required": ["name"], "properties": {"name": {"type": "string"}, "type": {"type": "string"}}}
_KEY: Schema = {
    "required": ["keyName"],
    "properties": {"keyName": {"type": "string", "enum": ["key1", "key2", "kerb1", "kerb2"]}},
}
# Source: Azure's rule for account names; the reserved ones are first segments of other paths.
_NAME = re.compile(ACCOUNT_NAME)
_RESERVED = frozenset({"subscriptions", "providers", "metadata", "tenants", "adfs", "common", "organizations"})


def put_account(here: Here, ask: Ask) -> Answer:
    """Creates an account; one that exists in the group gets the tags, and must be of the kind that is asked for."""
    parent = open_group(here, ask.names["group"])
    body, name = read(CREATE, ask.body), ask.names["account"]
    if not valid(name):
        raise BadRequestError(f"{_naming(name)}.", code="AccountNameInvalid", target="accountName")
    refuse(list(_sku_problems(body["kind"], body["sku"]["name"])))
    old = find(here.store, name)
    if old is not None and old.parent != parent.id.lower():
        raise ConflictError(f"{_taken(name)}.", code="StorageAccountAlreadyTaken")
    if old is not None:
        refuse(list(_other_kind(old, body)))
        changed = here.store.update(old.id, lambda document, private: document.update(tags=body.get("tags", {})))
        return Answer(200, shown(here, changed or old, ask))
    _forget(here, name)
    record = here.store.put(
        f"{parent.id}/providers/Microsoft.Storage/storageAccounts/{name}",
        "storageAccounts",
        parent.id,
        _document(here, parent, name, body),
        {"keys": [_new_key("key1"), _new_key("key2")]},
    )
    return Answer(200, shown(here, record, ask))


def _document(here: Here, parent: Record, name: str, body: Document) -> Document:
    time = here.time()
    return {
        "id": f"{parent.id}/providers/Microsoft.Storage/storageAccounts/{name}",
        "name": name,
        "type": "Microsoft.Storage/storageAccounts",
        "location": body["location"],
        "tags": body.get("tags", {}),
        "sku": _sku(body["sku"]["name"]),
        "kind": body["kind"],
        "properties": {
            "provisioningState": "Succeeded",
            "creationTime": time,
            "primaryLocation": body["location"],
            "statusOfPrimary": "available",
            "supportsHttpsTrafficOnly": False,
            "keyCreationTime": {"key1": time, "key2": time},
        },
    }


def patch_account(here: Here, ask: Ask) -> Answer:
    """Changes an account's tags, SKU and access tier; refuses what this service cannot do."""
    record, body = account(here, ask), read(UPDATE, ask.body)
    identity = [Problem("/identity", "is not supported: there is no directory here")] if body.get("identity") else []
    refuse([*identity, *_patch_problems(body.get("properties") or {}), *_change_problems(record, body.get("sku"))])
    told = {"tags": body.get("tags"), "sku": body.get("sku") and _sku(body["sku"]["name"])}
    tier = (body.get("properties") or {}).get("accessTier")

    def change(document: Document, private: Document) -> None:
        document.update({name: value for name, value in told.items() if value is not None})
        document["properties"] = merged(document["properties"], {"accessTier": tier or ""})

    return Answer(200, shown(here, here.store.update(record.id, change) or record, ask))


def _patch_problems(properties: Document) -> Iterator[Problem]:
    """Yields what would make an account safer or other than this service can make it."""
    if properties.get("supportsHttpsTrafficOnly"):
        yield Problem(
            "/properties/supportsHttpsTrafficOnly", "is not supported: this service speaks http on this machine"
        )
    if (properties.get("encryption") or _ENCRYPTION).get("keySource", _SOURCE) != _SOURCE:
        yield Problem("/properties/encryption/keySource", f"must be {_SOURCE}: there is no key vault here")
    if (properties.get("networkAcls") or {}).get("defaultAction", "Allow") != "Allow":
        yield Problem(
            "/properties/networkAcls/defaultAction", "must be Allow: this service listens on this machine alone"
        )
    if (properties.get("customDomain") or {}).get("name"):
        yield Problem("/properties/customDomain", "is not supported: this service has no other names")


def _sku_problems(kind: str, sku: str) -> Iterator[Problem]:
    """Yields what keeps a SKU and a kind of account from going together, as far as shares differ by them."""
    if kind == FILE_STORAGE and sku not in FILE_SKUS:
        yield Problem("/sku/name", f"must be one of {', '.join(FILE_SKUS)} for the kind {FILE_STORAGE}")
    if kind != FILE_STORAGE and "V2_" in sku:
        yield Problem("/kind", f"must be {FILE_STORAGE} for the SKU {sku}")


def _other_kind(record: Record, body: Document) -> Iterator[Problem]:
    """Yields what shares of an existing account would lack of what is asked for."""
    kind = _kind(record)
    if FILE_STORAGE in (kind, body["kind"]) and kind != body["kind"]:
        yield Problem("/kind", f"must be {kind}, as the account exists; create another one for the kind {body['kind']}")
    else:
        yield from _change_problems(record, body["sku"])


def _kind(record: Record) -> str:
    return str(record.document.get("kind") or "StorageV2")  # accounts of early versions have none


def _change_problems(record: Record, wanted: Document | None) -> Iterator[Problem]:
    """Yields what keeps an account from another SKU: what its shares have depends on it, but for the redundancy."""
    if wanted is None:
        return
    yield from _sku_problems(_kind(record), wanted["name"])
    if _kind(record) == FILE_STORAGE and _sku(wanted["name"])["tier"] != record.document["sku"]["tier"]:
        yield Problem("/sku/name", f"must keep {record.document['sku']['tier']}; create another account")


def _sku(name: str) -> Document:
    return {"name": name, "tier": name.partition("_")[0]}


def _new_key(name: str) -> dict[str, str]:
    return {"keyName": name, "value": base64.b64encode(secrets.token_bytes(64)).decode(), "permissions": "FULL"}


def shown(here: Here, record: Record, ask: Ask) -> Document:
    """Returns an account's document with the endpoints for files and blobs that this client can reach."""
    name = record.document["name"]
    if "://management." in ask.base:
        endpoints = {"file": f"https://{name}.{FILE_DOMAIN}/", "blob": f"https://{name}.{BLOB_DOMAIN}/"}
    else:
        endpoints = {"file": f"{ask.base}/{name}/"} | ({"blob": f"{here.blobs[1]}/{name}/"} if here.blobs else {})
    properties = {"encryption": _ENCRYPTION, **record.document["properties"], "primaryEndpoints": endpoints}
    return {**record.document, "properties": properties}


def valid(name: str) -> bool:
    """Says whether an account may have this name."""
    return _NAME.fullmatch(name) is not None and name not in _RESERVED


def _naming(name: str) -> str:
    rule = "use 3 to 24 lower-case letters and digits, not a reserved word"
    return f"'{name}' is not a valid name for a storage account: {rule}"


def _taken(name: str) -> str:
    return f"The storage account '{name}' exists already, in another resource group"


def account(here: Here, ask: Ask) -> Record:
    """Returns the account named in a path.

    Raises:
        NotFoundError: the group or the account does not exist.
    """
    parent = group(here, ask.names["group"])
    record = here.store.get(f"{parent.id}/providers/Microsoft.Storage/storageAccounts/{ask.names['account']}")
    if record is None:
        raise NotFoundError(
            f"The storage account '{ask.names['account']}' was not found in the group '{parent.document['name']}'.",
        )
    return record


def get_account(here: Here, ask: Ask) -> Answer:
    """Shows an account."""
    return Answer(200, shown(here, account(here, ask), ask))


def list_accounts(here: Here, ask: Ask) -> Answer:
    """Lists the accounts of a group, or all."""
    parent = group(here, ask.names["group"]).id if "group" in ask.names else None
    return paging.records(ask, here.fetch("storageAccounts", parent), lambda record: shown(here, record, ask))


def delete_account(here: Here, ask: Ask) -> Answer:
    """Deletes an account with its shares, at once; answers 204 if it does not exist."""
    group(here, ask.names["group"])
    try:
        record = account(here, ask)
    except NotFoundError:
        return Answer(204)
    _refuse_in_use(here, record)
    here.store.delete(record.id)
    for folder in folders(here.root, record.document["name"]):
        trash.discard(here.root, folder)
    _forget(here, record.document["name"])
    return Answer(200)


def _forget(here: Here, name: str) -> None:
    """Deletes what is kept beside an account's shares and containers."""
    here.files.forget(name)
    if here.blobs:
        here.blobs[0].forget(name)


def _refuse_in_use(here: Here, record: Record) -> None:
    name = str(record.document["name"])
    job = job_with_key(here.store, name)
    if job is not None:
        text = f"The storage account '{name}' is mounted by the job {job}; end it first."
        raise ConflictError(text, code="StorageAccountInUse")


def list_keys(here: Here, ask: Ask) -> Answer:
    """Lists an account's keys."""
    return Answer(200, {"keys": account(here, ask).private["keys"]})


def regenerate_key(here: Here, ask: Ask) -> Answer:
    """Replaces one key; requests signed with the old one are refused from now on."""
    record, name = account(here, ask), read(_KEY, ask.body)["keyName"]
    if name.startswith("kerb"):
        raise BadRequestError(
            "Kerberos keys are not supported; regenerate key1 or key2.", code="NotSupported", target="/keyName"
        )

    def change(document: Document, private: Document) -> None:
        private["keys"] = [_new_key(name) if key["keyName"] == name else key for key in private["keys"]]
        document["properties"]["keyCreationTime"][name] = here.time()

    changed = here.store.update(record.id, change)
    return Answer(200, {"keys": (changed or record).private["keys"]})


def check_name(here: Here, ask: Ask) -> Answer:
    """Says whether an account name may be used."""
    name = read(_NAMED, ask.body)["name"]
    if not valid(name):
        return Answer(200, {"nameAvailable": False, "reason": "AccountNameInvalid", "message": _naming(name) + "."})
    if find(here.store, name) is not None:
        message = f"The storage account '{name}' exists already."
        return Answer(200, {"nameAvailable": False, "reason": "AlreadyExists", "message": message})
    return Answer(200, {"nameAvailable": True})


ACCOUNTS = "/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Storage/storageAccounts"
"""The path of the storage accounts of a group."""

_ALL = "/subscriptions/{subscription}/providers/Microsoft.Storage"
ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("GET", _ALL + "/storageAccounts", list_accounts),
    ("POST", _ALL + "/checkNameAvailability", check_name),
    ("GET", ACCOUNTS, list_accounts),
    ("PUT", ACCOUNTS + "/{account}", put_account),
    ("PATCH", ACCOUNTS + "/{account}", patch_account),
    ("GET", ACCOUNTS + "/{account}", get_account),
    ("DELETE", ACCOUNTS + "/{account}", delete_account),
    ("POST", ACCOUNTS + "/{account}/listKeys", list_keys),
    ("POST", ACCOUNTS + "/{account}/regenerateKey", regenerate_key),
)
