"""No way out of a share: not through names, not through links that a job made, not through odd files."""

from __future__ import annotations

import os
import socket
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.fileshare import ShareClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchhvd.errors import ServiceError
from batchhvd.service.storage.disk import tree
from batchhvd.service.storage.protocol.sas import account_text
from batchhvd.service.storage.protocol.shared_key import sign
from tests.wire.files.conftest import ACCOUNT, KEYS, OTHER, Service

SECRET = b"what lies outside of every share"


@pytest.fixture
def outside(service: Service, tmp_path: Path) -> Path:
    """A directory beside the shares with a secret in it; nothing in it may change."""
    target = tmp_path / "outside"
    target.mkdir()
    (target / "secret").write_bytes(SECRET)
    return target


def raw(
    service: Service, method: str, path: str, query: str, headers: dict[str, str] | None = None, body: bytes = b""
) -> Any:
    """Sends a request exactly as written, with a link that permits everything in the account."""
    head = {"Host": "127.0.0.1", "Content-Length": str(len(body)), "Connection": "close", **(headers or {})}
    lines = [f"{method} {path}?{query}&{everything()} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items())]
    host, port = service.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape") + body)
        answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    status = int(answer.split(b" ", 2)[1])
    return status, answer.partition(b"\r\n\r\n")[2]


def everything() -> str:
    """Returns an account link that permits everything."""
    query = {"sv": "2022-11-02", "ss": "f", "srt": "sco", "sp": "rwdlc", "se": "2999-01-01"}
    query["sig"] = sign(KEYS[ACCOUNT][0], account_text(query, ACCOUNT))
    return "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())


def attempts(share: ShareClient, name: str) -> Iterator[Any]:
    """Yields everything that a client could try with a path."""
    file, directory = share.get_file_client(name), share.get_directory_client(name)
    yield lambda: file.download_file().readall()
    yield file.get_file_properties
    yield lambda: file.upload_range(b"evil", 0, 4)
    yield lambda: file.clear_range(0, 512)
    yield lambda: file.resize_file(1)
    yield lambda: file.set_file_metadata({"a": "b"})
    yield lambda: list(getattr(file, "list_ranges", file.get_ranges)())
    yield lambda: share.get_file_client("copy").start_copy_from_url(file.url)
    yield lambda: list(directory.list_directories_and_files())
    yield directory.get_directory_properties
    yield lambda: directory.set_directory_metadata({"a": "b"})


def all_refused(share: ShareClient, name: str) -> None:
    """Checks that nothing works on a path."""
    for attempt in attempts(share, name):
        with pytest.raises(HttpResponseError) as caught:
            attempt()
        assert caught.value.status_code in (403, 404, 409), caught.value


@pytest.mark.parametrize("relative", [False, True])
def test_links_that_lead_out_lead_nowhere(share: ShareClient, folder: Path, outside: Path, relative: bool) -> None:
    target = Path(os.path.relpath(outside, folder)) if relative else outside
    (folder / "dir").symlink_to(target)
    (folder / "file").symlink_to(target / "secret")
    (folder / "chain").symlink_to("dir/secret")
    (folder / "sub").mkdir()
    (folder / "sub" / "up").symlink_to("../..")
    for name in ("dir", "dir/secret", "file", "chain", "sub/up", f"sub/up/{share.share_name}/file"):
        all_refused(share, name)
    for attempt in (
        lambda: share.get_file_client("dir/new").upload_file(b"evil"),
        lambda: share.create_directory("dir/new"),
        lambda: share.get_file_client("dir/secret").delete_file(),
        lambda: share.get_file_client("dir/secret").rename_file("stolen"),
        lambda: share.get_file_client("sub/up/new").upload_file(b"evil"),
    ):
        with pytest.raises(HttpResponseError) as caught:
            attempt()
        assert caught.value.status_code in (403, 404, 409)
    share.get_file_client("mine").upload_file(b"mine")
    with pytest.raises(HttpResponseError):
        share.get_file_client("mine").rename_file("dir/mine")
    assert {entry["name"] for entry in share.list_directories_and_files()} == {"mine", "sub"}
    assert list(outside.iterdir()) == [outside / "secret"]
    assert (outside / "secret").read_bytes() == SECRET


def test_a_link_to_another_share_or_account_leads_out_too(service: Service, share: ShareClient, folder: Path) -> None:
    other = service.share("victim", account=OTHER)
    other.create_share()
    other.get_file_client("f").upload_file(b"theirs")
    path = service.files.directory(OTHER, "victim")
    assert path is not None
    (folder / "theirs").symlink_to(path)
    (folder / "theirs-too").symlink_to(f"../../{OTHER}/victim/f")
    (folder / "notes").symlink_to(service.root / ".files" / "sidecar.sqlite")
    for name in ("theirs", "theirs/f", "theirs-too", "notes"):
        all_refused(share, name)
    assert (path / "f").read_bytes() == b"theirs"
    other.delete_share()


def test_replacing_or_deleting_a_link_touches_the_link_alone(share: ShareClient, folder: Path, outside: Path) -> None:
    (folder / "file").symlink_to(outside / "secret")
    share.get_file_client("file").upload_file(b"mine")
    assert (folder / "file").read_bytes() == b"mine"
    assert not (folder / "file").is_symlink()
    (folder / "again").symlink_to(outside / "secret")
    share.get_file_client("again").delete_file()
    assert not (folder / "again").is_symlink()
    assert (outside / "secret").read_bytes() == SECRET


def test_links_that_stay_inside_work_as_they_do_for_the_job(share: ShareClient, folder: Path) -> None:
    (folder / "runs" / "5").mkdir(parents=True)
    (folder / "runs" / "5" / "model.h5").write_bytes(b"weights")
    (folder / "latest").symlink_to("runs/5")
    (folder / "model.h5").symlink_to("latest/model.h5")
    (folder / "runs" / "absolute").symlink_to(folder / "runs" / "5" / "model.h5")
    for name in ("latest/model.h5", "model.h5", "runs/absolute"):
        assert share.get_file_client(name).download_file().readall() == b"weights"
        assert share.get_file_client(name).get_file_properties().size == 7
    share.get_file_client("latest/new").upload_file(b"new", metadata={"k": "v"})
    assert (folder / "runs" / "5" / "new").read_bytes() == b"new"
    assert share.get_file_client("runs/5/new").get_file_properties().metadata == {"k": "v"}
    listed = {entry["name"]: entry["is_directory"] for entry in share.list_directories_and_files()}
    assert listed == {"model.h5": False, "runs": True}  # a link to a directory would make trees endless
    assert sorted(entry["name"] for entry in share.list_directories_and_files("latest")) == ["model.h5", "new"]


def test_links_in_a_circle_end(share: ShareClient, folder: Path) -> None:
    (folder / "a").symlink_to("b")
    (folder / "b").symlink_to("a")
    (folder / "self").symlink_to(".")
    all_refused(share, "a")
    all_refused(share, "a/f")
    with pytest.raises(HttpResponseError) as caught:
        share.get_file_client("self/" * 45 + "f").upload_file(b"1")
    assert caught.value.status_code == 404


def test_what_is_no_file_is_neither_read_nor_waited_for(share: ShareClient, folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    os.mknod(folder / "socket", stat.S_IFSOCK | 0o600)
    for name in ("pipe", "socket"):
        all_refused(share, name)
    assert list(share.list_directories_and_files()) == []


@pytest.mark.parametrize(
    "path",
    [
        "..", ".", "a/..", "../other", "%2e%2e", "%2E%2E/other", "..%2Fother", "%2F..%2F..%2Fother", "a%2F..%2F..",
        "%00", "a%00b", "a/%2e%2e/b", "%2e", ".%2e", "a/./b",
    ],
)  # fmt: skip
def test_dots_and_nul_are_refused_however_they_are_written(service: Service, share: ShareClient, path: str) -> None:
    for method, query in (("GET", "comp=list&restype=directory"), ("GET", "x="), ("PUT", "restype=directory")):
        status, body = raw(service, method, f"/{ACCOUNT}/{share.share_name}/{path}", query)
        assert status == 400, (method, query, body)
        assert b"InvalidResourceName" in body


@pytest.mark.parametrize("path", ["/../x/f", "/.files/staging", "//etc/passwd", "/%2e%2e/etc", "*", "/x/..%2f.files/f"])
def test_paths_that_are_not_in_an_account_are_refused(service: Service, path: str) -> None:
    status, _ = raw(service, "GET", path, "x=")
    assert status in (400, 403)


def test_an_absolute_path_is_one_inside_the_share(service: Service, share: ShareClient, folder: Path) -> None:
    status, _ = raw(service, "PUT", f"/{ACCOUNT}/{share.share_name}/%2Fetc", "restype=directory")
    assert status == 201
    assert (folder / "etc").is_dir()


@pytest.mark.parametrize("path", ["door/secret", "door"])
def test_what_turns_into_a_link_while_it_is_used_leads_nowhere(
    share: ShareClient, folder: Path, outside: Path, path: str
) -> None:
    harmless = folder / "real" if path == "door" else folder / "real" / "secret"
    harmless.parent.mkdir(exist_ok=True)
    harmless.write_bytes(b"harmless")
    (folder / "link").symlink_to(outside / "secret" if path == "door" else outside)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for source, target in (("real", "door"), ("door", "real"), ("link", "door"), ("door", "link")):
                os.rename(folder / source, folder / target)

    thread = threading.Thread(target=swap)
    thread.start()
    seen: set[bytes] = set()
    looks, deadline = 0, time.monotonic() + 20
    try:
        while (looks < 500 or len(seen) < 2) and time.monotonic() < deadline:
            looks += 1
            try:
                with tree.file(folder, path.split("/")) as (fd, _):
                    seen.add(os.read(fd, 100))
            except (ServiceError, OSError):
                seen.add(b"")
    finally:
        stop.set()
        thread.join()
    assert seen == {b"harmless", b""}


def test_a_link_that_comes_between_the_look_and_the_opening_is_not_followed(
    folder: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "f").symlink_to(outside / "secret")
    monkeypatch.setattr(tree._Walk, "_is_link", lambda self, name: False)
    with pytest.raises(OSError, match="symbolic links"), tree.file(folder, ["f"]):
        pass


_NAMES = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=12),
    st.sampled_from(["..", ".", "...", "%2e%2e", "..%2f", "a\\..\\b", "~", "-", " ", "​", "𐏿", "e\u0301", "é", "con"]),
)


@given(st.lists(_NAMES, min_size=1, max_size=3), st.binary(max_size=50))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_name_goes_round_or_is_refused_and_nothing_gets_out(
    service: Service, share: ShareClient, folder: Path, parts: Any, data: Any
) -> None:
    before = outside_of(service.root, folder)
    try:
        for depth in range(1, len(parts)):
            directory = share.get_directory_client("/".join(parts[:depth]))
            if not directory.exists():
                directory.create_directory()
        file = share.get_file_client("/".join(parts))
        file.upload_file(data)
    except HttpResponseError as error:
        assert error.status_code in (400, 403, 404, 405, 409), error
    else:
        assert file.download_file().readall() == data
        path = [part for part in "/".join(parts).split("/") if part]
        assert folder.joinpath(*path).read_bytes() == data
        listed = [entry["name"] for entry in share.list_directories_and_files("/".join(path[:-1]))]
        assert path[-1] in listed
        file.delete_file()
    assert outside_of(service.root, folder) == before


def outside_of(root: Path, folder: Path) -> set[str]:
    """Returns every path under the root that is not in the share and not the service's own notes."""
    kept = {str(path) for path in root.rglob("*") if folder not in path.parents}
    return {path for path in kept if "/.files/" not in path}
