"""A service's folder from before jobs and clusters were kept as values opens, and its jobs go on.

``tests/data/roots/older-root.sql`` is what the service of commit 1382976 left in ``/srv/batchhvd/state.sqlite``: a
cluster of three nodes, a job that succeeded in its second attempt, one that runs on two nodes, and one that waits.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from batchhvd.engines.base import Status
from batchhvd.service.http.exchange import Here
from batchhvd.service.status import summary
from batchhvd.service.store.cluster import StoredCluster
from batchhvd.service.store.job import StoredJob
from batchhvd.service.store.records import Store
from tests.support.world import WORKSPACE, Clock, Memory, World

DUMP = Path(__file__).parents[2] / "data" / "roots" / "older-root.sql"
LATER = 1_800_000_010.0  # one second after the last tick of that service


@pytest.fixture
def world(tmp_path: Path) -> World:
    root = tmp_path / "alte wurzel"
    (root / "shares" / "acc" / "share").mkdir(parents=True)
    text = DUMP.read_text(encoding="utf-8").replace("/srv/batchhvd", str(root))
    with closing(sqlite3.connect(root / "state.sqlite")) as connection:
        connection.executescript(text)
    engine = Memory()
    for record in Store(root / "state.sqlite").active():
        if record.private.get("handle"):
            engine.states[record.private["handle"]] = Status(state="running", started=1.0)
    return World(root, engine=engine, clock=Clock(LATER))


def kept(world: World) -> list[tuple[str, str]]:
    """Returns the documents of all resources, as text."""
    rows = world.store._connection().execute("SELECT id, document FROM resource ORDER BY number")
    return list(rows.fetchall())


def test_nothing_is_rewritten_while_nothing_happens(world: World) -> None:
    recorded = kept(world)
    world.tick()
    before = kept(world)
    moved = [old[0] for old, new in zip(recorded, before, strict=True) if old != new]
    assert [id.rpartition("/")[2] for id in moved] == ["queued"]  # why it waits is told in the words of today
    changes = world.store._connection().total_changes
    world.tick(3)
    assert kept(world) == before
    assert world.store._connection().total_changes == changes


def test_its_jobs_go_on(world: World) -> None:
    world.tick()
    assert [world.state(name) for name in ("finished", "running", "queued")] == ["succeeded", "running", "queued"]
    world.end("running")
    world.tick(3)
    assert world.state("running") == "succeeded" and world.state("queued") == "running"
    assert world.info("running")["exitCode"] == 0
    assert world.engine.running()[0].secrets == {"TOKEN": "hidden"}
    assert world.counts() == {"running": 2, "idle": 1}
    world.terminate("queued")
    world.tick(2)
    assert world.error("queued") == ("JobTerminated", "The specified job has been terminated by the user")


def test_its_records_read_as_values(world: World) -> None:
    finished, running, queued = (StoredJob.of(world.of(name)) for name in ("finished", "running", "queued"))
    assert [entry["attempt"] for entry in finished.history] == [1] and finished.attempt == 2 and finished.has_ended
    assert len(running.nodes) == 2 and running.handle == running.folder and running.warnings
    assert (queued.nodes, queued.attempt, queued.handle) == ((), 0, "") and queued.waiting_since == LATER - 2
    record = world.store.get(f"{WORKSPACE}/clusters/c")
    assert record is not None
    cluster = StoredCluster.of(record)
    assert len(cluster.names) == cluster.target == 3 and cluster.is_steady and cluster.next == 4
    assert cluster.to_record() == cluster.record
    for job in (finished, running, queued):  # what an older service put into executionInfo goes to a place of its own
        written = job.to_record()
        assert StoredJob.of(written) == job and written.private == job.record.private
        errors = [error["code"] for error in job.execution.errors] if job.execution else []
        assert [
            error["code"] for error in written.document["properties"].get("batchhvd", {}).get("errors", [])
        ] == errors
    assert "executionInfo" in queued.properties and "executionInfo" not in queued.to_record().document["properties"]


def test_the_page_shows_them(world: World) -> None:
    here = Here(world.store, world.root, None, world.clock)  # type: ignore[arg-type]  # it asks for no files
    body = summary.answer(here).body
    assert [job["verdict"]["cause"] for job in body["jobs"]] == ["succeeded", "running", "waiting"]
    assert [node["state"] for node in body["clusters"][0]["nodes"]] == ["running", "running", "idle"]
