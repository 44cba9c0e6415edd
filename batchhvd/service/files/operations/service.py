"""Operations on an account: its settings for files, and the rules by which browsers may use it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.etree.ElementTree import Element

from batchhvd.service.storage.disk.disk import Disk
from batchhvd.service.storage.protocol import xml
from batchhvd.service.storage.protocol.cors import CorsRule
from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.request import Request
from batchhvd.service.storage.protocol.response import Response, xml_response

_METRICS = ("HourMetrics", "MinuteMetrics")
_OFF = {"Version": "1.0", "Enabled": "false", "RetentionPolicy": {"Enabled": "false"}}
_MOST_RULES, _MOST_DAYS, _MOST_SECONDS = 5, 365, (1 << 31) - 1
_SMB = {"Multichannel": "Enabled", "EncryptionInTransit": "Required"}


def properties(disk: Disk, request: Request) -> Response:
    """Returns the account's settings for files."""
    kept = disk.account_facts(request.target).get("service", {})
    root = Element("StorageServiceProperties")
    xml.add_all(root, {name: kept.get(name, _OFF) for name in _METRICS})
    cors = xml.add(root, "Cors")
    for rule in kept.get("Cors", []):
        xml.add_all(xml.add(cors, "CorsRule"), rule)
    smb = {name: {word: kept.get("SMB", {}).get(name, "false")} for name, word in _SMB.items()}
    xml.add_all(root, {"ProtocolSettings": {"SMB": smb}})
    return xml_response(xml.document(root))


def set_properties(disk: Disk, request: Request) -> Response:
    """Replaces those of the account's settings that the request brings; the others stay."""
    root = xml.read(request.body, "StorageServiceProperties")
    with disk.noting():
        facts = disk.account_facts(request.target)
        kept = dict(facts.get("service", {}))
        for element in root:
            kept |= _setting(element)
        disk.note_account(request.target, {**facts, "service": kept})
    return Response(202)


def cors_rules(disk: Disk, request: Request) -> list[CorsRule]:
    """Returns the account's rules for browsers."""
    rules = disk.account_facts(request.target).get("service", {}).get("Cors", [])
    return [CorsRule.read(rule) for rule in rules]


def _setting(element: Element) -> dict[str, Any]:
    if element.tag in _METRICS:
        return {element.tag: _metrics(element)}
    if element.tag == "Cors":
        return {"Cors": _cors(element)}
    if element.tag == "ProtocolSettings":
        return {"SMB": _protocol(element)}
    raise refusal("InvalidXmlDocument", f"{element.tag[:60]!r} is not a setting of the file service.")


def _metrics(element: Element) -> dict[str, Any]:
    on = _switch(element, "Enabled")
    found: dict[str, Any] = {"Version": element.findtext("Version") or "1.0", "Enabled": on}
    if element.find("IncludeAPIs") is not None:
        found["IncludeAPIs"] = _switch(element, "IncludeAPIs")
    if on == "true" and "IncludeAPIs" not in found:
        raise refusal("InvalidXmlDocument", f"{element.tag} that is enabled needs IncludeAPIs.")
    policy = element.find("RetentionPolicy")
    if policy is None:
        raise refusal("InvalidXmlDocument", f"{element.tag} needs a RetentionPolicy.")
    kept: dict[str, Any] = {"Enabled": _switch(policy, "Enabled")}
    if kept["Enabled"] == "true":
        kept["Days"] = _number(policy, "Days", 1, _MOST_DAYS)
    return {**found, "RetentionPolicy": kept}


def _cors(element: Element) -> list[dict[str, Any]]:
    rules = list(element)
    if len(rules) > _MOST_RULES:
        raise refusal("InvalidXmlDocument", f"There may be {_MOST_RULES} CORS rules.")
    return [_rule(rule) for rule in rules]


def _rule(element: Element) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("AllowedOrigins", "AllowedMethods", "AllowedHeaders", "ExposedHeaders"):
        if element.find(name) is None:
            raise refusal("InvalidXmlDocument", f"A CORS rule needs {name}.")
        found[name] = (element.findtext(name) or "").strip()
        if not found[name].isprintable() or len(found[name]) > 4096:
            raise refusal("InvalidXmlDocument", f"{name} must be one line of printable characters.")
    if not found["AllowedOrigins"] or not found["AllowedMethods"]:
        raise refusal("InvalidXmlDocument", "A CORS rule needs an origin and a method.")
    found["MaxAgeInSeconds"] = _number(element, "MaxAgeInSeconds", 0, _MOST_SECONDS)
    return found


def _protocol(element: Element) -> Mapping[str, str]:
    smb = element.find("SMB")
    if smb is None:
        raise refusal("InvalidXmlDocument", "ProtocolSettings needs SMB.")
    unknown = [each.tag for each in (*element, *smb) if each.tag not in ("SMB", *_SMB)]
    if unknown:
        raise refusal("NotImplemented", f"ProtocolSettings/{unknown[0][:60]} is not supported.")
    return {each.tag: _switch(each, _SMB[each.tag]) for each in smb}


def _switch(element: Element, name: str) -> str:
    text = (element.findtext(name) or "").strip().lower()
    if text not in ("true", "false"):
        raise refusal("InvalidXmlDocument", f"{element.tag}/{name} must be true or false.")
    return text


def _number(element: Element, name: str, least: int, most: int) -> str:
    text = (element.findtext(name) or "").strip()
    if not (text.isascii() and text.isdecimal() and len(text) < 12 and least <= int(text) <= most):
        raise refusal("InvalidXmlDocument", f"{element.tag}/{name} must be a number from {least} to {most}.")
    return text
