"""The variables that hold the directories below which a job finds its mounts.

Source: Batch AI's documentation of mounts; the description's text of ``relativeMountPath``.
"""

from __future__ import annotations

JOB_ROOT = "AZ_BATCHAI_JOB_MOUNT_ROOT"
"""Names the root of what the job itself mounts."""

CLUSTER_ROOT = "AZ_BATCHAI_MOUNT_ROOT"
"""Names the root of what the job's cluster mounts."""
