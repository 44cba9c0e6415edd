"""Operations on who may do what: a share's stored access policies, and the permissions that its files can have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from xml.etree.ElementTree import Element

from batchhvd.service.files.operations.properties import written
from batchhvd.service.files.operations.share import checked, note_share, share_facts
from batchhvd.service.files.operations.smb import keep, known_key
from batchhvd.service.files.protocol import descriptor, permission
from batchhvd.service.storage.disk.disk import Disk
from batchhvd.service.storage.protocol import sas, xml
from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.request import Request, Target
from batchhvd.service.storage.protocol.response import Response, xml_response

_MOST = 5  # policies of a share, as in Azure
_FIELDS = {"Start": "start", "Expiry": "expiry", "Permission": "permission"}


def get_policies(disk: Disk, request: Request) -> Response:
    """Returns a share's stored access policies."""
    about, facts = checked(disk, request)
    root = Element("SignedIdentifiers")
    for policy in facts.get("policies", []):
        fields = {name: policy[key] for name, key in _FIELDS.items() if policy.get(key)}
        xml.add_all(xml.add(root, "SignedIdentifier"), {"Id": policy["id"], "AccessPolicy": fields})
    return xml_response(xml.document(root), written(about, facts))


def set_policies(disk: Disk, request: Request) -> Response:
    """Replaces a share's stored access policies; without a body there are none."""
    found = [_policy(each) for each in xml.read(request.body, "SignedIdentifiers")] if request.size else []
    if len(found) > _MOST or len({policy["id"] for policy in found}) < len(found):
        raise refusal("InvalidXmlDocument", f"A share has at most {_MOST} policies, each with an id of its own.")
    with disk.noting():
        about, facts = checked(disk, request)
        return Response(200, note_share(disk, request, about, {**facts, "policies": found}))


def policies(disk: Disk, target: Target) -> Mapping[str, Mapping[str, str]]:
    """Returns a share's stored access policies by id."""
    _, facts = share_facts(disk, Target(target.account, target.share))
    return {policy["id"]: policy for policy in facts.get("policies", [])}


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


def _policy(element: Element) -> dict[str, str]:
    found = {"id": element.findtext("Id") or ""}
    if not 1 <= len(found["id"]) <= 64:
        raise refusal("InvalidXmlDocument", "A policy's Id must have 1 to 64 characters.")
    for name, key in _FIELDS.items():
        text = element.findtext(f"AccessPolicy/{name}") or ""
        if text:
            _check(name, text)
            found[key] = text
    return found


def _check(name: str, text: str) -> None:
    if name == "Permission" and not set(text) <= set(sas.LETTERS):
        raise refusal("InvalidXmlDocument", f"A policy's permission has letters of {sas.LETTERS}, not {text[:20]!r}.")
    if name != "Permission" and not sas.is_time(text):
        raise refusal("InvalidXmlDocument", f"A policy's {name} must be a time in ISO 8601, UTC, not {text[:40]!r}.")
