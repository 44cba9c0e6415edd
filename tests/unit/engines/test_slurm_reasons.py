"""The table of Slurm's reasons has a row for every word of the manual, and of the Slurm that is installed here."""

from __future__ import annotations

import ctypes
import itertools
from pathlib import Path

import pytest

from batchhvd.engines.slurm.reasons import reason_of

WORDS = (Path(__file__).parents[2] / "data/slurm/reasons.txt").read_text(encoding="utf-8").split()
LIBRARY = next(Path("/usr/lib").glob("*/slurm-wlm/libslurmfull.so"), None)


@pytest.mark.parametrize("word", WORDS)
def test_every_reason_of_the_manual_has_a_meaning_and_a_step(word: str) -> None:
    row = reason_of(word)
    assert row is not None and row.meaning and row.step


def test_the_list_holds_every_reason_that_the_installed_slurm_knows() -> None:
    if LIBRARY is None:
        pytest.skip("no Slurm of Debian here")
    told = ctypes.CDLL(str(LIBRARY)).job_reason_string  # returns the number itself for a word that there is not
    told.restype = ctypes.c_char_p
    names = list(itertools.takewhile(lambda name: not name.isdigit(), (told(code).decode() for code in range(1000))))
    assert len(names) > 100
    assert set(names) <= set(WORDS)


def test_a_word_that_slurm_does_not_have_has_no_meaning() -> None:
    assert reason_of("TheMoonIsFull") is None


@pytest.mark.parametrize(
    ("word", "meaning", "step"),
    [
        ("ReqNodeNotAvail, UnavailableNodes:node[1-2]", "down, drained", "wait"),
        ("(job requeued in held state)", "it is held", "scontrol release"),
        ("launch failed requeued held", "could not start it", "scontrol release"),
        ("QOSMaxJobsPerUserLimit", "you have reached the limit of the QOS on running jobs", "jobs of yours have ended"),
        ("QOSMaxGRESRunMinutesPerUser", "the QOS on minutes of GPUs", "jobs of yours"),
        ("QOSMaxWallDurationPerJobLimit", "a longer time limit than the QOS allows", "terminate it"),
        ("AssocGrpCPURunMinutesLimit", "all users of the account together", "wait until others"),
        ("MaxGRESPerAccount", "its account has reached the limit", "wait until others"),
    ],
)
def test_what_a_reason_means(word: str, meaning: str, step: str) -> None:
    row = reason_of(word)
    assert row is not None
    assert meaning in row.meaning and step in row.step
