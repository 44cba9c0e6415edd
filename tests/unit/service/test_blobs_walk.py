"""The order of blobs: as their names sort, from any name on, whatever the tree."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchhvd.service.blobs.blocks import offsets
from batchhvd.service.blobs.walk import Walk
from batchhvd.service.storage.disk import names

PART = st.text(st.sampled_from("ab-0.é"), min_size=1, max_size=3).filter(lambda part: part not in (".", ".."))
NAME = st.lists(PART, min_size=1, max_size=3).map("/".join)


def plant(folder: Path, wanted: set[str]) -> list[bytes]:
    """Makes a file of each name that no other one is in the way of, and returns the names that are there, in order."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    made: set[str] = set()
    for name in sorted(wanted):
        if not any(name.startswith(f"{other}/") or other.startswith(f"{name}/") for other in made):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            made.add(name)
    return sorted(os.fsencode(name) for name in made)


@given(st.sets(NAME, max_size=12), NAME, st.sampled_from(["", "a", "a/", "b-", "é"]))
def test_a_walk_yields_the_names_in_order_from_one_on(wanted: set[str], low: str, prefix: str) -> None:
    folder = Path("/tmp") / f"walk-{os.getpid()}"
    try:
        there = plant(folder, wanted)
        start, begin = os.fsencode(low), os.fsencode(prefix)
        found = [blob.name for blob in Walk(folder, begin, start).blobs()]
        assert found == [name for name in there if name >= start and name.startswith(begin)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_a_page_in_the_middle_reads_no_directory_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        (tmp_path / f"d{number:02}").mkdir()
        (tmp_path / f"d{number:02}" / "x").touch()
    read: list[object] = []
    listed = names.names_in

    def counted(folder: int | Path, *, marked: bool = False) -> object:
        read.append(folder)
        return listed(folder, marked=marked)

    monkeypatch.setattr("batchhvd.service.blobs.walk.names_in", counted)
    walk = Walk(tmp_path, b"", b"d48/x").blobs()
    assert next(walk).name == b"d48/x"
    assert len(read) == 2  # the container and one directory


def test_blocks_lie_one_after_another() -> None:
    assert offsets([("a", 3), ("b", 2), ("a", 3)]) == {"a": (0, 3), "b": (3, 2)}
