"""What a job that runs in an image is doing before its ranks start, as its execution log tells."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from batchhvd.resources import preparation
from batchhvd.wire.facts.states import JobState

IMAGE = "r.example.org/a:1"
BEGUN = "2026-01-01T00:00:00Z node 1 of 1, attempt 1, on 127.0.0.1\n"
PULLING = f"2026-01-01T00:00:00Z the image {IMAGE} is not in the storage of podman: it is pulled for this job\n"
RUNS = f"2026-01-01T00:00:09Z podman runs {IMAGE} as batchhvd-1 after 9.0 s\n"


def phase(journal: str, command: str = "") -> str | None:
    entry = SimpleNamespace(name="execution.log", text=lambda: journal, size=len(journal))
    spec = SimpleNamespace(preparation=command, image=IMAGE)
    job: Any = SimpleNamespace(spec=spec, state=JobState.RUNNING, files=lambda: [entry])
    return preparation.phase(job)


@pytest.mark.parametrize(
    ("journal", "said"),
    [
        ("", None),
        (BEGUN, None),
        (BEGUN + PULLING, f"pulling the image {IMAGE}"),
        (BEGUN + PULLING + RUNS, ""),
        (BEGUN + RUNS, ""),
        (BEGUN + "2026-01-01T00:00:00Z warning: the container image x is not run here: …\n", ""),
    ],
)
def test_a_job_says_that_its_image_is_pulled(journal: str, said: str | None) -> None:
    assert phase(journal) == said


def test_a_preparation_follows_the_image() -> None:
    assert phase(BEGUN + PULLING, "apt-get update") == f"pulling the image {IMAGE}"
    assert phase(BEGUN + PULLING + RUNS, "apt-get update") == "preparing: apt-get update"
