"""``batchhvd prune``: finished jobs go by age and by number, with their folders; nothing else does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from batchhvd.cli import main as cli
from batchhvd.service.store.records import Store
from tests.support import filled
from tests.support.waiting import until

Line = Callable[..., tuple[str, str]]


@pytest.fixture
def service(launch: Any) -> Any:
    """A service of its own: pruning knows no groups."""
    return launch()


@pytest.fixture
def line(service: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    monkeypatch.setenv("BATCHHVD_ROOT", str(service.root))

    def run(*arguments: str, code: int = 0) -> tuple[str, str]:
        assert cli.run(arguments) == code, capsys.readouterr()
        return capsys.readouterr()

    filled.fill(service.root, jobs=6, clusters=1, doomed=4).close()
    yield run
    for name in ("keep", "gone"):
        run("group", "delete", name, "--yes")


def jobs(store: Store, group: str) -> list[str]:
    return [record.document["name"] for record in store.list("jobs", filled.experiment(group))]


def wait_for_nodes(document: Any, private: Any) -> None:
    """Makes a job one that has not ended: its cluster has no nodes."""
    document["properties"].update(executionState="queued", executionInfo={})
    for name in ("handle", "nodes", "folder", "attempt"):
        del private[name]


def test_prune(line: Line, service: Any) -> None:
    store = Store(service.root / "state.sqlite")
    folders = len(list((service.root / "tasks").iterdir()))
    store.update(f"{filled.experiment('keep')}/jobs/j0", wait_for_nodes)
    out, err = line("prune", "--keep", "4", "--dry-run")
    assert [row.split()[0] for row in out.splitlines()] == ["keep/w/e/j1"]
    assert "succeeded, ended 2020-09-13 12:26" in out and "would delete 1 finished jobs" in err
    assert len(jobs(store, "keep")) == 6
    assert "would delete 0 finished jobs" in line("prune", "--older", "900w", "--keep", "1", "--dry-run")[1]

    line("prune", "--keep", "2")
    assert jobs(store, "keep") == ["j0", "j4", "j5"]
    assert jobs(store, "gone") == ["j2", "j3"]
    until(lambda: len(list((service.root / "tasks").iterdir())) == folders - 2)
    line("prune", "--older", "30d")
    assert jobs(store, "gone") == [] and jobs(store, "keep") == ["j0"]
    store.close()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "say what to delete"),
        (("--older", "30"), "'30' is not an age such as 12h, 30d or 8w"),
        (("--older", "²d"), "is not an age"),
        (("--keep", "-1"), "--keep"),
    ],
)
def test_what_prune_does_not_understand(arguments: tuple[str, ...], told: str, capsys: Any) -> None:
    assert cli.run(["prune", *arguments]) == 2
    assert told in capsys.readouterr().err
