"""Operations on open handles, of which this service has none: it keeps no files open between requests."""

from __future__ import annotations

from batchhvd.service.storage.disk import tree
from batchhvd.service.storage.disk.disk import Disk
from batchhvd.service.storage.protocol import xml
from batchhvd.service.storage.protocol.request import Request
from batchhvd.service.storage.protocol.response import Response, xml_response


def list_handles(disk: Disk, request: Request) -> Response:
    """Lists the handles that are open on a file or directory."""
    _check_exists(disk, request)
    return xml_response(xml.tree("EnumerationResults", {"Entries": {}, "NextMarker": ""}))


def close_handles(disk: Disk, request: Request) -> Response:
    """Closes handles and returns how many."""
    request.required("x-ms-handle-id")
    _check_exists(disk, request)
    return Response(200, {"x-ms-number-of-handles-closed": "0", "x-ms-number-of-handles-failed": "0"})


def _check_exists(disk: Disk, request: Request) -> None:
    if not request.target.names:
        with tree.directory(disk.share(request.target), ()):
            return
    with tree.spot(disk.share(request.target), request.target.names, follow=True) as place:
        place.stat()
