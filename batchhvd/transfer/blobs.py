"""Copying files to and from a container: in parallel, only what changed, and verified."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from batchhvd.errors import ConflictError
from batchhvd.transfer.checksum import md5_of, size_of, usable
from batchhvd.transfer.copy import Transfer, copy_all
from batchhvd.transfer.meter import Meter, TransferProgress

if TYPE_CHECKING:
    from azure.storage.blob import BlobClient, BlobProperties, ContainerClient


def upload_blobs(
    client: ContainerClient,
    sources: Sequence[tuple[Path, str]],
    *,
    parallel: int = 8,
    progress: TransferProgress | None = None,
) -> Transfer:
    """Copies files to a container.

    Args:
        client: the container.
        sources: local files, each with its blob's name.
        parallel: how many files at once.
        progress: called with the bytes done and the total bytes.

    Raises:
        SpecError: a local file cannot be read.
        ServiceError: the service rejected a request; what was copied stays.
    """
    meter = Meter(progress)
    for source, _ in sources:
        with usable(source, "read"):
            meter.expect(size_of(source))

    def copy(source: Path, name: str) -> bool:
        with usable(source, "read"):
            return _upload_one(client.get_blob_client(name), source, meter)

    return copy_all(copy, sources, meter, parallel, [name for _, name in sources])


def download_blobs(
    client: ContainerClient,
    targets: Sequence[tuple[str, Path]],
    *,
    parallel: int = 8,
    progress: TransferProgress | None = None,
) -> Transfer:
    """Copies blobs from a container; a file appears under its name only when it is complete.

    Args:
        client: the container.
        targets: names of blobs, each with the local path to write.
        parallel: how many blobs at once.
        progress: called with the bytes done and the total bytes.

    Raises:
        NotFoundError: a blob does not exist; no part of it is left here.
        SpecError: a local file or folder cannot be written.
        ConflictError: a blob changed while it was read, or arrived damaged.
    """
    meter = Meter(progress)
    for folder in dict.fromkeys(target.parent for _, target in targets):
        with usable(folder, "made"):
            folder.mkdir(parents=True, exist_ok=True)

    def copy(target: Path, name: str) -> bool:
        with usable(target, "written"):
            return _download_one(client.get_blob_client(name), target, meter)

    pairs = [(target, name) for name, target in targets]
    return copy_all(copy, pairs, meter, parallel, [str(target) for _, target in targets])


def _upload_one(blob: BlobClient, source: Path, meter: Meter) -> bool:
    """Copies one file and returns whether there was anything to copy."""
    from azure.core.exceptions import ResourceNotFoundError
    from azure.storage.blob import ContentSettings

    size, digest = size_of(source), md5_of(source)
    try:
        if _is_same(blob.get_blob_properties(), size, digest):
            meter.add(size, sent=False)
            return False
    except ResourceNotFoundError:
        pass  # it is new
    meter.go_on()
    with source.open("rb") as data:
        settings = ContentSettings(content_md5=bytearray(digest))
        blob.upload_blob(data, length=size, overwrite=True, content_settings=settings, validate_content=True)
    meter.add(size)
    return True


def _download_one(blob: BlobClient, target: Path, meter: Meter) -> bool:
    """Copies one blob and returns whether there was anything to copy."""
    there = blob.get_blob_properties()
    meter.expect(there.size)
    if target.is_file() and _is_same(there, size_of(target), md5_of(target)):
        meter.add(there.size, sent=False)
        return False
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        digest = _fetch(blob, there, part, meter)
        promised = there.content_settings.content_md5
        if promised and bytes(promised) != digest:
            raise ConflictError(f"{blob.blob_name!r} does not have the MD5 that it was uploaded with", status=412)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    return True


def _fetch(blob: BlobClient, there: BlobProperties, part: Path, meter: Meter) -> bytes:
    """Writes a blob as it is to a file, and returns its MD5."""
    from azure.core import MatchConditions

    hashed = hashlib.md5(usedforsecurity=False)
    same = MatchConditions.IfNotModified
    with part.open("wb") as file:
        for piece in blob.download_blob(etag=there.etag, match_condition=same).chunks():
            meter.go_on()
            hashed.update(piece)
            file.write(piece)
            meter.add(len(piece))
    return hashed.digest()


def _is_same(there: BlobProperties, size: int, digest: bytes) -> bool:
    md5 = there.content_settings.content_md5
    return bool(there.size == size and md5 and bytes(md5) == digest)
