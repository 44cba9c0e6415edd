"""Checks job and cluster documents against the published schema.

The schema (``schemas/job-2018-05-01.json``, Microsoft, MIT, unmodified) decides which fields there are and what they
hold. This module lists what it requires and a file may leave out, because the client fills it in.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files

from batchhvd.spec.json_source import JsonSource
from batchhvd.wire.facts.documents import Document
from batchhvd.wire.facts.pointers import child

# The account, its key, the cluster and the administrator are filled in when the resource is created.
_FILLED = frozenset({"accountName", "credentials", "cluster", "userAccountSettings", "vmSize"})
# Older API versions had these; the service of 2018-05-01 never reads them.
_OLDER = {
    "toolType": "the settings block says which toolkit it is",
    "type": "an output directory has no type any more",
    "location": "the workspace's location decides",
    "name": "the name is given when it is created",
}
_TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
_NAMES = {"object": "an object {…}", "array": "a list […]", "string": "a string", "integer": "a whole number"}
_NEAR = 0.8  # difflib's ratio above which an unknown field is taken for a typing error


@lru_cache(maxsize=1)
def _definitions() -> Document:
    text = files("batchhvd.spec").joinpath("schemas/job-2018-05-01.json").read_text(encoding="utf-8")
    found: Document = json.loads(text)["definitions"]
    return found


def check(source: JsonSource, kind: str) -> tuple[str, ...]:
    """Checks the ``properties`` of a document and returns a warning for each field that the schema does not know.

    Args:
        source: the document.
        kind: ``"JobBaseProperties"`` or ``"ClusterBaseProperties"``, a definition of the schema.

    Raises:
        SpecError: a field is missing, misspelt, of the wrong type or not among the allowed values.
    """
    whole = {
        "type": "object",
        "properties": {"$schema": {"type": "string"}, "properties": _definitions()[kind]},
        "required": ["properties"],
    }
    if source.value is None:
        raise source.fault("", "null is not an object {…}", 'write {"properties": {…}}')
    return tuple(_walk(source, source.value, whole, ""))


def toolkits() -> tuple[str, ...]:
    """Returns the names of the settings blocks of which a job has exactly one."""
    names = _definitions()["JobBaseProperties"]["properties"]
    return tuple(name for name in names if name.lower().endswith("settings") and name != "containerSettings")


def _resolve(schema: Document) -> Document:
    """Follows references, and takes the plain value when the schema also allows a deployment template's expression."""
    while "oneOf" in schema or "$ref" in schema:
        schema = schema["oneOf"][0] if "oneOf" in schema else _definitions()[schema["$ref"].rpartition("/")[2]]
    return schema


def _walk(source: JsonSource, value: object, schema: Document, pointer: str) -> Iterator[str]:
    schema = _resolve(schema)
    if value is None:
        return
    _check_type(source, value, schema, pointer)
    if isinstance(value, dict) and "properties" in schema:
        yield from _walk_object(source, value, schema, pointer)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if item is None:
                raise source.fault(child(pointer, index), "null stands in a list", "remove it, or fill it in")
            yield from _walk(source, item, schema.get("items", {}), child(pointer, index))


def _walk_object(source: JsonSource, value: Document, schema: Document, pointer: str) -> Iterator[str]:
    known = schema["properties"]
    for name, item in value.items():
        if name in known:
            yield from _walk(source, item, known[name], child(pointer, name))
        else:
            yield _unknown(source, value, name, known, pointer)
    for name in schema.get("required", ()):
        if value.get(name) is None and name not in _FILLED:
            raise source.fault(pointer, f'"{name}" is missing', f"add it: {_purpose(known[name])}")


def _unknown(source: JsonSource, value: Document, name: str, known: Document, pointer: str) -> str:
    """Refuses a misspelt field; says a warning for any other unknown one."""
    place = child(pointer, name)
    if name in _OLDER:
        return _warning(source, place, f'"{name}" belongs to an older API version: {_OLDER[name]}')
    near = nearest(name, [field for field in known if field not in value])
    if near:
        raise source.fault(place, f'the schema has no field "{name}"', f'did you mean "{near}"?', key=True)
    return _warning(source, place, f'"{name}" is not a field of the published schema; it is sent unchanged')


def _warning(source: JsonSource, pointer: str, text: str) -> str:
    line = source.line(pointer)
    return f"{source.file}:{line}: {text}" if line else f"{pointer}: {text}"


def nearest(name: str, known: list[str]) -> str:
    """Returns the known name that a misspelt one probably means, or ""."""
    lowered = {field.lower(): field for field in known}
    found = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=_NEAR)
    return lowered[found[0]] if found else ""


def _check_type(source: JsonSource, value: object, schema: Document, pointer: str) -> None:
    wanted = schema.get("type", "")
    if wanted in _TYPES and not _is(value, wanted):
        raise source.fault(pointer, f"{_shown(value)} is not {_NAMES.get(wanted, wanted)}", _instead(value, schema))
    allowed = schema.get("enum")
    if allowed and str(value).lower() not in allowed:
        raise source.fault(pointer, f'"{value}" is not allowed here', f"allowed: {', '.join(allowed)}")


def _is(value: object, wanted: str) -> bool:
    return isinstance(value, _TYPES[wanted]) and not (wanted == "integer" and isinstance(value, bool))


def _instead(value: object, schema: Document) -> str:
    wanted = schema["type"]
    if wanted == "integer" and isinstance(value, str) and value.strip().lstrip("-").isdigit():
        return f"write {value.strip()} without quotes"
    if wanted == "string" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return f'write "{value}" in quotes'
    if wanted == "array" and isinstance(value, dict):
        return "put the object in a list: [{…}]"
    return _purpose(schema) or f"write {_NAMES.get(wanted, wanted)}"


def _purpose(schema: Document) -> str:
    """The schema's own first sentence about a field."""
    text = str(schema.get("description") or _resolve(schema).get("description", ""))
    first = text.split(". ")[0].rstrip(".")
    return first[:1].lower() + first[1:]


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:37]}…"
