"""A run stays with the engine that started it, whatever engine new tasks go to."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve

from batchhvd.engines.base import Task
from batchhvd.engines.fleet import Fleet
from batchhvd.errors import EngineError
from tests.support.world import Memory

RUNS: dict[str, Memory] = {}


class First(Memory):
    """An engine whose runs outlive it, as those of a batch system."""

    def __init__(self, where: str = "") -> None:
        super().__init__()
        self.where = where
        before = RUNS.setdefault(f"first {where}", self)
        self.tasks, self.states = before.tasks, before.states


class Second(Memory):
    """Another engine."""

    def find(self, folder: str) -> str | None:
        return folder if folder in self.tasks else None


FIRST, SECOND = f"{__name__}:First", f"{__name__}:Second"


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or __import__("types").ModuleType(__name__))
    for kind in (First, Second):
        monkeypatch.setattr(sys.modules[__name__], kind.__name__, kind, raising=False)
    RUNS.clear()


def task(folder: Path) -> Task:
    place = {"folder": str(folder), "logs": str(folder / "logs"), "nodes": ("a",), "ranks": (1,)}
    return Task(name="x", launch="single", command="true", **place)  # type: ignore[arg-type]


def test_runs_of_the_engine_of_before_are_followed_and_ended_by_it(tmp_path: Path) -> None:
    memory = tmp_path / "engines.json"
    handle = Fleet(FIRST, {"where": "here"}, memory).submit(task(tmp_path / "1"))
    fleet = Fleet(SECOND, {}, memory)
    other = fleet.submit(task(tmp_path / "2"))
    found = fleet.status([handle, other])
    assert {key: status.state for key, status in found.items()} == {handle: "running", other: "running"}
    fleet.cancel(handle)
    assert fleet.status([handle])[handle].state == "cancelled"
    assert fleet.status([other])[other].state == "running"


def test_a_handle_without_a_name_belongs_to_the_engine_that_was_chosen(tmp_path: Path) -> None:
    fleet = Fleet(FIRST, {"where": "here"}, tmp_path / "engines.json")
    handle = fleet.submit(task(tmp_path / "wo!w")).partition("!")[2]
    assert fleet.status([handle])[handle].state == "running"


def test_only_an_engine_that_can_find_runs_is_asked_to(tmp_path: Path) -> None:
    memory = tmp_path / "engines.json"
    assert not hasattr(Fleet(FIRST, {}, memory), "find")
    fleet = Fleet(SECOND, {}, memory)
    assert fleet.find(str(tmp_path / "1")) is None
    handle = fleet.submit(task(tmp_path / "1"))
    assert fleet.find(str(tmp_path / "1")) == handle
    assert evolve(fleet.status([handle])[handle]).state == "running"


def test_a_run_whose_engine_cannot_be_used_is_not_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    memory = tmp_path / "engines.json"
    handle = Fleet(FIRST, {"where": "here"}, memory).submit(task(tmp_path / "1"))
    memory.write_text(memory.read_text().replace("where", "elsewhere"))  # a setting that it does not have any more
    fleet = Fleet(SECOND, {}, memory)
    other = fleet.submit(task(tmp_path / "2"))
    fleet.cancel(other)
    for _ in range(3):
        assert {key: status.state for key, status in fleet.status([handle, other]).items()} == {
            handle: "running",
            other: "cancelled",
        }
    assert caplog.text.count("cannot be followed until it can be used again") == 1
    with pytest.raises(EngineError):
        fleet.cancel(handle)


def test_a_damaged_memory_is_named(tmp_path: Path) -> None:
    (tmp_path / "engines.json").write_text("[1")
    with pytest.raises(EngineError, match="engines.json is damaged"):
        Fleet(FIRST, {}, tmp_path / "engines.json")
