"""The file service's values: checksums, security descriptors, sectors, times of change, what a kill leaves noted."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchhvd.errors import ServiceError
from batchhvd.service.files.app import Files
from batchhvd.service.files.protocol import descriptor, permission
from batchhvd.service.storage.disk import content, sectors
from batchhvd.service.storage.disk.sidecar import Sidecar
from batchhvd.service.storage.disk.stretches import joined, united
from batchhvd.service.storage.protocol import crc64

# Both forms of one permission, as Azure gives them back.
SDDL = (
    "O:S-1-5-21-2127521184-1604012920-1887927527-21560751G:S-1-5-21-2127521184-1604012920-1887927527-513"
    "D:AI(A;;FA;;;SY)(A;;FA;;;BA)(A;;0x1200a9;;;S-1-5-21-397955417-626881126-188441444-3053964)S:NO_ACCESS_CONTROL"
)
BINARY = (
    "AQAUhGwAAACIAAAAAAAAABQAAAACAFgAAwAAAAAAFAD/AR8AAQEAAAAAAAUSAAAAAAAYAP8BHwABAgAAAAAABSAAAAAgAgAAAAAkAKkAEgABBQAA"
    "AAAABRUAAABZUbgXZnJdJWRjOwuMmS4AAQUAAAAAAAUVAAAAoGXPfnhLm1/nfIdwr/1IAQEFAAAAAAAFFQAAAKBlz354S5tf53yHcAECAAA="
)


def test_a_permissions_two_forms_become_each_other() -> None:
    assert descriptor.to_sddl(BINARY) == SDDL
    assert descriptor.to_binary(SDDL) == BINARY
    assert permission.check(SDDL) == SDDL


@pytest.mark.parametrize(
    "text",
    ["O:SYG:SYD:(A;;FA;;;BA)", "D:P(D;OICI;0x1;;;WD)(A;;FR;;;S-1-5-21-1-2-3-4)", "O:BAG:BU", "D:", permission.DEFAULT],
)
def test_a_permission_survives_its_binary_form(text: Any) -> None:
    assert permission.check(text) == text
    assert descriptor.to_sddl(descriptor.to_binary(text)) == text


@pytest.mark.parametrize(
    "text", ["", "abcde", "O:", "D:(A;;FA;;BA)", "O:SYG:SYD:(A;;FA;;;BA", "O:SY" + " " * 9000, "<&>"]
)
def test_what_is_no_permission_is_refused(text: Any) -> None:
    with pytest.raises(ServiceError) as caught:
        permission.check(text)
    assert caught.value.code == "InvalidHeaderValue"


@given(st.binary(max_size=120))
@settings(deadline=None)
def test_any_bytes_as_a_binary_permission_are_read_or_refused(raw: Any) -> None:
    for data in (raw, base64.b64decode(BINARY)[: len(raw)], base64.b64decode(BINARY)[:40] + raw):
        try:
            descriptor.to_sddl(base64.b64encode(data).decode())
        except ServiceError as error:
            assert error.status in (400, 501)


@given(st.lists(st.binary(max_size=40), max_size=5))
@settings(deadline=None)
def test_a_crc64_does_not_depend_on_the_pieces(pieces: Any) -> None:
    assert crc64._slowly(pieces) == crc64._slowly([b"".join(pieces)]) == crc64.crc64(pieces)


def test_a_crc64_is_the_one_of_its_definition() -> None:
    assert crc64._slowly([b"123456789"]) == 0xAE8B14860A799888
    assert crc64.encoded([b""]) == "AAAAAAAAAAA="


def test_a_touch_waits_for_the_systems_next_tick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a system whose clock for files stands still for some milliseconds."""
    stamp, calls = content.stamp, [0]

    def within_a_tick(fd: int, changed: int | None = None) -> None:
        calls[0] += 1
        if calls[0] > 3:
            stamp(fd, changed)

    monkeypatch.setattr(content, "stamp", within_a_tick)
    (tmp_path / "f").touch()
    fd = os.open(tmp_path / "f", os.O_RDWR)
    before = os.fstat(fd)
    after = content.touch(fd, before, before.st_mtime_ns)
    os.close(fd)
    assert after.st_mtime_ns == before.st_mtime_ns
    assert after.st_ctime_ns != before.st_ctime_ns


@given(st.lists(st.tuples(st.integers(0, 39), st.integers(1, 6)), max_size=8), st.integers(1, 20_000))
@settings(deadline=None, max_examples=60)
def test_sectors_with_data_are_the_ones_that_are_not_zeros(tmp_path_factory: Any, writes: Any, size: Any) -> None:
    path = tmp_path_factory.mktemp("sectors") / "f"
    with path.open("w+b") as file:
        file.truncate(size)
        for sector, length in writes:
            data = b"x" * max(0, min(length * 300, size - sector * 500))
            os.pwrite(file.fileno(), data, sector * 500)
        body = path.read_bytes()
        expected = [body[at : at + 512].strip(b"\0") != b"" for at in range(0, size, 512)]
        found = [False] * len(expected)
        last = -2
        for first, end in sectors.filled(file.fileno(), 0, size - 1):
            assert first > last + 1  # neighbours are one
            last = end
            for at in range(first // 512, end // 512 + 1):
                found[at] = True
        assert found == expected
        assert list(sectors.differing(file.fileno(), file.fileno(), size - 1)) == []


@given(st.lists(st.tuples(st.integers(0, 30_000), st.integers(0, 9000)), max_size=8), st.integers(1, 20_000))
@settings(deadline=None, max_examples=60)
def test_touched_sectors_differ_whatever_is_in_them(tmp_path_factory: Any, said: Any, size: Any) -> None:
    path = tmp_path_factory.mktemp("touched") / "f"
    with path.open("w+b") as file:
        file.truncate(size)
        os.pwrite(file.fileno(), b"x" * min(700, size), 0)
        touched = united((at, at + length) for at, length in said)
        found: dict[str, set[int]] = {"Range": set(), "ClearRange": set()}
        for kind, first, end in sectors.differing(file.fileno(), file.fileno(), size - 1, touched):
            assert end < size
            found[kind] |= set(range(first // 512, end // 512 + 1))
    wanted = {at for first, end in touched for at in range(first // 512, min(end, size - 1) // 512 + 1)}
    assert found["Range"] == {at for at in wanted if at * 512 < 700}
    assert found["ClearRange"] == {at for at in wanted if at * 512 >= 700}


def test_a_set_of_stretches_stays_small_and_forgets_none() -> None:
    said = [(at * 1000 + at % 7, at * 1000 + 99) for at in range(500)]
    kept: list[tuple[int, int]] = []
    for stretch in reversed(said):
        kept = joined(kept, stretch, most=20)
        assert len(kept) <= 20
    assert kept == united(kept)
    assert all(any(first <= a and b <= end for first, end in kept) for a, b in said)


def test_notes_of_what_a_kill_prevented_are_dropped_at_the_next_start(tmp_path: Path) -> None:
    Files(tmp_path, lambda account: None).close()
    notes = Sidecar(tmp_path / ".files" / "sidecar.sqlite")
    stamp, version = "2019-02-12T19:33:20.0000000Z", "01D4C30A1B2C3D4E"
    for key in (f"a/s@{stamp}", f"a/s!{version}", f"a/s!{version}@{stamp}", "a/s"):
        notes.put(key, "", 1, {"quota": 5})
    notes.close()
    Files(tmp_path, lambda account: None).close()
    notes = Sidecar(tmp_path / ".files" / "sidecar.sqlite")
    assert notes.shares("") == ["a/s"]
    notes.close()
