"""Operations on containers."""

from __future__ import annotations

from batchhvd.service.blobs.call import BlobCall
from batchhvd.service.storage.condition import check_conditions
from batchhvd.service.storage.disk.sidecar import Facts
from batchhvd.service.storage.protocol import stored_policies
from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.response import Response, xml_response
from batchhvd.service.storage.shown_headers import metadata, written
from batchhvd.service.storage.whole import note_share, share_facts

LETTERS = "rcwdl"
_LEASE = {"x-ms-lease-status": "unlocked", "x-ms-lease-state": "available"}
_TOLD = {
    **_LEASE,
    "x-ms-has-immutability-policy": "false",
    "x-ms-has-legal-hold": "false",
    "x-ms-immutable-storage-with-versioning-enabled": "false",
    "x-ms-default-encryption-scope": "$account-encryption-key",
    "x-ms-deny-encryption-scope-override": "false",
}


def create(call: BlobCall) -> Response:
    """Creates a container."""
    facts = Facts(metadata=call.request.metadata())
    call.container.parent.mkdir(parents=True, exist_ok=True)
    try:
        call.container.mkdir()
    except FileExistsError:
        raise refusal("ContainerAlreadyExists") from None
    about = call.container.stat()
    call.disk.note(call.request.target, "", about, facts)
    return Response(201, written(about))


def properties(call: BlobCall) -> Response:
    """Returns a container's properties and metadata."""
    about, facts = share_facts(call.disk, call.request.target)
    return Response(200, {**written(about, facts), **metadata(facts), **_TOLD})


def read_metadata(call: BlobCall) -> Response:
    """Returns a container's metadata."""
    about, facts = share_facts(call.disk, call.request.target)
    return Response(200, {**written(about, facts), **metadata(facts)})


def set_metadata(call: BlobCall) -> Response:
    """Replaces a container's metadata."""
    return _noted(call, Facts(metadata=call.request.metadata()))


def get_policies(call: BlobCall) -> Response:
    """Returns a container's stored access policies."""
    about, facts = share_facts(call.disk, call.request.target)
    return xml_response(stored_policies.document(facts.get("policies", [])), written(about, facts))


def set_policies(call: BlobCall) -> Response:
    """Replaces a container's stored access policies."""
    call.request.check_body()
    return _noted(call, Facts(policies=stored_policies.read(call.request.body, LETTERS)))


def delete(call: BlobCall) -> Response:
    """Deletes a container with all that is in it."""
    target = call.request.target
    about, facts = share_facts(call.disk, target)
    if not check_conditions(call.request, about, facts):
        raise refusal("ConditionNotMet")
    call.disk.remove(call.container, call.disk.key(target))
    call.blocks.forget_all(target.account, target.share)
    return Response(202)


def account(call: BlobCall) -> Response:
    """Returns what kind of account it is."""
    told = {"x-ms-sku-name": "Standard_LRS", "x-ms-account-kind": "StorageV2", "x-ms-is-hns-enabled": "false"}
    return Response(200, told)


def _noted(call: BlobCall, new: Facts) -> Response:
    with call.disk.noting():
        about, facts = share_facts(call.disk, call.request.target)
        if not check_conditions(call.request, about, facts):
            raise refusal("ConditionNotMet")
        return Response(200, note_share(call.disk, call.request, about, {**facts, **new}))
