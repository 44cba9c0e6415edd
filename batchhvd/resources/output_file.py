"""The files that a job writes: listed by the service, read through links that carry their own permission."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from attrs import field, frozen

from batchhvd.errors import NotFoundError
from batchhvd.wire.connection import Connection
from batchhvd.wire.models import moment


@frozen
class OutputFile:
    """A file or folder that a job has written, as it was when it was listed.

    Attributes:
        name: its name in the folder that was listed.
        size: bytes; 0 for a folder.
        modified: when it was last written, or None where the service did not say.
        folder: whether it is a folder.
    """

    name: str
    size: int
    modified: datetime | None
    folder: bool = False
    _link: str = field(default="", repr=False, eq=False)
    _connection: Connection | None = field(default=None, repr=False, eq=False)

    @classmethod
    def of(cls, connection: Connection, document: Mapping[str, Any]) -> OutputFile:
        """Returns the file of one document of the service's listing."""
        properties = document.get("properties") or {}
        return cls(
            str(document.get("name") or ""),
            int(properties.get("contentLength") or 0),
            moment(properties.get("lastModified")),
            str(document.get("fileType") or "file").lower() == "directory",
            str(document.get("downloadUrl") or ""),
            connection,
        )

    def read(self) -> bytes:
        """Returns what the file holds now.

        Raises:
            NotFoundError: it is a folder, or gone.
            AccessDeniedError: the link has expired; list the files again.
        """
        return b"".join(self._pieces())

    def text(self) -> str:
        """Returns what the file holds now as text; what is not UTF-8 becomes U+FFFD."""
        return self.read().decode("utf-8", errors="replace")

    def download(self, to: str | os.PathLike[str] = ".") -> Path:
        """Writes the file to this machine and returns where.

        Args:
            to: a folder that is there, or the path of the file to write.
        """
        path = Path(to)
        path = path / self.name if path.is_dir() else path
        scratch = path.with_name(path.name + ".part")
        with scratch.open("wb") as file:
            for piece in self._pieces():
                file.write(piece)
        scratch.replace(path)
        return path

    def _pieces(self) -> Iterator[bytes]:
        if not self._link or self._connection is None:
            raise NotFoundError(f"{self.name!r} cannot be read. List the folder again, or give another name")
        yield from LinkReader(self._connection, f"file {self.name!r} cannot be read").read(self._link)


class LinkReader:
    """Reads files behind links.

    Attributes:
        answer: the headers of the last answer.
    """

    def __init__(self, connection: Connection, what: str) -> None:
        """Makes a reader.

        Args:
            connection: the way to the service.
            what: begins an error, such as ``"file 'stdout.txt' cannot be read"``.
        """
        self._connection, self._what = connection, what
        self.answer: Mapping[str, str] = {}

    def read(self, link: str, start: int = 0, headers: Mapping[str, str] | None = None) -> Iterator[bytes]:
        """Yields what the file holds from byte ``start`` on; nothing where it ends there.

        Raises:
            AccessDeniedError: the link has expired.
            UnavailableError: the connection is lost; what was yielded before is good.
        """
        from azure.core.exceptions import HttpResponseError
        from azure.core.rest import HttpRequest

        asked = {"Range": f"bytes={start}-", "Accept-Encoding": "identity", **(headers or {})}
        with self._connection.translating(self._what):
            response = self._connection.links.send_request(HttpRequest("GET", link, headers=asked), stream=True)
            self.answer = response.headers
            with response:
                if response.status_code == 416:  # the file ends at or before ``start``
                    return
                if response.status_code not in (200, 206):
                    response.read()
                    raise HttpResponseError(response=response)
                # 200 is the answer of a service without ranges: the whole file.
                yield from _after(response.iter_raw(), start if response.status_code == 200 else 0)


def _after(pieces: Iterator[bytes], skipped: int) -> Iterator[bytes]:
    for piece in pieces:
        rest = piece[skipped:]
        skipped -= len(piece) - len(rest)
        if rest:
            yield rest
