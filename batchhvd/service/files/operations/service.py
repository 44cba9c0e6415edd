"""Operations with a fixed answer: the account's settings, and open handles, of which this service has none."""

from __future__ import annotations

from batchhvd.service.files.disk.disk import Disk
from batchhvd.service.files.protocol import xml
from batchhvd.service.files.protocol.request import Request
from batchhvd.service.files.protocol.response import Response, xml_response


def properties(disk: Disk, request: Request) -> Response:
    """Returns the account's settings for files."""
    return xml_response(xml.service_properties())


def list_handles(disk: Disk, request: Request) -> Response:
    """Lists the handles that are open on a file or directory."""
    return xml_response(xml.no_handles())


def close_handles(disk: Disk, request: Request) -> Response:
    """Closes handles and returns how many."""
    return Response(200, {"x-ms-number-of-handles-closed": "0", "x-ms-number-of-handles-failed": "0"})
