"""Kinds of models on PyTorch: two ranks are one, or say why not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.trainer import model_judge

pytestmark = [pytest.mark.horovod, pytest.mark.timeout(1300)]  # the whole table on a busy machine


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return model_judge.start("torch", tmp_path_factory.mktemp("tabelle ä"))


def test_two_ranks_equal_one_with_every_kind_of_model(table: dict[str, Any]) -> None:
    """Weights, the last of each metric and `evaluate` agree, or a sentence comes before the first step."""
    assert not (found := model_judge.wrong(table)), json.dumps(found, indent=1)


def test_what_only_the_whole_table_runs(table: dict[str, Any]) -> None:
    """Sixty kinds of models on each backend; the line at the end names those that this run left out."""
    assert len(table["cases"]) + len(table["left"]) >= 60
    model_judge.name_what_is_left(table)
