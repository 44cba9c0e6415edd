"""What a view knows of the resource that it shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


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
