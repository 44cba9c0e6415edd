"""How long ranks have to save under Slurm, and who sends them SIGTERM."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from batchhvd.engines.slurm.commands import SlurmCommands
from batchhvd.engines.slurm.grace import SiteGrace
from batchhvd.node.folder.state import StopReason
from batchhvd.node.supervisor import Farewell

CONFIG = "KillWait                = 60 sec\nPreemptType             = {preempt}\nProctrackType           = {track}"
PARTITION = "PartitionName=a\n   Default=NO GraceTime=7\n\nPartitionName=b\n   Default=YES GraceTime=90 x=1\n"


def site(tmp_path: Path, *, preempt: str = "preempt/none", track: str = "proctrack/cgroup") -> SiteGrace:
    """Returns what a site grants whose commands print what those of Slurm 22.05 print."""
    config = CONFIG.format(preempt=preempt, track=track)
    told = {
        "sbatch": "",
        "squeue": "",
        "scontrol": f"case \"$2\" in config) echo '{config}';; *) echo '{PARTITION}';; esac",
        "sacctmgr": 'case "$4" in urgent) echo 00:02:00;; *) echo 00:00:00;; esac',
    }
    for name, commands in told.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{commands}\n")
        (tmp_path / name).chmod(0o755)
    return SiteGrace(SlurmCommands(str(tmp_path), 30))


def test_ranks_have_a_little_less_than_slurm_waits(tmp_path: Path) -> None:
    assert site(tmp_path).kill_wait() == 58


@pytest.mark.parametrize(
    ("preempt", "options", "seconds"),
    [
        ("preempt/none", {}, None),
        ("preempt/partition_prio", {}, 88),
        ("preempt/qos", {}, None),
        ("preempt/qos", {"qos": "urgent"}, 118),
    ],
)
def test_preemption_gives_the_partitions_or_the_qos_grace(
    tmp_path: Path, preempt: str, options: dict[str, str], seconds: float | None
) -> None:
    assert site(tmp_path, preempt=preempt).preemption(options) == seconds


@pytest.mark.parametrize(
    ("track", "reaches"), [("proctrack/cgroup", True), ("proctrack/linuxproc", True), ("proctrack/pgid", False)]
)
def test_signals_by_process_group_do_not_reach_the_ranks(tmp_path: Path, track: str, reaches: bool) -> None:
    assert site(tmp_path, track=track).reaches_ranks() is reaches


def ending(*, shared: bool, notice: float = 10) -> tuple[Farewell, float]:
    farewell = Farewell(10, notice, shared)
    farewell.begun = time.monotonic()
    return farewell, farewell.begun


@pytest.mark.parametrize("shared", [True, False])
def test_a_failed_rank_ends_the_others_at_once_and_with_one_signal(shared: bool) -> None:
    farewell, now = ending(shared=shared)
    assert [farewell.is_due(now + wait, StopReason.RANK) for wait in (0, 0.1, 3)] == [True, False, False]


def test_the_batch_systems_signal_is_waited_for_and_not_repeated() -> None:
    farewell, now = ending(shared=True)
    assert not farewell.is_due(now + 0.1, StopReason.CANCELLED)
    farewell.ask()
    assert farewell.has_come
    assert not any(farewell.is_due(now + wait, StopReason.CANCELLED) for wait in (0.2, 3, 9))


def test_ranks_get_a_signal_if_the_batch_system_sends_none() -> None:
    farewell, now = ending(shared=True)
    assert [farewell.is_due(now + wait, StopReason.CANCELLED) for wait in (0, 1.9, 2.1, 4)] == [
        False,
        False,
        True,
        False,
    ]


def test_a_signal_to_the_runner_alone_is_passed_on() -> None:
    farewell, now = ending(shared=False)
    farewell.ask()
    assert farewell.is_due(now, StopReason.NODE)


def test_preemption_gives_its_notice_and_a_person_the_grace() -> None:
    farewell, now = ending(shared=True, notice=100)
    farewell.ask()
    assert not farewell.is_late(now + 99, StopReason.NODE)
    assert farewell.is_late(now + 101, StopReason.NODE)
    assert farewell.is_late(now + 11, StopReason.CANCELLED)
