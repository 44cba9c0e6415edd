"""How many examples a property is tried with: few in each run of the tests, many in ``make drills``."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

DRILLS = bool(os.environ.get("BATCHHVD_DRILLS"))
"""Whether this is a drill."""


def examples(few: int, many: int) -> settings:
    """Returns the settings of a property.

    Args:
        few: examples in each run of the tests.
        many: examples in a drill.
    """
    slow = (HealthCheck.too_slow, HealthCheck.data_too_large)
    return settings(max_examples=many if DRILLS else few, deadline=None, suppress_health_check=slow)
