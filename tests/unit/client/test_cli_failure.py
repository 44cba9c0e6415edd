"""What the command line says of a job that failed."""

from __future__ import annotations

from typing import cast

import click
import pytest
from attrs import field, frozen

from batchhvd import Job, Reason
from batchhvd.cli.frame import failure
from batchhvd.cli.frame.failure import shortened
from batchhvd.errors import JobFailedError


@frozen
class Described:
    """What is asked of its specification."""

    environment: dict[str, str] = field(factory=dict)


@frozen
class Failed:
    """What is asked of a job that failed."""

    errors: tuple[Reason, ...]
    name: str = "ä"
    spec: Described = Described()


def test_the_next_step_is_a_command_and_the_exit_code_is_the_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    job = cast(Job, Failed((Reason("ScriptNotFound", "There is no x.py."),)))
    error = JobFailedError(
        "Call its explain()", exit_code=2, reasons=["There is no x.py."], tail=[str(number) for number in range(12)]
    )
    with pytest.raises(click.exceptions.Exit) as ended:
        failure.end_as(job, error)
    assert ended.value.exit_code == 2
    said = capsys.readouterr().err
    assert said.splitlines()[:3] == ["job 'ä' failed: There is no x.py", "    2", "    3"]
    assert "Next: upload the script" in said
    assert "batchhvd share upload" in said
    assert "explain()" not in said


def test_the_next_step_names_what_started_the_job() -> None:
    failed = (Reason("RankFailed", "Rank 0 failed."),)
    for origin, words in (
        ("", "job submit --rerun"),
        ("run a b.py", "batchhvd run 'a b.py'"),
        ("submit f", "function f"),
    ):
        job = cast(Job, Failed(failed, spec=Described({"BATCHHVD_ORIGIN": origin})))
        assert words in failure.next_step(job)


def test_a_failure_without_a_reason_points_to_the_files() -> None:
    job = cast(Job, Failed(()))
    assert failure.described(job, JobFailedError("x")) == "job 'ä' failed: the service gave no reason"
    assert "batchhvd job files" in failure.next_step(job)


def test_messages_name_things_by_their_names_and_the_id_only_with_v() -> None:
    place = "/subscriptions/0-1/resourceGroups/g/providers/Microsoft.BatchAI/workspaces/w/clusters/nope"
    assert shortened(f"it names the cluster {place}, which") == "it names the cluster 'nope', which"
    assert shortened("in /subscriptions/0-1/resourceGroups/g: gone") == "in group 'g': gone"
    account = "/subscriptions/0/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/files"
    assert shortened(f"{account}.") == "storage account 'files'."
    assert shortened("no id") == "no id"
