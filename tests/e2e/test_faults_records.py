"""A job that damages what the service keeps of it harms only itself: it fails, and all others go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.faults import Live, live, processes
from tests.support.waiting import until


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Live]:
    with live(tmp_path / "wurzel ü") as world:
        yield world


@pytest.mark.parametrize("name", ["stop.json", "processes.json", "node-0.json", "task.json"])
@pytest.mark.parametrize(
    "content", ["{", "", "[]", "null", "\ufeff\u0000"], ids=["half", "empty", "list", "null", "odd"]
)
def test_a_damaged_record_ends_its_own_job_only(world: Live, name: str, content: str) -> None:
    world.command("poisoned", "echo up; while true; do sleep 0.1; done", nodes=1)
    world.command("other", 'until [ -e "$AZ_BATCHAI_SHARED_JOB_TEMP/go" ]; do sleep 0.05; done', nodes=1)
    world.ranks_run("poisoned", 1)
    world.ranks_run("other", 1)
    (world.folder("poisoned") / name).write_text(content, encoding="utf-8")
    for _ in range(3):
        world.tick()
    (world.folder("other") / "shared" / "go").touch()
    assert world.ended("other") == "succeeded"
    world.terminate("poisoned")  # some damage is healed by the next record; the job ends either way
    assert world.ended("poisoned") == "failed"
    until(lambda: not processes(world.root))
