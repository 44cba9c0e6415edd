"""What the tests of the engines, of training and of the tutorial share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.slurm import Bed, beds


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """Four nodes under Slurm, brought up once for the run."""
    with beds(tmp_path_factory.getbasetemp()) as found:
        yield found
