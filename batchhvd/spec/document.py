"""What job and cluster files have in common: opening, merging, hiding keys, and errors that say where."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from batchhvd.errors import SpecError
from batchhvd.spec import json_source, placeholders, schema
from batchhvd.spec.json_source import JsonSource
from batchhvd.spec.placeholders import Mountable
from batchhvd.wire.facts.documents import Body, Document
from batchhvd.wire.facts.secrets import SECRET_FIELDS

_SCHEMA = "https://raw.githubusercontent.com/Azure/BatchAI/master/schemas/2018-05-01/{}.json"


def open_document(
    source: JsonSource, kind: str, account: object = None, mounts: Mapping[str, Mountable] | None = None
) -> tuple[JsonSource, tuple[str, ...]]:
    """Checks a document, fills its placeholders and returns it with the warnings, which are also given to Python's own.

    Args:
        source: the document as read.
        kind: the schema's definition of its ``properties``.
        account: the storage account, by name or as an object with a ``name``.
        mounts: shares by the path where the document mounts them.

    Raises:
        SpecError: the document is wrong, with its place.
    """
    json_source.check_values(source)
    notices = schema.check(source, kind)
    for notice in notices:
        warnings.warn(notice, UserWarning, stacklevel=4)
    name = account if isinstance(account, str) or account is None else str(getattr(account, "name", account))
    return placeholders.fill(source, name, mounts or {}), notices


@contextmanager
def errors_at(source: JsonSource, pointer: str) -> Iterator[None]:
    """Gives an error of a value its place in the document that the value is read from."""
    try:
        yield
    except SpecError as error:
        raise source.fault(pointer + error.pointer, error.problem, error.remedy) from error


def write_document(path: str | os.PathLike[str], kind: str, document: Document) -> None:
    """Writes a document as the published files look: indented by four spaces, the schema first."""
    text = json.dumps({"$schema": _SCHEMA.format(kind), **document}, indent=4, ensure_ascii=False)
    Path(path).write_text(text + "\n", encoding="utf-8")


def merge(base: Document, more: Document) -> Body:
    """Returns two objects in one, object by object; if both hold another value, the second wins."""
    result = dict(base)
    for name, value in more.items():
        both = isinstance(value, Mapping) and isinstance(result.get(name), Mapping)
        result[name] = merge(result[name], value) if both else value
    return result


def clean(value: Any) -> Any:
    """Returns a document without nulls, empty objects and empty lists, from the inside out."""
    if isinstance(value, Mapping):
        items = {name: clean(item) for name, item in value.items()}
        return {name: item for name, item in items.items() if item not in (None, {}, [])}
    if isinstance(value, (list, tuple)):
        return [clean(item) for item in value]
    return value


def without_secrets(value: Any) -> Any:
    """Returns a document without keys and passwords (and without objects that held nothing else)."""
    if isinstance(value, Mapping):
        kept = {name: without_secrets(item) for name, item in value.items() if name not in SECRET_FIELDS}
        return {name: item for name, item in kept.items() if item != {} or value[name] == {}}
    if isinstance(value, (list, tuple)):
        return [without_secrets(item) for item in value]
    return value


def with_keys(value: Any, keys: Mapping[str, str]) -> Any:
    """Returns a document with an account key in each share and container that has none.

    Args:
        value: the document.
        keys: the keys by account name.
    """
    if isinstance(value, Mapping):
        filled = {name: with_keys(item, keys) for name, item in value.items()}
        key = keys.get(str(value.get("accountName"))) if "relativeMountPath" in value else None
        return filled if key is None or value.get("credentials") else {**filled, "credentials": {"accountKey": key}}
    if isinstance(value, (list, tuple)):
        return [with_keys(item, keys) for item in value]
    return value


def accounts_without_key(value: Any) -> tuple[str, ...]:
    """Returns the accounts whose key a document still needs, in the order of their first use."""
    return tuple(dict.fromkeys(_accounts(value)))


def _accounts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        if "relativeMountPath" in value and "accountName" in value and not value.get("credentials"):
            yield str(value["accountName"])
        value = list(value.values())
    if isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            yield from _accounts(item)
