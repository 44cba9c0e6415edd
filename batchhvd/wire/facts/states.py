"""The words for states and priorities. On the wire they are plain text, and a word that is not listed passes through.

Source: the enumerations of the description of 2018-05-01.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal, TypeVar

# For type checkers and editors. At run time a word that is not listed passes through.
JobStateWord = Literal["queued", "running", "terminating", "succeeded", "failed"]
AllocationWord = Literal["steady", "resizing"]
ProvisioningWord = Literal["creating", "succeeded", "failed", "deleting"]
GoalWord = Literal["running", "succeeded", "ended"]
JobPriorityWord = Literal["low", "normal", "high"]
VmPriorityWord = Literal["dedicated", "lowpriority"]

Word = TypeVar("Word", bound="WireWord")


class WireWord(str, Enum):
    """A word of the wire that compares, prints and serializes as the text that it is."""

    def __str__(self) -> str:
        return str(self.value)

    @classmethod
    def read(cls: type[Word], text: str) -> Word | str:
        """Returns the member that a text stands for, without regard to case, or the text itself when there is none."""
        return next((word for word in cls if word.value.lower() == text.lower()), text)


class JobState(WireWord):
    """How far a job is (``executionState``)."""

    QUEUED = "queued"
    RUNNING = "running"
    TERMINATING = "terminating"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


ENDED = frozenset({JobState.SUCCEEDED, JobState.FAILED})
"""The states in which a job stays."""


class ProvisioningState(WireWord):
    """How far the making or deleting of a resource is (``provisioningState``)."""

    CREATING = "creating"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DELETING = "deleting"


class AllocationState(WireWord):
    """Whether a cluster has the nodes that it was asked for (``allocationState``)."""

    STEADY = "steady"
    RESIZING = "resizing"


class ClusterNodeState(WireWord):
    """What a node of a cluster does; ``nodeStateCounts`` counts the nodes in each state."""

    RUNNING = "running"
    IDLE = "idle"
    UNUSABLE = "unusable"
    PREPARING = "preparing"
    LEAVING = "leaving"


class DeallocationOption(WireWord):
    """What happens to the jobs on nodes that leave a cluster (``nodeDeallocationOption``)."""

    REQUEUE = "requeue"
    TERMINATE = "terminate"
    WAIT = "waitforjobcompletion"


class JobPriority(WireWord):
    """Which of the waiting jobs are looked at first (``schedulingPriority``)."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"


class VmPriority(WireWord):
    """Whether a cluster's nodes are its own, or cheaper and may be evicted (``vmPriority``)."""

    DEDICATED = "dedicated"
    LOW_PRIORITY = "lowpriority"
