"""Records are read once for each version of their file, and never taken from an old version."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from batchhvd.engines import records, unchanged
from batchhvd.engines.unchanged import Unchanged
from batchhvd.node.folder.durable import DamagedRecordError
from batchhvd.node.folder.records import write_json
from batchhvd.node.folder.state import NodeState


class Reader:
    """Reads texts and counts how often."""

    def __init__(self) -> None:
        self.reads = 0
        self.look = Unchanged(str, self.read)

    def read(self, path: Path) -> str:
        self.reads += 1
        text = path.read_text()
        if text == "damaged":
            raise DamagedRecordError(path, "no")
        return text


@pytest.fixture
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes every file for one that was written a while ago."""
    monkeypatch.setattr(unchanged, "_FRESH", -3600.0)


@pytest.mark.usefixtures("no_grace")
def test_a_file_is_read_once_for_each_of_its_versions(tmp_path: Path) -> None:
    reader, path = Reader(), tmp_path / "record"
    assert reader.look(path) is None and reader.reads == 0
    for number, text in enumerate(("one", "two", "2wo"), 1):
        (tmp_path / "new").write_text(text)
        os.replace(tmp_path / "new", path)
        assert [reader.look(path) for _ in range(3)] == [text] * 3
        assert reader.reads == number
    path.unlink()
    assert reader.look(path) is None


def test_a_file_that_was_just_written_is_read_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, path = Reader(), tmp_path / "record"
    path.write_text("one")
    facts = path.lstat()
    monkeypatch.setattr(os, "lstat", lambda path: facts)  # a file system with coarse times
    for text in ("one", "two", "six"):
        path.write_text(text)
        assert reader.look(path) == text
    monkeypatch.setattr(time, "time", lambda: facts.st_ctime + 3)
    assert reader.look(path) == "six"
    path.write_text("ten")
    assert reader.look(path) == "six"


@pytest.mark.usefixtures("no_grace")
def test_errors_and_large_records_are_not_kept(tmp_path: Path) -> None:
    reader, path = Reader(), tmp_path / "record"
    path.write_text("damaged")
    for _ in range(2):
        with pytest.raises(DamagedRecordError):
            reader.look(path)
    path.write_text("x" * 20_000)
    assert [len(reader.look(path) or "") for _ in range(2)] == [20_000] * 2
    assert reader.reads == 4


@pytest.mark.usefixtures("no_grace")
def test_a_node_that_moves_on_is_seen_at_the_next_look(tmp_path: Path) -> None:
    facts = {"node": "n", "host": "h", "pid": 1, "started": 1.0, "ended": None, "reason": "", "error": "", "ranks": []}
    for state in (NodeState.PREPARING, NodeState.RUNNING, NodeState.ENDED):
        write_json(tmp_path / "node-0.json", {**facts, "state": state})
        for _ in range(2):
            (record,) = records.nodes(tmp_path, 1)
            assert record is not None and record["state"] == state
