"""No request and no tick does more work because more records or files exist; deletions go on slice by slice.

Work is counted, not timed: steps of SQLite's machine, records that become objects, files that are looked at.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field

from batchhvd.service.files.app import Files
from batchhvd.service.http.exchange import Act
from batchhvd.service.scheduler.removal import Removal
from batchhvd.service.scheduler.tick import HURRIED, MOVING, Scheduler
from batchhvd.service.storage.disk import names
from batchhvd.service.store import accounts, records, trash
from batchhvd.service.store.records import Store
from tests.support import filled
from tests.support.asked import ask, built
from tests.support.waiting import until
from tests.support.world import Memory

SMALL, LARGE = 300, 2400
BATCHAI, STORAGE = "?api-version=2018-05-01", "?api-version=2019-06-01"


@define
class Root:
    """A filled root with its application."""

    path: Path
    store: Store
    app: Any = field(init=False)
    scheduler: Scheduler = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.store._connection().execute("PRAGMA synchronous = OFF")  # no power cut is tested here
        files = Files(self.path / "shares", lambda account: accounts.keys_of(self.store, account))
        self.app = built(self.store, self.path, files)
        self.scheduler = Scheduler(self.store, self.path, Memory())

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Sends a request to the application and returns status and body."""
        return ask(self.app, method, path, body)


def filled_root(path: Path, size: int) -> Root:
    path.mkdir()
    return Root(path, filled.fill(path, size, size // 4, size, size, folders=False))


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> tuple[Root, Root]:
    folder = tmp_path_factory.mktemp("growth")
    return filled_root(folder / "small", SMALL), filled_root(folder / "large", LARGE)


EXPERIMENT = filled.experiment("keep")
WORKSPACE = EXPERIMENT.rpartition("/experiments/")[0]
ACTIONS: dict[str, Callable[[Root], Any]] = {
    "tick": lambda root: root.scheduler.tick(),
    "GET of a job": lambda root: root.ask("GET", f"{EXPERIMENT}/jobs/j1{BATCHAI}"),
    "page of jobs": lambda root: root.ask("GET", f"{EXPERIMENT}/jobs{BATCHAI}&maxresults=50"),
    "page of clusters": lambda root: root.ask("GET", f"{WORKSPACE}/clusters{BATCHAI}&maxresults=50"),
    "page of resources": lambda root: root.ask("GET", f"{filled.group('keep')}/resources{STORAGE}"),
    "keys of an account": lambda root: accounts.keys_of(root.store, filled.ACCOUNT),
    "DELETE of an unused account": lambda root: root.ask("DELETE", f"{filled.account('unusedaccount')}{STORAGE}"),
    "DELETE of a job": lambda root: root.ask("DELETE", f"{EXPERIMENT}/jobs/j2{BATCHAI}"),
    "DELETE of a group": lambda root: root.ask("DELETE", f"{filled.group('gone')}{STORAGE}"),
    "a step of its removal": lambda root: root.scheduler._removal.step("now"),
    "jobs that run": lambda root: (root.store.active(), root.store.is_active(), root.store.users()),
    "latest jobs": lambda root: root.store.latest("jobs", 20),
}
SCANS = {"tick": 12.0}  # reads each cluster's row; all other work is the same for any size


@define
class Count:
    """What an action has done."""

    steps: int = 0
    records: int = 0


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Count:
    counted, real, connect = Count(), records.record_of, Store._connection

    def record_of(row: Any) -> Any:
        counted.records += 1
        return real(row)

    def step() -> None:
        counted.steps += 1

    def connection(store: Store) -> Any:
        found = connect(store)
        found.set_progress_handler(step, 10)
        return found

    monkeypatch.setattr(records, "record_of", record_of)
    monkeypatch.setattr(Store, "_connection", connection)
    return counted


@pytest.mark.parametrize("name", ACTIONS)
def test_no_work_grows_with_what_a_root_holds(name: str, roots: tuple[Root, Root], count: Count) -> None:
    found = []
    for root in roots:
        if name == "tick":
            root.scheduler.tick()  # the first one reads all clusters
        count.steps = count.records = 0
        ACTIONS[name](root)
        found.append((count.steps, count.records))
    (few, read), (many, read_many) = found
    assert read_many <= read + 1, found
    assert many <= SCANS.get(name, 1.5) * few + 20, found


def test_a_tick_reads_no_record_again_while_nothing_has_changed(roots: tuple[Root, Root]) -> None:
    root = roots[1]
    root.scheduler._read()
    found = root.scheduler._found
    root.scheduler._read()
    assert root.scheduler._found is found
    root.store.put("/x/changed", "operations", "", {"name": "changed"})
    root.scheduler._read()
    assert root.scheduler._found is not found


def test_ticks_take_at_most_a_quarter_of_the_time(roots: tuple[Root, Root]) -> None:
    scheduler = roots[0].scheduler
    scheduler._removal.goes_on, scheduler.active = False, True
    assert scheduler._next_pause(0.001) == MOVING
    assert scheduler._next_pause(0.2) == pytest.approx(0.6)


def noted(monkeypatch: pytest.MonkeyPatch, name: str) -> list[Any]:
    """Returns a list to which each call of a function of ``os`` adds its argument."""
    calls: list[Any] = []
    real = getattr(os, name)

    def call(path: Any, **more: Any) -> Any:
        calls.append(path)
        return real(path, **more)

    monkeypatch.setattr(os, name, call)
    return calls


def test_a_page_of_files_looks_at_its_own_files_only(roots: tuple[Root, Root], monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"{EXPERIMENT}/jobs/j0/listOutputFiles{BATCHAI}&outputdirectoryid=stdouterr&maxresults=100"
    monkeypatch.setattr(names, "_FRESH", -3600.0)
    looks, lists = noted(monkeypatch, "lstat"), noted(monkeypatch, "listdir")
    found, next_link, method = [], path, "POST"
    while next_link:
        _, page = roots[1].ask(method, next_link)
        found += [entry["name"] for entry in page["value"]]
        next_link, method = page.get("nextLink", "").partition(":8080")[2], "GET"
    assert found == [f"part-{number:07d}.txt" for number in range(LARGE)]
    assert len([look for look in looks if "part-" in str(look)]) <= 1.02 * LARGE
    assert len(lists) == 1


def test_a_directory_that_changes_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "_SMALL", 0)
    for number in range(3):  # it has just changed, so that its times may say nothing
        (tmp_path / str(number)).touch()
        assert len(names.names_in(tmp_path)) == number + 1


@pytest.mark.parametrize("name", ["Usages_List", "Jobs_ListOutputFiles"])
def test_what_reads_much_does_not_run_on_the_loop(
    name: str, roots: tuple[Root, Root], monkeypatch: pytest.MonkeyPatch
) -> None:
    where, real = [], Act.__call__

    def call(act: Act) -> Any:
        where.append(threading.current_thread())
        return real(act)

    monkeypatch.setattr(Act, "__call__", call)
    usages = f"/{'/'.join(WORKSPACE.split('/')[1:3])}/providers/Microsoft.BatchAI/locations/x/usages{BATCHAI}"
    files = f"{EXPERIMENT}/jobs/j0/listOutputFiles{BATCHAI}&outputdirectoryid=stdouterr"
    method, path = ("GET", usages) if name == "Usages_List" else ("POST", files)
    status, _ = roots[0].ask(method, path)
    assert status == 200 and threading.main_thread() not in where


@pytest.fixture
def doomed_root(tmp_path: Path) -> Iterator[Root]:
    path = tmp_path / "root"
    path.mkdir()
    root = Root(path, filled.fill(path, 10, 1, 0, 1000))
    yield root
    root.store.close()


def left(root: Root, type: str = "jobs") -> int:
    prefix = filled.group("gone").lower()
    return sum(1 for (key,) in root.store.query("SELECT key FROM resource WHERE type = ?", type) if prefix in key)


def test_a_group_goes_slice_by_slice_also_after_a_kill(doomed_root: Root) -> None:
    root = doomed_root
    status, _ = root.ask("DELETE", f"{filled.group('gone')}{STORAGE}")
    assert status == 202
    steps, before = 0, left(root)
    while root.store.get(filled.group("gone")):
        root.scheduler.tick()
        now = left(root)
        assert before - now <= 100
        assert root.scheduler.pause == HURRIED or not left(root)
        steps, before = steps + 1, now
        assert steps < 40
        if steps == 4:
            root.scheduler = Scheduler(root.store, root.path, Memory())  # it knows nothing of how far the other one was
    assert left(root, "experiments") == left(root, "workspaces") == 0
    assert len(root.store.list("jobs")) == 10
    until(trash.is_empty)
    assert not list((root.path / "trash").iterdir()) and not list((root.path / "tasks").iterdir())


def test_nothing_is_made_in_a_group_that_goes_even_where_nothing_is_marked_yet(doomed_root: Root) -> None:
    root = doomed_root
    root.ask("DELETE", f"{filled.group('gone')}{STORAGE}")
    gone = filled.experiment("gone")
    record = root.store.get(gone)
    assert record is not None and record.document["properties"]["provisioningState"] == "succeeded"
    workspace = gone.rpartition("/experiments/")[0]
    settings = {"vmSize": "STANDARD_NC6", "userAccountSettings": {"adminUserName": "me"}}
    for path, body in ((f"{workspace}/experiments/new", None), (f"{workspace}/clusters/new", {"properties": settings})):
        status, answer = root.ask("PUT", path + BATCHAI, body)
        assert (status, answer["error"]["code"]) == (409, "ResourceGroupBeingDeleted")


def test_a_damaged_record_is_removed_with_the_others(doomed_root: Root) -> None:
    root = doomed_root
    root.store._connection().execute("UPDATE resource SET private = '{' WHERE key LIKE '%/gone/%/jobs/j5'")
    root.ask("DELETE", f"{filled.group('gone')}{STORAGE}")
    removal = Removal(root.store, root.path)
    for _ in range(40):
        removal.step("now")
    assert root.store.get(filled.group("gone")) is None
    assert len(list((root.path / "tasks").iterdir())) == 1  # it does not say which folder is its own
