"""Requests made at random, signed by a link that permits everything: no fault of the service, nothing outside.

``BATCHHVD_FUZZ=10000`` makes so many; the default is enough for every run.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import Any

from starlette.types import Message

from batchhvd.service.files.app import Files
from tests.wire.files.conftest import ACCOUNT, KEYS
from tests.wire.files.test_files_escape import everything

COUNT = int(os.environ.get("BATCHHVD_FUZZ", "1000"))
METHODS = ["GET", "HEAD", "PUT", "DELETE", "POST", "PATCH", "OPTIONS"]
PARTS = ["link", "pipe", "%2e%2e", "..", ".", "%00", "%2F", "%ff", "%F0%9F%98%80", "x" * 300, "%", "%zz", "+", " ", "",
         "a%2Fb", "%5C", "%0d%0a", "~", "a;b", "é"]  # fmt: skip
COMPS = ["acl", "lease", "bogus", "listhandles", "forceclosehandles", "snapshot", "copy", "stats"]
NUMBERS = ["0", "1", "5", "512", "-1", "1.5", "", "x", "9" * 25, str(1 << 42), str((1 << 42) + 1), str(1 << 63)]
RANGES = ["bytes=0-0", "bytes=0-4", "bytes=3-", "bytes=-3", "bytes=5-2", "bytes=-", "bytes=0-99999999999999999999", "",
          "items=0-1", "bytes=0-1,3-4", "bytes=4194304-8388608", "bytes=0-511"]  # fmt: skip
TIMES = ["now", "preserve", "2019-02-12T19:33:20.1234567Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "x", ""]
DATES = ["Tue, 12 Feb 2019 19:33:20 GMT", "x", "Tue, 99 Feb 2019 19:33:20 GMT", "", "Mon, 01 Jan 99999 00:00:00 GMT"]
SOURCES = [
    f"http://127.0.0.1/{ACCOUNT}/myshare/{name}" for name in ("a", "b", "dir", "link/secret", "%2e%2e/x", "", "pipe")
]
# What each operation takes when all is well, and its body.
SOUND = [
    ("PUT", "restype=share", {"x-ms-share-quota": "5"}, b""),
    ("GET", "restype=share", {}, b""),
    ("GET", "restype=share&comp=stats", {}, b""),
    ("PUT", "restype=share&comp=properties", {"x-ms-share-quota": "6"}, b""),
    ("PUT", "restype=share&comp=metadata", {"x-ms-meta-a": "1"}, b""),
    ("PUT", "restype=directory", {}, b""),
    ("GET", "restype=directory", {}, b""),
    ("DELETE", "restype=directory", {}, b""),
    ("GET", "restype=directory&comp=list&maxresults=2&prefix=a", {}, b""),
    ("PUT", "restype=directory&comp=rename", {"x-ms-file-rename-source": SOURCES[2]}, b""),
    ("PUT", "", {"x-ms-type": "file", "x-ms-content-length": "5000", "x-ms-content-type": "text/plain"}, b""),
    ("PUT", "comp=range", {"x-ms-range": "bytes=0-4", "x-ms-write": "update"}, b"hello"),
    ("PUT", "comp=range", {"x-ms-range": "bytes=0-4", "x-ms-write": "clear"}, b""),
    ("PUT", "comp=range", {"x-ms-range": "bytes=0-4", "x-ms-write": "update", "x-ms-copy-source": SOURCES[1],
                           "x-ms-source-range": "bytes=3-7"}, b""),
    ("GET", "comp=rangelist", {}, b""),
    ("GET", "", {"x-ms-range": "bytes=1-3"}, b""),
    ("GET", "", {}, b""),
    ("HEAD", "", {}, b""),
    ("PUT", "comp=metadata", {"x-ms-meta-a": "1"}, b""),
    ("PUT", "comp=properties", {"x-ms-content-length": "6000"}, b""),
    ("PUT", "comp=rename", {"x-ms-file-rename-source": SOURCES[0], "x-ms-file-rename-replace-if-exists": "true"}, b""),
    ("PUT", "", {"x-ms-copy-source": SOURCES[1]}, b""),
    ("DELETE", "", {}, b""),
]  # fmt: skip
WRONG = {
    "x-ms-type": ["directory", ""], "x-ms-content-length": NUMBERS, "x-ms-range": RANGES, "range": RANGES,
    "x-ms-write": ["x", ""], "content-md5": ["x", "XUFAKrxLKna5cZ2REBfFkg=="], "x-ms-share-quota": NUMBERS,
    "x-ms-meta-a": ["é", "x" * 9000], "x-ms-meta-": ["1"], "x-ms-copy-source": SOURCES, "x-ms-source-range": RANGES,
    "x-ms-file-rename-source": SOURCES, "x-ms-file-creation-time": TIMES, "x-ms-file-last-write-time": TIMES,
    "x-ms-content-type": ["é"], "x-ms-range-get-content-md5": ["true", "x"], "x-ms-structured-body": ["x"],
    "if-match": ["*", '"x"'], "if-none-match": ["*", '"x"'], "if-modified-since": DATES, "if-unmodified-since": DATES,
    "x-ms-version": ["9999-99-99", "é"], "host": ["x.file.core.windows.net", "otheraccount.file.x", "é"],
}  # fmt: skip


class Chance:
    """Makes requests from one seed, so that a failure can be made again: sound ones, with some things spoiled."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def request(self) -> tuple[dict[str, Any], bytes]:
        """Returns a request and its body."""
        choose = self._random.choice

        def rarely() -> bool:
            return self._random.random() < 0.08

        method, query, headers, body = choose(SOUND)
        named = "restype=share" in query
        path = (
            ""
            if named
            else "/".join(choose(PARTS) if rarely() else choose(["a", "b", "dir"]) for _ in range(choose([1, 1, 2])))
        )
        share = choose(["other-share", "..", "Bad", ""]) if rarely() or named else "myshare"
        headers = {"host": "127.0.0.1", **headers}
        for name in self._random.sample(sorted(WRONG), choose([0, 0, 1, 1, 3])):
            headers[name] = choose(WRONG[name])
        if rarely():
            query += (
                f"&comp={choose(COMPS)}&marker={choose(['YQ==', '!!', 'é'])}&maxresults={choose(NUMBERS)}&include=x"
            )
        scope = {
            "type": "http", "method": choose(METHODS) if rarely() else method, "scheme": "http", "client": ("::1", 1),
            "raw_path": f"/{ACCOUNT}/{share}/{path}".encode(), "query_string": f"{query}&{everything()}".encode(),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers.items()],
        }  # fmt: skip
        return scope, choose([b"", b"x", bytes(512), bytes((4 << 20) + 1)]) if rarely() else body


async def ask(files: Files, scope: dict[str, Any], body: bytes) -> int:
    """Sends a request and returns the status; fails where the answer is not well formed."""
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[Message] = []
    forever = asyncio.Event()

    async def receive() -> Message:
        if not left:
            await forever.wait()
        return left.pop()

    async def send(message: Message) -> None:
        sent.append(message)

    await asyncio.wait_for(files(scope, receive, send), 20)
    headers = dict(sent[0]["headers"])
    assert all(b"\r" not in value and b"\n" not in value for value in headers.values())
    length: int = sum(len(message["body"]) for message in sent[1:])
    if scope["method"] != "HEAD" and sent[0]["status"] != 304:
        assert length == int(headers[b"content-length"]), (scope, headers)
    return int(sent[0]["status"])


def furnish(root: Path) -> None:
    """Puts into the share what a job could have put there, where it is not there any more."""
    share = root / ACCOUNT / "myshare"
    if not (share / "dir").exists():
        (share / "dir").mkdir(parents=True)
    for name, size in (("a", 12), ("b", 9000)):
        if not (share / name).exists():
            (share / name).write_bytes(bytes(range(6)) * (size // 6))
    if not os.path.lexists(share / "link"):
        (share / "link").symlink_to(root.parent / "outside")
    if not os.path.lexists(share / "pipe"):
        os.mkfifo(share / "pipe")


def test_no_request_is_a_fault_of_the_service_or_gets_out(tmp_path: Path) -> None:
    root, outside = tmp_path / "Dateien ü", tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    files = Files(root, KEYS.get)
    seen: dict[int, int] = {}

    async def run() -> None:
        for seed in range(COUNT):
            furnish(root)
            scope, body = Chance(seed).request()
            status = await ask(files, scope, body)
            assert status < 500 or status == 501, (seed, status, scope)
            seen[status] = seen.get(status, 0) + 1

    asyncio.run(run())
    files.close()
    assert {200, 201, 202, 206, 400, 404, 409, 416, 501} <= set(seen), seen
    assert [path.name for path in tmp_path.rglob("*") if root not in path.parents and path != root] == [
        "outside",
        "secret",
    ]
    assert (outside / "secret").read_bytes() == b"secret"
    assert {path.name for path in root.iterdir()} <= {ACCOUNT, ".files"}
    assert {path.name for path in (root / ACCOUNT).iterdir()} <= {"myshare", "other-share"}
