"""Files and directories of a share or of a job's output, and how their content is read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path

from attrs import field, frozen

from batchhvd.errors import NotFoundError
from batchhvd.wire.connection import Connection
from batchhvd.wire.models import Document, moment


@frozen
class FileEntry:
    """A file or directory of a share, or of what a job has written, as it was when it was listed.

    Attributes:
        path: its path from the root of the share or of the job's output directory.
        size: bytes; 0 for a directory.
        modified: when it was last written, or None if the service did not say.
        is_directory: whether it is a directory.
    """

    path: str
    size: int = 0
    modified: datetime | None = None
    is_directory: bool = False
    _open: Callable[[], Iterator[bytes]] | None = field(default=None, repr=False, eq=False)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    def read(self) -> bytes:
        """Returns the file's present content.

        Raises:
            NotFoundError: it is a directory, or no longer exists.
            AccessDeniedError: the link has expired; list the files again.
        """
        return b"".join(self._pieces())

    def text(self) -> str:
        """Returns the file's present content as text; bytes that are not UTF-8 become U+FFFD."""
        return self.read().decode("utf-8", errors="replace")

    def download(self, to: str | os.PathLike[str] = ".") -> Path:
        """Writes the file to this machine and returns its path.

        Args:
            to: an existing folder, or the path of the file to write.
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
        if self._open is None:
            raise NotFoundError(f"{self.name!r} cannot be read. List the directory again, or choose another entry")
        yield from self._open()


def output_entry(connection: Connection, document: Document, directory: str) -> FileEntry:
    """Returns the file of one document of the service's listing of a job's output.

    Args:
        connection: the way to the service.
        document: the file as the service describes it.
        directory: the directory that was listed.
    """
    properties = document.get("properties") or {}
    name, link = str(document.get("name") or ""), str(document.get("downloadUrl") or "")
    reader = LinkReader(connection, f"file {name!r} cannot be read")
    return FileEntry(
        f"{directory.strip('/')}/{name}".lstrip("/"),
        int(properties.get("contentLength") or 0),
        moment(properties.get("lastModified")),
        str(document.get("fileType") or "file").lower() == "directory",
        (lambda: reader.read(link)) if link else None,
    )


class LinkReader:
    """Reads files behind links.

    Attributes:
        answer: the headers of the last answer.
    """

    def __init__(self, connection: Connection, what: str) -> None:
        """Creates a reader.

        Args:
            connection: the way to the service.
            what: the beginning of an error message, such as ``"file 'stdout.txt' cannot be read"``.
        """
        self._connection, self._what = connection, what
        self.answer: Mapping[str, str] = {}

    def read(self, link: str, start: int = 0, headers: Mapping[str, str] | None = None) -> Iterator[bytes]:
        """Yields the file's content from byte ``start`` on; nothing if it ends there.

        Raises:
            AccessDeniedError: the link has expired.
            UnavailableError: the connection was lost; what was yielded before is valid.
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
