"""What an operation of the file service answers, before it is sent."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from batchhvd.errors import ServiceError
from batchhvd.service.files.protocol.xml import error_document

XML = "application/xml"


@frozen
class Stretch:
    """Part of an open file that is the body of an answer; whoever sends it closes the file.

    Attributes:
        fd: the open file.
        start: the first byte.
        length: how many bytes.
    """

    fd: int
    start: int
    length: int


@frozen
class Answer:
    """A status, headers, and a body in memory or on disk.

    Attributes:
        status: HTTP status.
        headers: header values by name; Content-Length is added from the body where it is not there.
        body: the body, or the stretch of a file.
    """

    status: int
    headers: Mapping[str, str] = field(factory=dict)
    body: bytes | Stretch = field(default=b"", repr=False)


def document(text: str, headers: Mapping[str, str] | None = None) -> Answer:
    """Returns an XML document as an answer. Clients read it only where its content type says XML."""
    return Answer(200, {"content-type": XML, **(headers or {})}, text.encode("utf-8"))


def refusal(error: ServiceError, headers: Mapping[str, str] | None = None) -> Answer:
    """Returns an error as clients read it: its code in a header, code and message in the body."""
    named = {"content-type": XML, "x-ms-error-code": error.code, **(headers or {})}
    return Answer(error.status or 500, named, error_document(error.code, str(error)).encode("utf-8"))
