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

from batchhvd.errors import ServiceError
from batchhvd.service.files.app import Files
from batchhvd.service.files.protocol.headers import TABLE
from batchhvd.service.files.protocol.permission import DEFAULT_KEY
from batchhvd.service.files.route import find
from batchhvd.service.storage.protocol.request import Request, Target
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
ACCOUNTS_OWN = ("comp=list&", "restype=service")  # queries of operations on an account
LEASE = "00000000-1111-2222-3333-444444444444"
POLICIES = b"<SignedIdentifiers><SignedIdentifier><Id>a</Id></SignedIdentifier></SignedIdentifiers>"
SETTINGS = (
    b"<StorageServiceProperties><Cors><CorsRule><AllowedOrigins>*</AllowedOrigins><AllowedMethods>GET</AllowedMethods>"
    b"<AllowedHeaders>*</AllowedHeaders><ExposedHeaders>*</ExposedHeaders><MaxAgeInSeconds>5</MaxAgeInSeconds>"
    b"</CorsRule></Cors></StorageServiceProperties>"
)
BODIES = [b"", b"x", bytes(512), bytes((4 << 20) + 1), b"<a>", b"<SignedIdentifiers/>", b"[", b'{"permission": 1}',
          b"<!DOCTYPE a [<!ENTITY b 'c'>]><SignedIdentifiers>&b;</SignedIdentifiers>", POLICIES[:-9], SETTINGS,
          b"<?xml version='1.0' encoding='nonsense'?><SignedIdentifiers/>", b"\xff\xfe<"]  # fmt: skip
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
    ("GET", "", {"x-ms-range": "bytes=99999-"}, b""),
    ("GET", "", {}, b""),
    ("HEAD", "", {}, b""),
    ("PUT", "comp=metadata", {"x-ms-meta-a": "1"}, b""),
    ("PUT", "comp=properties", {"x-ms-content-length": "6000"}, b""),
    ("PUT", "comp=rename", {"x-ms-file-rename-source": SOURCES[0], "x-ms-file-rename-replace-if-exists": "true"}, b""),
    ("PUT", "", {"x-ms-copy-source": SOURCES[1]}, b""),
    ("DELETE", "", {}, b""),
    ("PUT", "restype=share&comp=snapshot", {}, b""),
    ("PUT", "restype=share&comp=lease", {"x-ms-lease-action": "acquire", "x-ms-proposed-lease-id": LEASE}, b""),
    ("PUT", "comp=lease", {"x-ms-lease-action": "acquire", "x-ms-proposed-lease-id": LEASE}, b""),
    ("PUT", "comp=lease", {"x-ms-lease-action": "break"}, b""),
    ("GET", "restype=share&comp=acl", {}, b""),
    ("PUT", "restype=share&comp=acl", {}, POLICIES),
    ("PUT", "restype=share&comp=filepermission", {}, b'{"permission": "O:SYG:SYD:(A;;FA;;;SY)"}'),
    ("GET", "restype=share&comp=filepermission", {"x-ms-file-permission-key": DEFAULT_KEY}, b""),
    ("PUT", "restype=share&comp=undelete", {"x-ms-deleted-share-name": "other-share",
                                            "x-ms-deleted-share-version": "01DC60A1B2C3D4E5"}, b""),
    ("DELETE", "restype=share", {"x-ms-delete-snapshots": "include-leased"}, b""),
    ("GET", "comp=list&include=metadata,snapshots,deleted", {}, b""),
    ("PUT", "restype=service&comp=properties", {}, SETTINGS),
    ("GET", "restype=service&comp=properties", {"origin": "http://a.example"}, b""),
    ("GET", "comp=listhandles", {}, b""),
]  # fmt: skip
WRONG = {
    "x-ms-type": ["directory", ""], "x-ms-content-length": NUMBERS, "x-ms-range": RANGES, "range": RANGES,
    "x-ms-write": ["x", ""], "content-md5": ["x", "XUFAKrxLKna5cZ2REBfFkg=="], "x-ms-share-quota": NUMBERS,
    "x-ms-meta-a": ["é", "x" * 9000], "x-ms-meta-": ["1"], "x-ms-copy-source": SOURCES, "x-ms-source-range": RANGES,
    "x-ms-file-rename-source": SOURCES, "x-ms-file-creation-time": TIMES, "x-ms-file-last-write-time": TIMES,
    "x-ms-content-type": ["é"], "x-ms-range-get-content-md5": ["true", "x"], "x-ms-structured-body": ["x"],
    "if-match": ["*", '"x"'], "if-none-match": ["*", '"x"'], "if-modified-since": DATES, "if-unmodified-since": DATES,
    "x-ms-lease-id": [LEASE, LEASE[::-1], "x"], "x-ms-lease-action": ["renew", "change", "release", "break", "x"],
    "x-ms-lease-duration": ["-1", "15", "61", "x"], "x-ms-lease-break-period": NUMBERS,
    "x-ms-file-attributes": ["ReadOnly|Hidden", "None", "x", "|"], "x-ms-file-change-time": TIMES,
    "x-ms-file-permission": ["inherit", "O:SY", "abc", "AQAUhA=="], "x-ms-file-permission-format": ["binary", "x"],
    "x-ms-file-permission-key": [DEFAULT_KEY, "1*2", "preserve"], "x-ms-access-tier": ["Hot", "Premium", "x"],
    "x-ms-content-crc64": ["AAAAAAAAAAA=", "x"], "x-ms-source-content-crc64": ["AAAAAAAAAAA=", "x"],
    "x-ms-enabled-protocols": ["SMB", "NFS"], "x-ms-delete-snapshots": ["include", "x"],
    "x-ms-allow-trailing-dot": ["false", "x"], "x-ms-recursive": ["true"], "origin": ["http://a.example", "é"],
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
        share = choose(["other-share"] * 9 + ["..", "Bad", ""]) if rarely() or named else "myshare"
        if query.startswith(ACCOUNTS_OWN):
            share = path = ""
        headers = {"host": "127.0.0.1", **headers}
        for name in self._random.sample(self._names(method, path, query, headers), choose([0, 0, 1, 1, 3])):
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
        return scope, choose(BODIES) if rarely() else body

    def _names(self, method: str, path: str, query: str, headers: dict[str, str]) -> list[str]:
        """Returns names of headers to spoil: mostly those that the operation takes, as others end the request."""
        target = Target(ACCOUNT, "" if query.startswith(ACCOUNTS_OWN) else "myshare", (path,))
        target = target if path and target.share else Target(ACCOUNT, target.share)
        asked = Request(method, target, "", dict(pair.partition("=")[::2] for pair in query.split("&")), headers)
        try:
            known = TABLE.operations[find(asked).name]
        except ServiceError:
            return sorted(WRONG)
        rest = [name for name in WRONG if name in known or not name.startswith(("x-ms-", "if-"))]
        return sorted(WRONG) if self._random.random() < 0.1 else sorted(rest)


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
    files = Files(root, KEYS.get, kept_days=1)
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
