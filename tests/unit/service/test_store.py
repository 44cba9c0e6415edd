"""The store: ids without case, order of creation, all or nothing, several threads, a restart."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest
from attrs import evolve

from batchhvd.service.store import doomed
from batchhvd.service.store.glance import Glance
from batchhvd.service.store.job import StoredJob
from batchhvd.service.store.records import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "ein Örtchen" / "state.sqlite")


def test_ids_compare_without_case_and_keep_theirs(store: Store) -> None:
    store.put("/Groups/A", "groups", "", {"x": 1})
    found = store.get("/groups/a")
    assert found and (found.id, found.document) == ("/Groups/A", {"x": 1})
    assert store.delete("/GROUPS/A") and not store.delete("/GROUPS/A") and store.get("/groups/a") is None


def test_lists_come_in_the_order_of_creation_also_after_a_change(store: Store) -> None:
    for name in "cab":
        store.put(f"/p/{name}", "t", "/P", {"name": name})
    store.put("/p/c", "t", "/p", {"name": "c2"})
    assert [record.document["name"] for record in store.list("t", "/p")] == ["c2", "a", "b"]
    assert store.list("t", "/q") == [] and len(store.list("t")) == 3
    [first, *_] = store.list("t")
    assert [record.document["name"] for record in store.list("t", "/p", after=first.number, most=1)] == ["a"]


def test_a_name_made_again_has_another_number(store: Store) -> None:
    first = store.put("/a", "t", "", {})
    store.delete("/a")
    assert store.put("/a", "t", "", {}).number > first.number


def test_many_are_added_in_order_or_none_of_them(store: Store) -> None:
    before = store.put("/p/first", "t", "/p", {})
    store.add("t", "/P", [(f"/p/N{at}", {"at": at}, {"kept": at}) for at in range(3)])
    after = store.put("/p/last", "t", "/p", {})
    added = store.list("t", "/p", after=before.number, most=3)
    assert [(record.id, record.document, record.private) for record in added] == [
        (f"/p/N{at}", {"at": at}, {"kept": at}) for at in range(3)
    ]
    assert before.number < added[0].number and added[-1].number < after.number
    with pytest.raises(sqlite3.IntegrityError):
        store.add("t", "/p", [("/p/new", {}, {}), ("/P/n1", {}, {})])
    assert store.get("/p/new") is None and len(store.list("t")) == 5


def test_a_glance_reads_each_record_once(store: Store) -> None:
    store.put("/a", "accounts", "", {"name": "a", "x": 1})
    glance = Glance(store)
    glance.expect(["/A", "/none"])
    store.put("/a", "accounts", "", {"name": "a", "x": 2})
    store.put("/none", "accounts", "", {"name": "none"})
    seen = glance.get("/a")
    assert seen and seen.document["x"] == 1 and glance.get("/NONE") is None
    assert glance.named("accounts", "a") is glance.named("accounts", "a")
    fresh = Glance(store).get("/a")
    assert fresh and fresh.document["x"] == 2


def test_under_finds_every_depth_and_no_neighbour(store: Store) -> None:
    for id in ("/g/a", "/g/a/b", "/g/a/b/c", "/g/ab", "/g/a.b", "/g/a-b", "/h"):
        store.put(id, "t", "", {})
    assert [record.id for record in store.under("/G/A")] == ["/g/a/b", "/g/a/b/c"]


def test_a_change_that_fails_changes_nothing(store: Store) -> None:
    store.put("/a", "t", "", {"x": 1})
    with pytest.raises(ZeroDivisionError), store.transaction():
        store.put("/b", "t", "", {})
        store.update("/a", lambda document, private: document.update(x=2))
        raise ZeroDivisionError
    found = store.get("/a")
    assert found and found.document == {"x": 1} and store.get("/b") is None


def test_what_was_written_is_there_after_a_restart(store: Store, tmp_path: Path) -> None:
    store.put("/a", "t", "", {"x": "é"}, {"key": "secret"})
    number = store.next("queue")
    again = Store(tmp_path / "ein Örtchen" / "state.sqlite")
    found = again.get("/a")
    assert found and found.document == {"x": "é"} and found.private == {"key": "secret"}
    assert again.next("queue") == number + 1


def test_only_the_owner_may_read_it(store: Store, tmp_path: Path) -> None:
    assert (tmp_path / "ein Örtchen" / "state.sqlite").stat().st_mode & 0o077 == 0


def test_threads_lose_no_change(store: Store) -> None:
    store.put("/a", "t", "", {"count": 0})

    def count() -> None:
        for _ in range(25):
            store.update("/a", lambda document, private: document.update(count=document["count"] + 1))
        store.close()

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = store.get("/a")
    assert found and found.document["count"] == 100


def test_active_and_doomed_find_by_state(store: Store) -> None:
    for name, state in (("a", "queued"), ("b", "succeeded"), ("c", "terminating")):
        store.put(f"/{name}", "jobs", "", {"properties": {"executionState": state, "provisioningState": "succeeded"}})
    store.put("/g", "groups", "", {"properties": {"provisioningState": "Deleting"}})
    assert [record.id for record in store.active()] == ["/a", "/c"]
    assert [record.id for record in doomed.page(store)] == ["/g"]


def job_of(store: Store) -> StoredJob:
    properties = {"executionState": "queued", "provisioningState": "succeeded"}
    return StoredJob.of(store.put("/Jobs/J", "jobs", "/", {"name": "j", "properties": properties}, {"uuid": "u"}))


def test_a_revision_changes_the_present_value_once_and_not_the_one_that_was_seen(store: Store) -> None:
    seen = job_of(store)
    store.update(seen.id, lambda document, private: private.update(attempt=4))
    calls = []

    def change(job: StoredJob) -> StoredJob:
        calls.append(job.attempt)
        return evolve(job, attempt=job.attempt + 1)

    changed = store.revise(seen, change)
    assert calls == [4] and changed is not None and changed.attempt == 5
    assert store.get("/jobs/j").private["attempt"] == 5  # type: ignore[union-attr]


def test_a_revision_that_changes_nothing_writes_nothing(store: Store) -> None:
    seen = job_of(store)
    changes = store._connection().total_changes
    assert store.revise(seen, lambda job: evolve(job)) == seen
    assert store._connection().total_changes == changes


def test_a_revision_that_fails_changes_nothing(store: Store) -> None:
    seen = job_of(store)
    with pytest.raises(ZeroDivisionError):
        store.revise(seen, lambda job: evolve(job, attempt=1 // 0))
    assert StoredJob.of(store.get(seen.id)) == seen  # type: ignore[arg-type]


def test_nothing_is_revised_that_is_gone(store: Store) -> None:
    seen = job_of(store)
    store.delete(seen.id)
    assert store.revise(seen, lambda job: evolve(job, attempt=1)) is None and store.get(seen.id) is None


def test_revisions_of_many_threads_all_count(store: Store) -> None:
    seen = job_of(store)

    def count() -> None:
        for _ in range(20):
            store.revise(seen, lambda job: evolve(job, attempt=job.attempt + 1))
        store.close()

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.get(seen.id).private["attempt"] == 80  # type: ignore[union-attr]
