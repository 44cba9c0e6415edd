"""An account's file service through Resource Manager: for how many days deleted shares are kept."""

from __future__ import annotations

from batchhvd.errors import BadRequestError, NotFoundError, ServiceError
from batchhvd.service.arm.groups import read
from batchhvd.service.arm.storage_accounts import ACCOUNTS, account
from batchhvd.service.description.reader import Schema
from batchhvd.service.http.exchange import Answer, Ask, Handler, Here
from batchhvd.service.store.accounts import KEPT_DAYS
from batchhvd.service.store.records import Document, Record

_POLICY: Schema = {
    "required": ["enabled"],
    "properties": {"enabled": {}, "days": {"type": "integer", "minimum": 1, "maximum": 365}},
}
_SET: Schema = {
    "properties": {
        "properties": {
            "properties": {"shareDeleteRetentionPolicy": _POLICY, "cors": {}, "protocolSettings": {}},
        },
    },
}
_NO_RULES: tuple[object, ...] = (None, {}, {"corsRules": None}, {"corsRules": []})
_AT = "/properties/shareDeleteRetentionPolicy"


def get_service(here: Here, ask: Ask) -> Answer:
    """Shows the file service of an account; its only name is ``default``."""
    return Answer(200, _shown(_service(here, ask)))


def list_services(here: Here, ask: Ask) -> Answer:
    """Lists the file services of an account: there is one."""
    return Answer(200, {"value": [_shown(account(here, ask))]})


def put_service(here: Here, ask: Ask) -> Answer:
    """Sets for how many days the account's deleted shares can be restored."""
    record = _service(here, ask)
    said = read(_SET, ask.body).get("properties", {})
    _refuse_others(said)
    days = _days(said.get("shareDeleteRetentionPolicy"), int(record.private.get(KEPT_DAYS, 0)))
    changed = here.store.update(record.id, lambda document, private: private.update({KEPT_DAYS: days}))
    return Answer(200, _shown(changed or record))


def _service(here: Here, ask: Ask) -> Record:
    record = account(here, ask)
    if ask.names["service"].lower() != "default":
        raise NotFoundError(f"The file service '{ask.names['service']}' was not found; there is 'default' only.")
    return record


def _refuse_others(said: Document) -> None:
    if said.get("cors") not in _NO_RULES:
        text = "CORS rules are set at the file service itself (az storage cors), not through Resource Manager."
        raise ServiceError(text, status=501, code="NotImplemented", target="/properties/cors")
    if said.get("protocolSettings"):
        text = "SMB settings are set at the file service itself, not through Resource Manager."
        raise ServiceError(text, status=501, code="NotImplemented", target="/properties/protocolSettings")


def _days(policy: Document | None, before: int) -> int:
    if policy is None:
        return before
    if not isinstance(policy["enabled"], bool):
        raise BadRequestError(f"{_AT}/enabled must be true or false.", code="InvalidField", target=f"{_AT}/enabled")
    if policy["enabled"] and "days" not in policy:
        raise BadRequestError(f"{_AT}/days is missing.", code="InvalidField", target=f"{_AT}/days")
    return int(policy["days"]) if policy["enabled"] else 0


def _shown(record: Record) -> Document:
    days = int(record.private.get(KEPT_DAYS, 0))
    policy = {"enabled": True, "days": days} if days else {"enabled": False}
    return {
        "id": f"{record.id}/fileServices/default",
        "name": "default",
        "type": "Microsoft.Storage/storageAccounts/fileServices",
        "sku": record.document["sku"],
        "properties": {"cors": {"corsRules": []}, "shareDeleteRetentionPolicy": policy},
    }


_SERVICES = ACCOUNTS + "/{account}/fileServices"
ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("GET", _SERVICES, list_services),
    ("GET", _SERVICES + "/{service}", get_service),
    ("PUT", _SERVICES + "/{service}", put_service),
)
