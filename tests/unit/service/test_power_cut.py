"""After a power cut each file holds its old or its new whole content: recorded writes, in all orders that POSIX allows.

POSIX promises of a file what was synced last, and of a folder the names that were synced last. Of what came later, any
part may be on the disk: none, some or all bytes of a file, the old or the new file under a name.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from batchhvd.engines.base import Task
from batchhvd.node.folder import durable as node_durable
from batchhvd.node.folder import records
from batchhvd.service import root_folder, tls
from batchhvd.service.scheduler import manifest
from batchhvd.service.store import durable
from tests.support.drilled import examples


@define
class Inode:
    """A file: what is written, and how much of it is certainly on the disk."""

    data: bytes = b""
    synced: int = 0

    def after_a_cut(self) -> set[bytes]:
        lengths = {self.synced, (self.synced + len(self.data)) // 2, len(self.data)}
        return {self.data[:length] for length in lengths}


@define
class Disk:
    """Records what is written, and knows what a power cut may leave."""

    fsyncs: bool = True
    files: dict[int, Any] = field(factory=dict)  # descriptor -> its inode, or a folder's path
    names: dict[str, list[Inode | None]] = field(factory=dict)  # what a name may lead to; the last is the present
    seen: dict[str, set[bytes | None]] = field(factory=dict)  # all that cuts so far could have left, by name

    def record(self, patch: pytest.MonkeyPatch) -> None:
        real = {name: getattr(os, name) for name in ("open", "write", "fsync", "replace", "link", "unlink", "close")}

        def opened(path: Any, flags: int, *rest: Any, **more: Any) -> int:
            descriptor: int = real["open"](path, flags, *rest, **more)
            if flags & os.O_DIRECTORY:
                self.files[descriptor] = str(path)
            elif flags & os.O_CREAT:
                self.files[descriptor] = Inode()
                self.point(str(path), self.files[descriptor])
            return descriptor

        def written(descriptor: int, data: bytes) -> int:
            if isinstance(self.files.get(descriptor), Inode):
                self.files[descriptor].data += bytes(data)
                self.cut()
            return int(real["write"](descriptor, data))

        def synced(descriptor: int) -> None:
            found = self.files.get(descriptor)
            if isinstance(found, Inode) and self.fsyncs:
                found.synced = len(found.data)
            for name in self.names if isinstance(found, str) else ():
                if os.path.dirname(name) == found:
                    del self.names[name][:-1]
            real["fsync"](descriptor)

        def moved(kind: str) -> Callable[..., None]:
            def move(old: Any, new: Any, **more: Any) -> None:
                real[kind](old, new, **more)
                self.point(str(new), self.names.get(str(old), [None])[-1])

            return move

        def closed(descriptor: int) -> None:
            self.files.pop(descriptor, None)
            real["close"](descriptor)

        for name, fake in {"open": opened, "write": written, "fsync": synced, "close": closed}.items():
            patch.setattr(os, name, fake)
        for name in ("replace", "link"):
            patch.setattr(os, name, moved(name))

    def point(self, name: str, inode: Inode | None) -> None:
        self.names.setdefault(name, [None]).append(inode)
        self.cut()

    def cut(self) -> None:
        """Notes all that a power cut at this moment could leave under each name."""
        for name in self.names:
            self.seen.setdefault(name, set()).update(self.left(name))

    def left(self, name: str) -> set[bytes | None]:
        """Returns what a power cut now may leave under a name; None for what was there before."""
        return {data for inode in self.names[name] for data in (inode.after_a_cut() if inode else [None])}


def task(folder: Path) -> Path:
    made = Task(name="t", folder=str(folder), nodes=("a",), ranks=(1,), launch="single", command="x", logs=str(folder))
    return made.write()


def announce(root: Path) -> None:
    root_folder.announce(root, "http://x", "processes", 0.0, {})


# What is written, whether it has to be there after the call, and how it is written.
WRITES: dict[str, tuple[bool, Callable[[Path], object]]] = {
    "node-0.json": (False, lambda root: records.write_json(root / "node-0.json", {"a": 1})),
    "slurm.json": (True, lambda root: records.write_json(root / "slurm.json", {"a": 1}, lasting=True)),
    "stop.json": (False, lambda root: records.declare(root, "rank", error="no")),
    "task.json": (False, task),
    "runner": (False, lambda root: node_durable.replace(root / "runner", b"x" * 99)),
    "token": (True, root_folder.RootSecret),
    "endpoint": (True, announce),
    "service.json": (True, announce),
    "tls/server.pem": (True, tls.identity),
    "tls/server.key": (True, tls.identity),
    "ca.pem": (True, tls.identity),
    "manifest.json": (True, lambda root: manifest.seal([root], "j", "t")),
    "any": (True, lambda root: durable.replace(root / "any", "text")),
}


@pytest.fixture
def patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def check(disk: Disk, path: Path, lasting: bool) -> None:
    name, new = str(path), path.read_bytes()
    assert disk.seen[name] <= {None, new}, "a power cut may leave a part"
    if lasting:
        assert disk.left(name) == {new}, "a power cut may take it away after the call"


@pytest.mark.parametrize("what", WRITES)
def test_a_power_cut_leaves_the_old_or_the_new(what: str, tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    disk.record(patch)
    lasting, write = WRITES[what]
    write(tmp_path)
    patch.undo()
    check(disk, tmp_path / what, lasting)


@pytest.mark.parametrize("what", WRITES)
def test_without_the_fsync_it_does_not(what: str, tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    disk = Disk(fsyncs=False)
    disk.record(patch)
    lasting, write = WRITES[what]
    write(tmp_path)
    patch.undo()
    with pytest.raises(AssertionError, match="a power cut may leave a part"):
        check(disk, tmp_path / what, lasting)


FRESH = [name for name in WRITES if name != "any"]


@given(order=st.lists(st.sampled_from(FRESH), min_size=1, max_size=6), data=st.data())
@examples(20, 300)
def test_whatever_a_power_cut_leaves_the_next_start_reads(order: list[str], data: st.DataObject) -> None:
    disk = Disk()
    with tempfile.TemporaryDirectory() as place:
        before, after = Path(place, "before"), Path(place, "after")
        before.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            disk.record(patch)
            for what in order:
                WRITES[what][1](before)
        for name in sorted(disk.seen):  # what each may hold after a cut at some moment is independent of the others
            left = data.draw(st.sampled_from(sorted(disk.seen[name], key=repr)))
            target = after / Path(name).relative_to(before)
            target.parent.mkdir(parents=True, exist_ok=True)
            if left is not None and not target.name.startswith("."):
                target.write_bytes(left)
        after.mkdir(exist_ok=True)
        assert len(root_folder.RootSecret(after)()) >= 43
        assert tls._good(tls.identity(after))
        records.read_task(after)
        for record in ("node-0.json", "service.json", "manifest.json", "slurm.json", "stop.json"):
            if (after / record).exists():
                assert isinstance(json.loads((after / record).read_text()), dict)


@pytest.mark.parametrize("text", ["", "\n", "short", "é" * 50, "x" * 42])
def test_a_secret_that_is_none_is_refused_at_start(text: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(text)
    with pytest.raises(OSError, match="token holds no secret of at least 43 characters; remove the file"):
        root_folder.RootSecret(tmp_path)


@pytest.mark.parametrize("name", ["ca.pem", "tls/server.pem", "tls/server.key"])
@pytest.mark.parametrize("content", ["another", "", "no certificate"])
def test_certificates_that_do_not_belong_together_are_made_again(name: str, content: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    tls.identity(tmp_path), tls.identity(other)
    (tmp_path / name).write_bytes((other / name).read_bytes() if content == "another" else content.encode())
    assert not tls._good(tls.Identity(tmp_path / "ca.pem", tmp_path / "tls/server.pem", tmp_path / "tls/server.key"))
    assert tls._good(tls.identity(tmp_path))
