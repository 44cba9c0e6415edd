"""What a service does with the container images that jobs name, and how it tells the client."""

from __future__ import annotations

from typing import NamedTuple

CHOICES = ("auto", "podman", "docker", "apptainer", "off")
"""The values of the option ``--containers``: an engine, the first one that works, or none."""
VARIABLE = "BATCHHVD_CONTAINERS"
"""The variable that holds the option's value for services that are started without it."""
HEADER = "x-batchhvd-containers"
"""The header of a dry run's answer: the engine that would run the job's image, or ``none`` and why."""
_NONE = "none"


class Containers(NamedTuple):
    """What a service does with images.

    Attributes:
        engine: the command that runs them, or "" if none is run.
        why: why none is run, or "".
    """

    engine: str = ""
    why: str = ""

    def notice(self, image: str) -> str:
        """Returns the sentence that says that an image is not run."""
        because = f" ({self.why})" if self.why else ""
        return f"the container image {image} is not run here: the job runs on the machine itself{because}"

    def to_header(self) -> str:
        """Returns the header's value."""
        return self.engine or f"{_NONE} {self.why}".strip()

    @classmethod
    def of_header(cls, value: str) -> Containers:
        """Returns what a header says."""
        first, _, rest = value.partition(" ")
        return cls(why=rest) if first in ("", _NONE) else cls(first)
