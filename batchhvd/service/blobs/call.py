"""A request to the blob service as its operations take it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

from batchhvd.errors import ServiceError
from batchhvd.service.blobs.blocks import Blocks
from batchhvd.service.storage.disk.disk import Disk, Staged
from batchhvd.service.storage.protocol import crc64
from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.request import Request

_PIECE = 1 << 20  # bytes read at a time
# What the disk says of shares and files, said of containers and blobs.
_AS_BLOB = {
    "ParentNotFound": "BlobNotFound",
    "ResourceAlreadyExists": "BlobNameConflict",
    "ResourceNotFound": "BlobNotFound",
    "ResourceTypeMismatch": "BlobNameConflict",
    "ShareAlreadyExists": "ContainerAlreadyExists",
    "ShareNotFound": "ContainerNotFound",
    "ShareSizeLimitReached": "StorageFull",
}


@frozen
class Upload:
    """A body that was received into a file outside the container.

    Attributes:
        staged: the file.
        md5: the MD5 of the body, base64.
    """

    staged: Staged
    md5: str

    def pieces(self) -> Iterator[bytes]:
        """Yields the body."""
        position = 0
        while piece := os.pread(self.staged.fd, _PIECE, position):
            position += len(piece)
            yield piece


@frozen
class BlobCall:
    """One request with what it acts on.

    Attributes:
        disk: where containers lie.
        blocks: the blocks that wait for their list.
        request: the request.
        upload: its body, if that is a blob's content.
    """

    disk: Disk
    blocks: Blocks
    request: Request
    upload: Upload | None = None

    @property
    def container(self) -> Path:
        """The container's directory, which may not exist."""
        return self.disk.share(self.request.target)

    def content(self) -> Upload:
        """Returns the body; refuses one that does not have the MD5 or CRC-64 that its headers promise."""
        if self.upload is None:
            raise refusal("InternalError")
        promised, crc = self.request.header("content-md5"), self.request.header("x-ms-content-crc64")
        if promised and promised != self.upload.md5:
            raise refusal("Md5Mismatch")
        if crc and crc != crc64.encoded(self.upload.pieces()):
            raise refusal("Crc64Mismatch")
        return self.upload


def as_blob(error: ServiceError) -> ServiceError:
    """Returns an error of the disk in the words of the blob service."""
    return refusal(_AS_BLOB[error.code]) if error.code in _AS_BLOB else error
