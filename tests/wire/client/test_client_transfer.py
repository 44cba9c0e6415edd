"""Files to and from a share: all of them, only the changed ones, whole or not at all."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batchhvd import ConflictError, FileShare, NotFoundError, SpecError, UnavailableError
from batchhvd.transfer.checksum import PIECE
from tests.support.proxy import Cutter, through

NAMES = ["plain.txt", "with space.txt", "naïve-日本語.h5", "a+b.txt", "50% done.txt", "keras_cifar10_trained_model.h5"]


@pytest.fixture
def share(place: Any) -> FileShare:
    made: FileShare = place.share.account.create_share(f"t{os.urandom(4).hex()}")
    return made


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "here ü"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def paths(share: FileShare) -> list[str]:
    return [entry.path for entry in share.files(recursive=True) if not entry.is_directory]


def test_names_come_back_as_they_were(share: FileShare, here: Path, service: Any) -> None:
    for name in NAMES:
        (here / name).write_text(name)
        share.upload(name, to="cifar")
    assert sorted(paths(share)) == sorted(f"cifar/{name}" for name in NAMES)
    directory = service.root / "shares" / share.account.name / share.name / "cifar"
    assert sorted(path.name for path in directory.iterdir() if not path.name.startswith(".")) == sorted(NAMES)
    for name in NAMES:
        done = share.download(f"cifar/{name}", "back/")
        assert done.paths == (f"back/{name}",)
        assert (here / "back" / name).read_text() == name
        share.delete_file(f"cifar/{name}")
        share.delete_file(f"cifar/{name}")
    assert paths(share) == []


@pytest.mark.parametrize(
    ("source", "to", "expected"),
    [
        ("train.py", "", ["train.py"]),
        ("train.py", "cifar", ["cifar/train.py"]),
        ("train.py", "a/b/other.py", ["a/b/other.py"]),
        ("train.py", "no/such/parent", ["no/such/parent/train.py"]),
        ("data", "x", ["x/data/deep/er/c.npz", "x/data/one.npz", "x/data/two.txt"]),
        ("data/", "", ["data/deep/er/c.npz", "data/one.npz", "data/two.txt"]),
        ("data/**/*.npz", "x", ["x/deep/er/c.npz", "x/one.npz"]),
        ("data/*", "x", ["x/deep/er/c.npz", "x/one.npz", "x/two.txt"]),
    ],
)
def test_upload_goes_where_it_says(share: FileShare, here: Path, source: str, to: str, expected: list[str]) -> None:
    (here / "data/deep/er").mkdir(parents=True)
    for name in ("train.py", "data/one.npz", "data/two.txt", "data/deep/er/c.npz"):
        (here / name).write_text(name)
    done = share.upload(source, to=to)
    assert sorted(done.paths) == paths(share) == expected
    assert (done.files, done.unchanged) == (len(expected), 0)


@pytest.mark.parametrize(
    ("path", "to", "expected"),
    [
        ("a/b/c.h5", ".", ["c.h5"]),
        ("a/b/c.h5", "new.h5", ["new.h5"]),
        ("a/b/c.h5", "folder/", ["folder/c.h5"]),
        ("a", ".", ["a/b/c.h5", "a/b/d.txt", "a/e.h5"]),
        ("a/b", "out", ["out/b/c.h5", "out/b/d.txt"]),
        ("/a/**/*.h5", "out", ["out/b/c.h5", "out/e.h5"]),
        ("*/*.h5", "out", ["out/a/e.h5"]),
        ("", "all", ["all/a/b/c.h5", "all/a/b/d.txt", "all/a/e.h5"]),
    ],
)
def test_download_goes_where_it_says(share: FileShare, here: Path, path: str, to: str, expected: list[str]) -> None:
    for name in ("a/b/c.h5", "a/b/d.txt", "a/e.h5"):
        (here.parent / "x").write_text(name)
        share.create_directory(name.rpartition("/")[0])
        share._client().get_file_client(name).upload_file(name.encode())
    done = share.download(path, to)
    found = sorted(str(file.relative_to(here)) for file in here.rglob("*") if file.is_file())
    assert found == sorted(os.path.normpath(name) for name in done.paths) == expected


def test_only_what_changed_is_copied(share: FileShare, here: Path) -> None:
    for number in range(5):
        (here / f"{number}.bin").write_bytes(os.urandom(1000))
    assert share.upload("*.bin").files == 5
    assert (share.upload("*.bin").files, share.upload("*.bin").unchanged) == (0, 5)
    (here / "3.bin").write_bytes(os.urandom(1000))  # of the same size
    assert share.upload("*.bin").files == 1
    first = share.download("*.bin", "back")
    assert (first.files, first.bytes) == (5, 5000)
    again = share.download("*.bin", "back")
    assert (again.files, again.unchanged, again.bytes) == (0, 5, 0)
    assert (here / "back/3.bin").read_bytes() == (here / "3.bin").read_bytes()


def test_what_a_job_changed_behind_its_back_is_copied(share: FileShare, here: Path, service: Any) -> None:
    (here / "model.h5").write_bytes(b"1" * 1000)
    share.upload("model.h5")
    inside = service.root / "shares" / share.account.name / share.name / "model.h5"
    inside.write_bytes(b"2" * 1000)
    assert share.download("model.h5").files == 1
    assert (here / "model.h5").read_bytes() == b"2" * 1000


@pytest.mark.parametrize("size", [0, 1, PIECE, PIECE + 1, 3 * PIECE + 17])
def test_sizes(share: FileShare, here: Path, size: int) -> None:
    data = os.urandom(size)
    (here / "x.bin").write_bytes(data)
    seen: list[tuple[int, int]] = []
    done = share.upload("x.bin", progress=lambda now, total: seen.append((now, total)))
    assert (done.bytes, seen[-1]) == (size, (size, size))
    share.download("x.bin", "y.bin", progress=lambda now, total: seen.append((now, total)))
    assert (here / "y.bin").read_bytes() == data
    assert seen[-1] == (size, size)
    assert str(done).startswith(f"1 file, {size} bytes in ")


def interrupted(copy: Callable[[], Any]) -> None:
    with pytest.raises((UnavailableError, ConflictError)):
        copy()


def test_an_upload_that_was_cut_goes_on(place: Any, share: FileShare, here: Path, service: Any) -> None:
    data = os.urandom(6 * PIECE)
    (here / "big.bin").write_bytes(data)
    inside = service.root / "shares" / share.account.name / share.name / "big.bin"
    _stopping_after(2, share, lambda: share.upload("big.bin"))
    assert inside.stat().st_size == len(data) and inside.read_bytes() != data
    again = share.upload("big.bin")
    assert again.bytes <= 4 * PIECE
    assert inside.read_bytes() == data
    assert share.upload("big.bin").unchanged == 1


def _stopping_after(pieces: int, share: FileShare, copy: Callable[[], Any]) -> None:
    """Runs a transfer and takes the network away after some pieces."""
    transport: Any = getattr(share._client()._pipeline._transport, "_transport")  # noqa: B009  # not annotated
    send, left, lock = transport.send, [pieces], threading.Lock()

    def limited(request: Any, **options: Any) -> Any:
        if "comp=range&" in f"{request.url}&" or (request.method == "GET" and "x-ms-range" in request.headers):
            with lock:
                left[0] -= 1
                if left[0] < 0:
                    raise ConnectionError("cut")
        return send(request, **options)

    transport.send = limited
    try:
        with pytest.raises(ConnectionError):
            copy()
    finally:
        transport.send = send


def test_ctrl_c_ends_a_transfer_with_the_piece_that_is_under_way(share: FileShare, here: Path) -> None:
    (here / "big.bin").write_bytes(os.urandom(12 * PIECE))
    seen: list[int] = []

    def interrupt(done: int, total: int) -> None:
        seen.append(done)
        if len(seen) == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        share.upload("big.bin", progress=interrupt)
    assert max(seen) < 12 * PIECE
    assert share.upload("big.bin").bytes < 12 * PIECE
    share.download("big.bin", "copy.bin")
    assert (here / "copy.bin").read_bytes() == (here / "big.bin").read_bytes()


def test_a_download_that_was_cut_goes_on(share: FileShare, here: Path) -> None:
    data = os.urandom(8 * PIECE)
    (here / "big.bin").write_bytes(data)
    share.upload("big.bin")
    (here / "big.bin").unlink()
    _stopping_after(5, share, lambda: share.download("big.bin"))
    assert not (here / "big.bin").exists()
    again = share.download("big.bin")
    assert again.bytes < len(data)
    assert (here / "big.bin").read_bytes() == data
    assert [path.name for path in here.iterdir()] == ["big.bin"]


@pytest.mark.parametrize("times", [1, 100])
def test_a_file_that_is_written_while_it_is_read(share: FileShare, here: Path, service: Any, times: int) -> None:
    (here / "big.bin").write_bytes(b"a" * 3 * PIECE)
    share.upload("big.bin")
    inside = service.root / "shares" / share.account.name / share.name / "big.bin"
    transport: Any = getattr(share._client()._pipeline._transport, "_transport")  # noqa: B009  # not annotated
    send, left, letter = transport.send, [times], iter("bcdefghijklmnopqrstuvwxyz" * 8)

    def writing(request: Any, **options: Any) -> Any:
        answer = send(request, **options)
        if request.method == "GET" and left[0]:
            left[0] -= 1
            with inside.open("r+b") as file:
                file.write(next(letter).encode() * 3 * PIECE)
        return answer

    transport.send = writing
    try:
        if times == 1:
            share.download("big.bin", "copy.bin")
            assert (here / "copy.bin").read_bytes() == b"b" * 3 * PIECE
        else:
            with pytest.raises(ConflictError, match="Download it when the job has ended"):
                share.download("big.bin", "copy.bin")
            assert [path.name for path in here.iterdir()] == ["big.bin"]
    finally:
        transport.send = send


def test_a_bad_network(place: Any, share: FileShare, here: Path, service: Any, tmp_path: Path) -> None:
    proxy = Cutter(lambda: service.url, most=900_000)
    session = through(proxy, service.root, tmp_path / "via")
    bad = session.group(place.group.name).storage_account(share.account.name).share(share.name)
    data = {f"{number}.bin": os.urandom(300_000) for number in range(30)}
    for name, content in data.items():
        (here / name).write_bytes(content)
    _until_whole(lambda: bad.upload("*.bin"))
    _until_whole(lambda: bad.download("*.bin", "back"))
    assert {name: (here / "back" / name).read_bytes() for name in data} == data
    assert proxy.cuts > 2
    proxy.close()


def _until_whole(copy: Callable[[], Any]) -> None:
    for _ in range(20):
        try:
            copy()
        except (UnavailableError, NotFoundError):
            continue
        return
    raise AssertionError("it never came to an end")


def test_a_file_that_is_not_there_leaves_nothing(share: FileShare, here: Path) -> None:
    share.create_directory("a")
    for path in ("a/missing.py", "nowhere/missing.py", "a", "a/*.h5", ""):
        with pytest.raises(NotFoundError, match=r"share\.files\("):
            share.download(path, "missing.py")
    with pytest.raises(SpecError, match=r"no file 'missing\.py' here"):
        share.upload("missing.py")
    with pytest.raises(NotFoundError):
        list(share.files("nowhere"))
    assert list(here.iterdir()) == []
    with pytest.raises(NotFoundError, match="share 'nosuchshare' cannot be"):
        (here / "x").write_text("x")
        share.account.share("nosuchshare").upload("x")


def test_a_directory_where_a_file_is(share: FileShare, here: Path) -> None:
    (here / "x").write_text("x")
    share.upload("x")
    with pytest.raises(ConflictError):
        share.create_directory("x/y")
    with pytest.raises(ConflictError):
        share.create_directory("x")


def test_what_exists_and_what_is_deleted(share: FileShare, here: Path) -> None:
    (here / "ä.txt").write_text("text")
    share.upload("ä.txt", to="a/b")
    share.upload("ä.txt", to="a")
    share.create_directory("a/empty")
    assert share.file_exists("a/b/ä.txt") and share.file_exists("/a/ä.txt") and not share.file_exists("a/b")
    assert share.directory_exists("a/b") and not share.directory_exists("a/ä.txt") and not share.file_exists("none")
    found = {entry.path: entry for entry in share.files(recursive=True)}
    assert {path for path, entry in found.items() if entry.is_directory} == {"a", "a/b", "a/empty"}
    entry = found["a/b/ä.txt"]
    assert (entry.name, entry.size, entry.text()) == ("ä.txt", 4, "text")
    assert entry.download(here / "copy.txt").read_text() == "text"
    with pytest.raises(NotFoundError):
        found["a/b"].read()
    for _ in range(2):  # what is gone already is fine
        share.delete_file("a/b/ä.txt")
        share.delete_directory("a")
    assert list(share.files()) == []
    for delete in (gone := share.account.share("nosuchshare")).delete_file, gone.delete_directory:
        with pytest.raises(NotFoundError):
            delete("a")


def test_the_way_up(share: FileShare, place: Any) -> None:
    job = place.experiment.job("j")
    assert (job.experiment, job.workspace, job.group) == (place.experiment, place.workspace, place.group)
    assert (place.cluster.workspace, place.cluster.group) == (place.workspace, place.group)
    assert (share.account.group, share.group, share.group.session.group(place.group.name)) == (place.group,) * 3
