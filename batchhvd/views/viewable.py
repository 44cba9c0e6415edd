"""What a view knows of the resource that it shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

Mood = Literal["good", "busy", "bad", ""]

_MOODS: Mapping[str, Mood] = {
    **dict.fromkeys(("succeeded", "steady", "running"), "good"),
    **dict.fromkeys(("queued", "resizing", "creating", "terminating", "deleting"), "busy"),
    "failed": "bad",
}


def mood(state: object) -> Mood:
    """Returns what a state means for people, "" for a state that is not known."""
    return _MOODS.get(str(state or "").lower().partition(",")[0], "")


class Viewable(Protocol):
    """A resource, as cards and tables see it.

    The two methods have an underscore because people who hold a resource are given its attributes instead; they are a
    contract between resources and views.
    """

    @property
    def name(self) -> str:
        """The resource's name."""

    @property
    def kind(self) -> str:
        """What it is, such as ``job``."""

    def _facts(self) -> Mapping[str, object]:
        """Returns what is shown beside the name, by label."""

    def _reasons(self) -> Sequence[str]:
        """Returns why the resource failed, one sentence each; empty when it did not fail."""
