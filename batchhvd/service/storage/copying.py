"""What copies of files and of blobs have in common: conditions on the source, and what is told of the copy."""

from __future__ import annotations

import os
import uuid
from email.utils import formatdate

from batchhvd.errors import ServiceError
from batchhvd.service.storage.condition import check_conditions
from batchhvd.service.storage.disk.sidecar import Facts
from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.request import Request


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
