"""Fills in what the published files leave open: the storage account, but nothing that the node expands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Protocol

from attrs import evolve

from batchhvd.spec.json_source import JsonSource
from batchhvd.spec.mounts import Mount
from batchhvd.spec.schema import nearest
from batchhvd.wire.facts.documents import Document
from batchhvd.wire.facts.pointers import child

ACCOUNT = "<AZURE_BATCHAI_STORAGE_ACCOUNT>"
KEY = "<AZURE_BATCHAI_STORAGE_KEY>"

# In command lines only names in capitals count: `sort <(ls)` and `program <in >out` are the shell's.
_ANY = re.compile(r"<[^<>]+>")
_CAPITALS = re.compile(r"<[A-Z][A-Z0-9_]+>")
_COMMANDS = frozenset({"commandLine", "commandLineArgs", "mountCommand", "value"})


class Mountable(Protocol):
    """A share that can be mounted, such as ``FileShare``."""

    def mount(self, path: str) -> Mount:
        """Returns it as a job sees it under a path."""


def fill(source: JsonSource, account: str | None, mounts: Mapping[str, Mountable]) -> JsonSource:
    """Returns the document with shares put where they belong and each placeholder replaced.

    Args:
        source: the document as read, checked against the schema.
        account: name of the storage account, or None: then the one account of all ``mounts``, if it is one.
        mounts: shares by the path where the document mounts them.

    Raises:
        SpecError: a placeholder is left, or a share is given for a path that the document does not mount.
    """
    made = {path: share.mount(path) for path, share in mounts.items()}
    accounts = {mount.account for mount in made.values()}
    account = account or (accounts.pop() if len(accounts) == 1 else None)
    used: set[str] = set()
    value = _fill(evolve(source), source.value, "", account, made, used)
    _check_used(source, made, used)
    return evolve(source, value=value)


def _check_used(source: JsonSource, made: Mapping[str, Mount], used: set[str]) -> None:
    for path in made.keys() - used:
        paths = [str(share.get("relativeMountPath")) for share in shares(source.value)]
        near = nearest(path, paths)
        hint = f'did you mean "{near}"?' if near else f"it mounts: {', '.join(paths) or 'nothing'}"
        raise source.fault("/properties/mountVolumes", f'no share is mounted at "{path}"', hint)


def _fill(
    source: JsonSource, value: object, pointer: str, account: str | None, made: Mapping[str, Mount], used: set[str]
) -> object:
    if isinstance(value, str):
        return _text(source, value, pointer, account)
    if isinstance(value, list):
        return [_fill(source, item, child(pointer, i), account, made, used) for i, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    mount = made.get(str(value.get("relativeMountPath"))) if "azureFileUrl" in value else None
    if mount:
        used.add(mount.path)
        value = {**value, "accountName": mount.account, "azureFileUrl": mount.url}
    return {name: _fill(source, item, child(pointer, name), account, made, used) for name, item in value.items()}


def _text(source: JsonSource, text: str, pointer: str, account: str | None) -> str | None:
    if text == KEY and pointer.endswith("/accountKey"):
        return None  # looked up when the job is created
    if ACCOUNT in text and not account:
        remedy = "give account=… (or mounts=…); on the command line --storage-account-name or the variable "
        problem = f"{ACCOUNT} stands for a storage account, and none was given"
        raise source.fault(pointer, problem, remedy + "AZURE_BATCHAI_STORAGE_ACCOUNT")
    text = text.replace(ACCOUNT, account or "")
    command = pointer.rpartition("/")[2] in _COMMANDS
    left = (_CAPITALS if command else _ANY).search(text)
    if left:
        raise source.fault(
            pointer,
            f"{left[0]} is still to be filled in",
            f"only {ACCOUNT} and an accountKey are filled in by themselves",
        )
    return text


def shares(value: object) -> Iterator[Document]:
    """Yields every item of an ``azureFileShares`` list in a document."""
    if isinstance(value, Mapping):
        listed = value.get("azureFileShares")
        yield from (share for share in listed if isinstance(share, Mapping)) if isinstance(listed, list) else ()
        for item in value.values():
            yield from shares(item)
