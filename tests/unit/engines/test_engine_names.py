"""Engines are found by name, or where they are."""

from __future__ import annotations

import pytest

from batchhvd.engines.base import load
from batchhvd.engines.processes import Processes
from batchhvd.errors import EngineError
from tests.support.world import Memory


def test_by_name_and_by_place() -> None:
    assert isinstance(load("processes"), Processes)
    assert isinstance(load("tests.support.world:Memory", limit=3), Memory)


@pytest.mark.parametrize(
    ("name", "settings", "told"),
    [
        ("abacus", {}, "no engine 'abacus'; choose processes, slurm"),
        ("no.such.module:Engine", {}, "the engine 'no.such.module:Engine' cannot be loaded.*No module named"),
        ("batchhvd.engines.processes:Nothing", {}, "has no attribute 'Nothing'"),
        ("processes", {"colour": "red"}, "does not accept these settings.*colour"),
    ],
)
def test_what_is_not_there_is_told(name: str, settings: dict[str, str], told: str) -> None:
    with pytest.raises(EngineError, match=told):
        load(name, **settings)
