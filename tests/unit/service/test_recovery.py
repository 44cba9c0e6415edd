"""A damaged database is named at the start, kept aside by one command, and what can be read from it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batchhvd.service import __main__ as service
from batchhvd.service.storage.disk.sidecar import Sidecar
from batchhvd.service.store import recovery
from batchhvd.service.store.records import Store
from tests.support import filled

JOBS = 400
PAGE = 4096


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "wurzel ü"
    path.mkdir()
    store = filled.fill(path, JOBS, 5)
    store._connection().execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store.close()
    return path


def spoil(path: Path, start: int, length: int) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(b"\xff" * length)


def refused(root: Path, capsys: Any) -> str:
    assert service.main(["--root", str(root)]) == 2
    return str(capsys.readouterr().err)


@pytest.mark.parametrize(("start", "length"), [(0, 100), (0, 3 * PAGE), (40 * PAGE, PAGE)])
def test_a_start_on_a_damaged_database_names_it_and_the_command(
    root: Path, start: int, length: int, capsys: Any
) -> None:
    spoil(root / "state.sqlite", start, length)
    told = refused(root, capsys)
    assert told.startswith(f"the service did not start: {root / 'state.sqlite'} is damaged (")
    assert f"`batchhvd --root '{root}' serve --recover` keeps it aside" in told and "Traceback" not in told


def test_all_but_what_a_damaged_page_held_is_recovered(root: Path) -> None:
    path = root / "state.sqlite"
    before = {record.id: record for record in Store(path).list("jobs")}
    data = path.read_bytes()
    page = data.index(b'/jobs/j7"') // PAGE  # a page of the table, or one of its overflow pages
    spoil(path, page * PAGE, PAGE)
    spoiled = path.read_bytes()
    told = recovery.recover(root)
    (aside,) = root.glob("state-damaged-*.sqlite")
    assert aside.read_bytes() == spoiled and str(aside) in told[0]
    store = Store(path)
    after = {record.id: record for record in store.list("jobs")}
    lost = set(before) - set(after)
    assert len(after) >= 0.9 * JOBS and all(after[id] == before[id] for id in after)
    assert len(store.list("clusters")) == 5 and len(store.list("storageAccounts")) == 2
    assert lost and "are lost: " in told[1] and all(id.lower() in told[1] for id in sorted(lost)[:3])
    new = store.put("/new", "t", "", {"id": "/new"})
    assert new.number > max(record.number for record in after.values())
    assert recovery.damage(path) == "" and not list(root.glob(".state*"))


def test_what_is_no_database_any_more_is_kept_aside_all_the_same(root: Path, capsys: Any) -> None:
    (root / "state.sqlite").write_bytes(b"no database" * 1000)
    told = recovery.recover(root)
    assert "; 0 resources were recovered" in told[0] and "More resources may be lost" in told[-1]
    assert Store(root / "state.sqlite").list("jobs") == []
    recovery.check(root)


def test_a_sidecar_is_put_aside_too(root: Path, capsys: Any) -> None:
    path = root / "shares" / ".files" / "sidecar.sqlite"
    path.parent.mkdir(parents=True)
    Sidecar(path).close()
    path.write_bytes(b"no database" * 1000)
    assert f"{path} is damaged" in refused(root, capsys)
    assert "all files stay" in recovery.recover(root)[0]
    recovery.check(root)


def test_nothing_is_done_to_what_is_whole(root: Path) -> None:
    before = (root / "state.sqlite").read_bytes()
    assert "nothing had to be recovered" in recovery.recover(root)[0]
    assert (root / "state.sqlite").read_bytes() == before
    recovery.check(root)
    assert recovery.damage(root / "none") == ""
