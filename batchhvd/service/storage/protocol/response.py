"""What an operation of the file service returns, before it is sent."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from batchhvd.errors import ServiceError
from batchhvd.service.storage.protocol.refusal import CopySourceError
from batchhvd.service.storage.protocol.xml import error_document

XML = "application/xml"


@frozen
class Stretch:
    """Part of an open file that is the body of a response; the sender closes the file.

    Attributes:
        fd: the open file.
        start: the first byte.
        length: how many bytes.
    """

    fd: int
    start: int
    length: int


@frozen
class Response:
    """A status, headers, and a body in memory or on disk.

    Attributes:
        status: HTTP status.
        headers: header values by name; Content-Length is added from the body if it is missing.
        body: the body, or the stretch of a file.
    """

    status: int
    headers: Mapping[str, str] = field(factory=dict)
    body: bytes | Stretch = field(default=b"", repr=False)


def xml_response(document: bytes, headers: Mapping[str, str] | None = None) -> Response:
    """Returns an XML document as a response; clients read it only if its content type says XML."""
    return Response(200, {"content-type": XML, **(headers or {})}, document)


def error_response(error: ServiceError, headers: Mapping[str, str] | None = None) -> Response:
    """Returns an error as clients read it: its code in a header, code and message in the body."""
    about = error.headers if isinstance(error, CopySourceError) else {}
    named = {"content-type": XML, "x-ms-error-code": error.code, **about, **(headers or {})}
    return Response(error.status or 500, named, error_document(error.code, str(error)))
