"""What copies of files and of blobs have in common: conditions on the source, and what is told of the copy."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable
from email.utils import formatdate

from batchhvd.errors import ServiceError
from batchhvd.service.storage.condition import check_conditions
from batchhvd.service.storage.disk.sidecar import Facts
from batchhvd.service.storage.protocol import crc64
from batchhvd.service.storage.protocol.refusal import CopySourceError, refusal
from batchhvd.service.storage.protocol.request import Request, md5


def check_source_conditions(request: Request, about: os.stat_result, facts: Facts) -> None:
    """Refuses a copy whose condition on its source does not hold."""
    try:
        holds = check_conditions(request, about, facts, "x-ms-source-")
    except ServiceError as error:
        holds = error.code != "ConditionNotMet"
        if holds:
            raise
    if not holds:
        raise refusal("SourceConditionNotMet")


def check_signed(request: Request) -> None:
    """Refuses a source without a link of its own, as Azure does: the request's key does not open it."""
    if "sig=" not in request.header("x-ms-copy-source").partition("?")[2]:
        raise CopySourceError(
            "The source of the copy cannot be read: its URL carries no link. Append one that permits reading.",
            status=401,
            code="CannotVerifyCopySource",
            source_status=401,
            source_code="NoAuthenticationInformation",
        )


def check_source_sums(request: Request, pieces: Callable[[], Iterable[bytes]]) -> None:
    """Refuses bytes of the source that do not have the checksums that the request names; ``pieces`` returns them."""
    names = ("content-md5", "content-crc64", "if-match-crc64", "if-none-match-crc64")
    plain, promised, wanted, unwanted = (request.header(f"x-ms-source-{name}") for name in names)
    if plain and md5(pieces()) != plain:
        raise refusal("Md5Mismatch", "It is about the source.")
    found = crc64.encoded(pieces()) if promised or wanted or unwanted else ""
    if promised and found != promised:
        raise refusal("Crc64Mismatch", "It is about the source.")
    if (wanted and found != wanted) or (unwanted and found == unwanted):
        raise refusal("SourceConditionNotMet")


def receipt(request: Request, fd: int) -> dict[str, str]:
    """Returns the headers that tell of a copy, which was done when the answer came; ``fd`` is the copy."""
    about = os.fstat(fd)
    return {
        "x-ms-copy-id": str(uuid.uuid4()),
        "x-ms-copy-source": request.header("x-ms-copy-source").partition("?")[0],  # what follows may be a link's secret
        "x-ms-copy-status": "success",
        "x-ms-copy-progress": f"{about.st_size}/{about.st_size}",
        "x-ms-copy-completion-time": formatdate(about.st_mtime, usegmt=True),
    }
