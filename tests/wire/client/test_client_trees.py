"""Uploads of whatever lies in a folder: everything arrives under its own path, or is named before anything is sent."""

from __future__ import annotations

import os
import socket
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchhvd import BatchHvdError, FileShare, SpecError
from batchhvd.transfer import selection
from batchhvd.wire.connection import Connection

FEW = settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture
def share(place: Any) -> FileShare:
    made: FileShare = place.share.account.create_share(f"t{os.urandom(4).hex()}")
    return made


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as folder:  # short: a socket's path has 108 bytes at most
        monkeypatch.chdir(folder)
        yield Path(folder)


def stored(share: FileShare) -> dict[str, str | None]:
    return {entry.path: None if entry.is_directory else entry.text() for entry in share.files(recursive=True)}


def files(share: FileShare) -> dict[str, str | None]:
    return {path: text for path, text in stored(share).items() if text is not None}


def write(**files: str) -> None:
    for name, text in files.items():
        path = Path(name.replace("__", "/") + ".csv")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_pattern_keeps_the_folders_of_files_with_one_name(share: FileShare, here: Path) -> None:
    write(d__train__data="from train", d__valid__data="from valid", d__top="top")
    done = share.upload("d/**/*.csv", to="set")
    expected = {"set/top.csv": "top", "set/train/data.csv": "from train", "set/valid/data.csv": "from valid"}
    assert files(share) == expected and sorted(done.paths) == sorted(expected)
    share.download("set/**/*.csv", to="back")
    back = {f"set/{path.relative_to('back')}": path.read_text() for path in Path("back").rglob("*.csv")}
    assert back == expected


@pytest.mark.parametrize("pattern", ["d/**", "d/*/*.csv", "d/**/a/*", "d/**/[xz]*"])
def test_one_pattern_selects_the_same_files_in_both_directions(share: FileShare, here: Path, pattern: str) -> None:
    write(d__a__x="1", d__a__deep__y="2", d__b__x="3", d___hidden__x="4", d__top="5", d__b__a__z="6")
    Path("d/_hidden").rename("d/.hidden")
    Path("d/a/.dot.csv").write_text("7")
    share.upload("d")
    share.download(pattern, to="back")
    there = {str(path.relative_to("back")) for path in Path("back").rglob("*") if path.is_file()}
    share.upload(pattern, to="again")
    sent = {path.removeprefix("again/") for path in files(share) if path.startswith("again/")}
    assert sent == there


def test_two_sources_for_one_target_are_refused_before_anything_is_sent(
    share: FileShare, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(d__data="small", d__Data="capital")
    share.upload("d", to="here")
    assert files(share) == {"here/d/data.csv": "small", "here/d/Data.csv": "capital"}
    monkeypatch.setattr(Connection, "loopback", False)  # Azure's shares do not tell these names apart
    with pytest.raises(SpecError, match=r"would both become 'azure/d/data.csv' in the share; rename one of them"):
        share.upload("d", to="azure")
    monkeypatch.undo()
    assert not share.directory_exists("azure")


def test_two_sources_are_never_one_target() -> None:
    with pytest.raises(SpecError, match="would both become 'to/a/b'"):
        selection.targets({"a/b": Path("one"), "a//b": Path("two")}, "to")


def test_links_pipes_and_sockets_are_followed_or_named(share: FileShare, here: Path) -> None:
    write(f__train="train", real__a="outside")
    Path("f/empty/inner").mkdir(parents=True)
    Path("f/latest").symlink_to("/nonexistent/old-checkpoint")
    Path("f/data").symlink_to("../real")
    Path("f/loop").symlink_to(".")
    Path("f/same.csv").symlink_to("train.csv")
    os.mkfifo("f/pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("f/socket")
        with pytest.warns(UserWarning, match="not uploaded") as caught:
            done = share.upload("f")
    text = str(caught[0].message)
    for named in (
        "f/latest (a link that leads nowhere)",
        "f/data (a link to a folder; upload that folder itself)",
        "f/loop (a link to a folder",
        "f/pipe (a named pipe)",
        "f/socket (a socket)",
    ):
        assert named in text
    expected = {"f": None, "f/empty": None, "f/empty/inner": None, "f/same.csv": "train", "f/train.csv": "train"}
    assert stored(share) == expected and done.files == 2
    share.download("f", to="back")
    assert Path("back/f/empty/inner").is_dir()
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    "name", ["latest", "pipe", "loop", "nothing", "no/*.csv", "\0", "a\0*", "*/../*", "~x", "\udcff"]
)
def test_what_cannot_be_uploaded_by_itself(share: FileShare, here: Path, name: str) -> None:
    Path("latest").symlink_to("/nonexistent/old-checkpoint")
    Path("loop").symlink_to("loop")
    os.mkfifo("pipe")
    with pytest.raises(SpecError):
        share.upload(name)


@pytest.mark.parametrize(
    ("source", "to", "expected"),
    [
        ("model", "model.h5", ["model.h5"]),
        ("model", "a/model.h5", ["a/model.h5"]),
        ("model", "v1.2/", ["v1.2/model"]),
        ("model", "there.d", ["there.d/model"]),
        ("model", "plain", ["plain/model"]),
        ("train.csv", "other.csv", ["other.csv"]),
        ("train.csv", "v1.2", ["v1.2/train.csv"]),
    ],
)
def test_where_one_file_goes(share: FileShare, here: Path, source: str, to: str, expected: list[str]) -> None:
    Path("model").write_text("m")
    write(train="t")
    share.create_directory("there.d")
    share.upload(source, to=to)
    assert list(files(share)) == expected


@pytest.mark.parametrize("to", ["file/x", "file/", "/proc/none"])
def test_a_local_path_that_cannot_be_written(share: FileShare, here: Path, to: str) -> None:
    Path("file").write_text("f")
    Path("x").write_text("x")
    share.upload("x")
    with pytest.raises(SpecError, match="cannot be (made|written): "):
        share.download("x", to=f"{to}/x")


names = st.sampled_from(
    ["a", "b", ".h", "ü x", "a+%20", "a?b#c", "q'\"", "back\\slash", "new\nline", "\udcff", "A", "-"]
)
kinds = st.sampled_from(["file", "folder", "link", "out", "dead", "pipe"])
trees = st.lists(st.tuples(st.lists(names, min_size=1, max_size=3), kinds, names), max_size=6)


def grow(top: Path, tree: list[tuple[list[str], str, str]]) -> None:
    for parts, kind, other in tree:
        path = top.joinpath(*parts)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(path):
                continue
            if kind == "file":
                path.write_text(str(parts))
            elif kind == "folder":
                path.mkdir()
            elif kind == "pipe":
                os.mkfifo(path)
            else:
                path.symlink_to({"link": other, "out": "/usr/share", "dead": "/nowhere"}[kind])
        except OSError:  # something has this place already
            continue


@FEW
@given(
    trees, st.sampled_from(["{}", "{}/*", "{}/**/a", "{}/**", "{}/a"]), st.sampled_from(["", "to", "a/../b", "x\ny"])
)
def test_any_tree_is_uploaded_or_refused_in_a_sentence(
    share: FileShare, here: Path, tree: list[tuple[list[str], str, str]], pattern: str, to: str
) -> None:
    with tempfile.TemporaryDirectory(dir=here) as folder, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        grow(Path(folder), tree)
        try:
            done = share.upload(pattern.format(folder), to=to)
        except BatchHvdError as error:
            assert str(error)
        else:
            assert len(set(done.paths)) == len(done.paths) == done.files + done.unchanged
            sent = {path: share._client().get_file_client(path).download_file().readall() for path in done.paths}
            assert all(content for content in sent.values())
        assert len(said) <= 1
