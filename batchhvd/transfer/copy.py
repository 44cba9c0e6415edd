"""Copying files to and from a share: in parallel, only what changed, resumable, and verified.

While a file is uploaded, its metadata holds the MD5 that it will have. Once it is complete, its properties hold the MD5
and its metadata the time of writing, because a job that writes the file later does not update the MD5. A file that is
downloaded has a temporary name until it is complete.
"""

from __future__ import annotations

import glob
import hashlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import field, frozen

from batchhvd.errors import ConflictError
from batchhvd.transfer.checksum import PIECE, PROMISED, WRITTEN, known_md5, md5_of, size_of, usable
from batchhvd.transfer.meter import Meter, TransferProgress

if TYPE_CHECKING:
    from azure.storage.fileshare import FileProperties, ShareClient, ShareFileClient

_AHEAD = 4  # pieces of one file that are in flight at once
_TRIES = 3  # attempts to download a file that is being written


@frozen
class Transfer:
    """What a transfer did.

    Attributes:
        files: how many files were copied.
        unchanged: how many were identical already.
        bytes: bytes sent over the connection.
        seconds: how long it took.
        paths: where the files are now, in order: paths in the share after an upload, local ones after a download.
    """

    files: int
    unchanged: int
    bytes: int
    seconds: float = field(repr="{:.3f}".format)
    paths: tuple[str, ...] = field(repr=False)

    def _repr_html_(self) -> str:
        from html import escape

        return escape(str(self))

    def __str__(self) -> str:
        """Returns the transfer in one line."""
        rate = f", {self.bytes / self.seconds / 1e6:.1f} MB/s" if self.bytes and self.seconds else ""
        same = f", {self.unchanged} unchanged" if self.unchanged else ""
        noun = "file" if self.files == 1 else "files"
        return f"{self.files} {noun}{same}, {self.bytes} bytes in {self.seconds:.1f} s{rate}"


def upload(
    client: ShareClient,
    sources: Sequence[tuple[Path, str]],
    *,
    make_folder: Callable[[str], None],
    folders: Sequence[str] = (),
    parallel: int = 8,
    progress: TransferProgress | None = None,
) -> Transfer:
    """Copies files to a share.

    Args:
        client: the share.
        sources: local files, each with its path in the share.
        make_folder: creates a folder of the share, and its parents, if they do not exist.
        folders: folders of the share to create even if no file goes there.
        parallel: how many files at once.
        progress: called with the bytes done and the total bytes.

    Raises:
        SpecError: a local file cannot be read.
        ServiceError: the service rejected a request; what was copied stays, and the next upload resumes after it.
    """
    meter = Meter(progress)
    for source, _ in sources:
        with usable(source, "read"):
            meter.expect(size_of(source))
    for folder in sorted({*folders, *(target.rpartition("/")[0] for _, target in sources)} - {""}):
        make_folder(folder)

    def copy(source: Path, target: str) -> bool:
        with usable(source, "read"):
            return _upload_one(client.get_file_client(target), source, meter)

    return copy_all(copy, sources, meter, parallel, [target for _, target in sources])


def download(
    client: ShareClient,
    targets: Sequence[tuple[str, Path]],
    *,
    folders: Sequence[Path] = (),
    parallel: int = 8,
    progress: TransferProgress | None = None,
) -> Transfer:
    """Copies files from a share.

    Args:
        client: the share.
        targets: paths in the share, each with the local path to write.
        folders: local folders to make even if no file goes there.
        parallel: how many files at once.
        progress: called with the bytes done and the total bytes.

    Raises:
        NotFoundError: a file does not exist; no part of it is left here.
        SpecError: a local file or folder cannot be written.
        ConflictError: a file kept changing while it was read.
    """
    meter = Meter(progress)
    for folder in dict.fromkeys([*folders, *(target.parent for _, target in targets)]):
        with usable(folder, "made"):
            folder.mkdir(parents=True, exist_ok=True)

    def copy(target: Path, path: str) -> bool:
        with usable(target, "written"):
            return _download_one(client.get_file_client(path), target, meter)

    pairs = [(target, path) for path, target in targets]
    return copy_all(copy, pairs, meter, parallel, [str(target) for _, target in targets])


def copy_all(
    copy: Callable[[Path, str], bool], pairs: Sequence[tuple[Path, str]], meter: Meter, parallel: int, paths: list[str]
) -> Transfer:
    """Copies all files, each as ``copy`` does, and stops early if one fails."""
    started = time.monotonic()
    with ThreadPoolExecutor(max_workers=max(1, parallel)) as pool:
        running = [pool.submit(copy, *pair) for pair in pairs]
        try:
            done, _ = wait(running, return_when=FIRST_EXCEPTION)
            failed = [future for future in done if future.exception() is not None]
        finally:  # nothing else starts after the first failure or Ctrl-C
            meter.stop()
            pool.shutdown(wait=False, cancel_futures=True)
    copied = [future.result() for future in failed[:1] or running]
    return Transfer(sum(copied), len(copied) - sum(copied), meter.sent, time.monotonic() - started, tuple(paths))


def _upload_one(file: ShareFileClient, source: Path, meter: Meter) -> bool:
    """Copies one file and returns whether there was anything to copy."""
    size, digest = size_of(source), md5_of(source)
    there = _properties(file)
    if there is not None and there.size == size and known_md5(there) == digest:
        meter.add(size, sent=False)
        return False
    written = _written(file, there, size, digest)
    if written is None:
        file.create_file(size, metadata={PROMISED: digest.hex()})
    missing = [piece for piece in _pieces(0, size) if not _covered(piece, written or ())]
    meter.add(size - sum(end - start for start, end in missing), sent=False)
    _write(file, source, missing, meter)
    if written and _read_back(file, meter) != digest:
        # Some file systems do not distinguish written ranges from allocated ones.
        _write(file, source, list(_pieces(0, size)), meter)
    _keep_promise(file, size, digest)
    return True


def _written(
    file: ShareFileClient, there: FileProperties | None, size: int, digest: bytes
) -> list[tuple[int, int]] | None:
    """Returns what an interrupted upload of the same content has written; None if there was none."""
    if there is None or there.size != size or (there.metadata or {}).get(PROMISED) != digest.hex():
        return None
    # The method was renamed between the oldest and the newest supported release.
    ranges = file.list_ranges() if hasattr(file, "list_ranges") else file.get_ranges()
    return [(int(item["start"]), int(item["end"]) + 1) for item in ranges]


def _covered(piece: tuple[int, int], written: Sequence[tuple[int, int]]) -> bool:
    return any(low <= piece[0] and piece[1] <= high for low, high in written)


def _write(file: ShareFileClient, source: Path, pieces: Sequence[tuple[int, int]], meter: Meter) -> None:
    """Writes pieces, several at once; with an MD5 for each, the service rejects data that was damaged on the way."""

    def write(piece: tuple[int, int]) -> None:
        meter.go_on()
        with source.open("rb") as data:
            data.seek(piece[0])
            content = data.read(piece[1] - piece[0])
        file.upload_range(content, offset=piece[0], length=len(content), validate_content=True)
        meter.add(len(content))

    if len(pieces) == 1:
        write(pieces[0])
        return
    with ThreadPoolExecutor(max_workers=_AHEAD) as pool:
        for _ in pool.map(write, pieces):
            pass


def _read_back(file: ShareFileClient, meter: Meter) -> bytes:
    digest = hashlib.md5(usedforsecurity=False)
    for piece in _read_ahead(file, file.get_file_properties(), 0, meter):
        digest.update(piece or b"")
    return digest.digest()


def _keep_promise(file: ShareFileClient, size: int, digest: bytes) -> None:
    """Checks that the file is complete, and records it in the file's properties."""
    from azure.storage.fileshare import ContentSettings

    file.set_http_headers(ContentSettings(content_md5=bytearray(digest)))
    found = file.get_file_properties()
    if found.size != size:
        raise ConflictError(
            f"{file.file_name!r} has {found.size} bytes after {size} were uploaded: another program is "
            "writing it. Upload it again when that has ended"
        )
    file.set_file_metadata({WRITTEN: str(found.last_write_time)})


def _download_one(file: ShareFileClient, target: Path, meter: Meter) -> bool:
    """Copies one file and returns whether there was anything to copy."""
    for _ in range(_TRIES):
        there = file.get_file_properties()
        meter.expect(there.size)
        if target.is_file() and size_of(target) == there.size and known_md5(there) == md5_of(target):
            meter.add(there.size, sent=False)
            return False
        if _fetch(file, there, target, meter):
            return True
        meter.expect(-there.size)
    raise ConflictError(
        f"{file.file_name!r} changed {_TRIES} times while it was read. Download it when the job has ended",
        status=412,
    )


def _fetch(file: ShareFileClient, there: FileProperties, target: Path, meter: Meter) -> bool:
    """Writes the file under a temporary name, resuming an earlier attempt, and renames it when it is complete."""
    scratch = target.with_name(f".{target.name}.{_short(there.etag)}.part")
    for stale in set(target.parent.glob(f".{glob.escape(target.name)}.*.part")) - {scratch}:
        stale.unlink()
    with scratch.open("ab") as data:
        done = data.tell()
        meter.add(done, sent=False)
        for piece in _read_ahead(file, there, done, meter):
            if piece is None:
                break
            data.write(piece)
            done += len(piece)
            meter.add(len(piece))
    if _is_whole(file, there, scratch):
        scratch.replace(target)
        return True
    scratch.unlink()
    meter.add(-done, sent=False)
    return False


def _is_whole(file: ShareFileClient, there: FileProperties, scratch: Path) -> bool:
    """Whether the copy is complete and the file has not changed since the copying started."""
    if size_of(scratch) != there.size or file.get_file_properties().etag != there.etag:
        return False
    return known_md5(there) in (b"", md5_of(scratch))


def _read_ahead(file: ShareFileClient, there: FileProperties, start: int, meter: Meter) -> Iterator[bytes | None]:
    """Yields the pieces from a byte on, in order, several in flight at once; None if the file was changed."""

    def read(piece: tuple[int, int]) -> bytes | None:
        meter.go_on()
        answer = file.download_file(offset=piece[0], length=piece[1] - piece[0])
        return answer.readall() if answer.properties.etag == there.etag else None

    with ThreadPoolExecutor(max_workers=_AHEAD) as pool:
        running: deque[Future[bytes | None]] = deque()
        for piece in _pieces(start, there.size):
            running.append(pool.submit(read, piece))
            if len(running) >= _AHEAD:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()


def _pieces(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields the start and the end (exclusive) of each piece."""
    for low in range(start, end, PIECE):
        yield low, min(low + PIECE, end)


def _properties(file: ShareFileClient) -> FileProperties | None:
    from azure.core.exceptions import ResourceNotFoundError

    try:
        return file.get_file_properties()
    except ResourceNotFoundError:
        return None


def _short(etag: str) -> str:
    return hashlib.sha256(etag.encode()).hexdigest()[:12]
