"""Operations on blocks: put one, make a blob of a list of them, show the list."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterator
from contextlib import suppress
from xml.etree.ElementTree import Element

from attrs import frozen

from batchhvd.errors import ServiceError
from batchhvd.service.blobs.blob import content, enter
from batchhvd.service.blobs.blocks import Listed, offsets
from batchhvd.service.blobs.call import BlobCall
from batchhvd.service.storage.disk import tree
from batchhvd.service.storage.disk.content import write
from batchhvd.service.storage.disk.sidecar import Facts
from batchhvd.service.storage.protocol import xml
from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.response import Response, xml_response
from batchhvd.service.storage.shown_headers import written
from batchhvd.service.storage.whole import share_facts

LIST_BYTES = 8 << 20  # of the document that lists a blob's blocks
_MOST = 50_000  # blocks of a blob, as in Azure
_PIECE = 4 << 20  # bytes copied at a time
_KINDS = ("Latest", "Committed", "Uncommitted")


@frozen
class Piece:
    """Where the bytes of one listed block are.

    Attributes:
        id: the block's id, in hexadecimal digits.
        size: how many bytes.
        start: its first byte in the blob as it is, or None for a block that waits for its list.
    """

    id: str
    size: int
    start: int | None


def put_block(call: BlobCall) -> Response:
    """Keeps a block until a list makes a blob of it."""
    share_facts(call.disk, call.request.target)
    block, upload = block_id(call.request.query.get("blockid", "")), call.content()
    call.blocks.put(call.request.target, block, upload.staged)
    return Response(201, {"content-md5": upload.md5, "x-ms-request-server-encrypted": "true"})


def put_list(call: BlobCall) -> Response:
    """Makes a blob of blocks that were put, and of those that the blob consists of already."""
    target = call.request.target
    call.request.check_body()
    listed = _read(call)
    with OldBlob(call) as old, call.disk.stage() as staged:
        pieces = list(_pieces(call, listed, old))
        position = 0
        for piece in pieces:
            _copy(call, piece, old, staged.fd, position)
            position += piece.size
        facts = Facts(metadata=call.request.metadata(), content=content(call.request))
        about = enter(call, staged, facts)
        call.blocks.keep_list(target, about, [(piece.id, piece.size) for piece in pieces])
        call.blocks.drop_waiting(target)
    return Response(201, {**written(about, facts), "x-ms-request-server-encrypted": "true"})


def show_list(call: BlobCall) -> Response:
    """Returns the blocks of a blob: those that it consists of, those that wait for their list, or both."""
    target, kind = call.request.target, call.request.query.get("blocklisttype", "committed").lower()
    if kind not in ("committed", "uncommitted", "all"):
        raise refusal("InvalidQueryParameterValue", "blocklisttype must be committed, uncommitted or all.")
    share_facts(call.disk, target)
    root, told = Element("BlockList"), {}
    with OldBlob(call) as old:
        waiting = call.blocks.waiting(target)
        if old.fd is None and not waiting:
            raise refusal("BlobNotFound")
        if old.fd is not None:
            about = os.fstat(old.fd)
            told = {**written(about), "x-ms-blob-content-length": str(about.st_size)}
    _show(root, "CommittedBlocks", old.blocks if kind != "uncommitted" else [])
    _show(root, "UncommittedBlocks", waiting if kind != "committed" else [])
    return xml_response(xml.document(root), told)


class OldBlob:
    """The blob as it is, open while a new one is made of it; or none."""

    def __init__(self, call: BlobCall) -> None:
        self._call = call
        self.fd: int | None = None
        self.blocks: Listed = []

    def __enter__(self) -> OldBlob:
        call = self._call
        with suppress(ServiceError, OSError), tree.spot(call.container, call.request.target.names, follow=True) as at:
            self.fd = tree.open_file(at)
            self.blocks = call.blocks.listed(call.request.target, os.fstat(self.fd))
        return self

    def __exit__(self, *_: object) -> None:
        if self.fd is not None:
            os.close(self.fd)


def _read(call: BlobCall) -> list[tuple[str, str]]:
    """Returns the kinds and ids of the blocks that a request lists."""
    found = [(each.tag, block_id(each.text or "")) for each in xml.read(call.request.body, "BlockList", LIST_BYTES)]
    if unknown := [kind for kind, _ in found if kind not in _KINDS]:
        raise refusal("InvalidXmlDocument", f"{unknown[0][:40]!r} is none of {', '.join(_KINDS)}.")
    if len(found) > _MOST:
        raise refusal("BlockListTooLong")
    return found


def _pieces(call: BlobCall, listed: list[tuple[str, str]], old: OldBlob) -> Iterator[Piece]:
    waiting, known = dict(call.blocks.waiting(call.request.target)), offsets(old.blocks)
    for kind, block in listed:
        if kind != "Committed" and block in waiting:
            yield Piece(block, waiting[block], None)
        elif kind != "Uncommitted" and block in known:
            yield Piece(block, known[block][1], known[block][0])
        else:
            raise refusal("InvalidBlockList", f"It is {kind} {base64.b64encode(bytes.fromhex(block)).decode()}.")


def _copy(call: BlobCall, piece: Piece, old: OldBlob, into: int, position: int) -> None:
    source = old.fd
    if piece.start is None or source is None:
        try:
            source = os.open(call.blocks.path(call.request.target, piece.id), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise refusal("InvalidBlockList", "Another request has made a blob of it meanwhile.") from None
    try:
        _copy_bytes(source, piece.start or 0, piece.size, into, position)
    finally:
        if source != old.fd:
            os.close(source)


def _copy_bytes(source: int, start: int, size: int, into: int, position: int) -> None:
    for done in range(0, size, _PIECE):
        write(into, [os.pread(source, min(_PIECE, size - done), start + done)], position + done)


def _show(root: Element, name: str, blocks: Listed) -> None:
    parent = xml.add(root, name)
    for block, size in blocks:
        xml.add_all(xml.add(parent, "Block"), {"Name": base64.b64encode(bytes.fromhex(block)).decode(), "Size": size})


def block_id(text: str) -> str:
    """Returns a block's id in hexadecimal digits, which the name of a file can be."""
    try:
        found = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        found = b""
    if not 1 <= len(found) <= 64:
        raise refusal("InvalidBlockId", f"This one is {text[:80]!r}.")
    return found.hex()
