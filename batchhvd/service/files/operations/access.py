"""Operations on who may do what: a share's stored access policies, and the permissions that its files can have."""

from __future__ import annotations

import json

from batchhvd.service.files.operations.share import checked
from batchhvd.service.files.operations.smb import keep, known_key
from batchhvd.service.files.protocol import descriptor, permission
from batchhvd.service.storage.disk.disk import Disk
from batchhvd.service.storage.protocol import sas, stored_policies
from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.request import Request
from batchhvd.service.storage.protocol.response import Response, xml_response
from batchhvd.service.storage.shown_headers import written
from batchhvd.service.storage.whole import note_share, share_facts


def get_policies(disk: Disk, request: Request) -> Response:
    """Returns a share's stored access policies."""
    about, facts = checked(disk, request)
    return xml_response(stored_policies.document(facts.get("policies", [])), written(about, facts))


def set_policies(disk: Disk, request: Request) -> Response:
    """Replaces a share's stored access policies; without a body there are none."""
    found = stored_policies.read(request.body, sas.LETTERS)
    with disk.noting():
        about, facts = checked(disk, request)
        return Response(200, note_share(disk, request, about, {**facts, "policies": found}))


def create_permission(disk: Disk, request: Request) -> Response:
    """Keeps a permission with a share and returns its key."""
    share_facts(disk, request.target)
    try:
        body = json.loads(b"".join(request.body))
    except (ValueError, RecursionError):
        body = None
    text = body.get("permission") if isinstance(body, dict) else None
    if not isinstance(text, str):
        raise refusal("InvalidInput", 'The body must be JSON: {"permission": "O:…G:…D:…"}.')
    form = body.get("format") or "sddl"
    if form not in ("sddl", "binary", "Sddl", "Binary"):
        raise refusal("InvalidInput", "The permission's format must be sddl or binary.")
    return Response(201, {"x-ms-file-permission-key": keep(disk, request, text, form)})


def get_permission(disk: Disk, request: Request) -> Response:
    """Returns a permission of a share by its key."""
    share_facts(disk, request.target)
    key = known_key(disk, request, request.required("x-ms-file-permission-key"))
    text = disk.sidecar.permission(disk.key(request.target), key) or permission.DEFAULT
    form = request.header("x-ms-file-permission-format", "sddl").lower()
    if form == "binary":
        text = descriptor.to_binary(text)
    body = json.dumps({"permission": text, "format": form}).encode()
    return Response(200, {"content-type": "application/json"}, body)
