"""What a service does with the container images that jobs name, and how it tells the client."""

from __future__ import annotations

from typing import NamedTuple

PULLS, RUNS, NOT_RUN = "it is pulled for this job", " runs {image} as ", "is not run here"
"""What a node notes in its execution log before it pulls an image, when the container runs, or that none does."""

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

    def announcement(self, image: str) -> str:
        """Returns the sentence that says what runs an image, and where it comes from, before anything is done."""
        if "archive:" in image:
            return f"{self.engine} runs this job in the image of {image}, which is loaded first"
        where = "" if self.engine == "apptainer" else f" unless it is in the storage of {self.engine} on the node"
        return f"{self.engine} runs this job in the image {image}, which is pulled from its registry first{where}"

    def to_header(self) -> str:
        """Returns the header's value."""
        return self.engine or f"{_NONE} {self.why}".strip()

    @classmethod
    def of_header(cls, value: str) -> Containers:
        """Returns what a header says."""
        first, _, rest = value.partition(" ")
        return cls(why=rest) if first in ("", _NONE) else cls(first)
