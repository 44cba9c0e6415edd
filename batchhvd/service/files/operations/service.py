"""Operations that have a fixed answer here: settings of the account, and handles, of which there are none."""

from __future__ import annotations

from batchhvd.service.files.disk.disk import Disk
from batchhvd.service.files.protocol import xml
from batchhvd.service.files.protocol.request import Request
from batchhvd.service.files.protocol.response import Answer, document


def properties(disk: Disk, request: Request) -> Answer:
    """Tells the account's settings for files."""
    return document(xml.service_properties())


def list_handles(disk: Disk, request: Request) -> Answer:
    """Lists the handles that are open on a file or directory."""
    return document(xml.no_handles())


def close_handles(disk: Disk, request: Request) -> Answer:
    """Closes handles and tells how many."""
    return Answer(200, {"x-ms-number-of-handles-closed": "0", "x-ms-number-of-handles-failed": "0"})
