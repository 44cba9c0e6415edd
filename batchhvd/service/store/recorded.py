"""Errors as Batch AI showed them, in ``executionInfo``: one for a job that failed, with code and message alone.

Source: the recordings of azure-mgmt-batchai's tests (failed_job_reporting, queued_job_termination).
"""

from __future__ import annotations

from collections.abc import Sequence

from batchhvd.service.store.documents import ErrorDocument
from batchhvd.service.store.records import Document
from batchhvd.wire.facts.causes import Code

_FAILED = {"code": Code.JOB_FAILED.value, "message": "Job failed with non-zero exit code"}
_OF_RANKS = frozenset({Code.RANK_FAILED, Code.OUT_OF_MEMORY, Code.HOROVOD_MISSING, Code.HOROVOD_BROKEN})


def errors(own: Sequence[ErrorDocument]) -> list[Document]:
    """Returns the errors that Batch AI would have shown for a job that failed.

    Args:
        own: the service's own account, the latest error first.
    """
    return [_shown(error) for error in own[:1]]


def _shown(error: ErrorDocument) -> Document:
    return dict(_FAILED) if error["code"] in _OF_RANKS else {"code": error["code"], "message": error["message"]}
