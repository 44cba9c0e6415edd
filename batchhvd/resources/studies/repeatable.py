"""What a job can say about another run of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from batchhvd.resources.job import Job
    from batchhvd.resources.studies.difference import JobDifference
    from batchhvd.resources.studies.replay import Replay


class Repeatable:
    """A job that can be run again, and compared with another run."""

    def replay(self, *, name: str | None = None, secrets: Mapping[str, object] | None = None) -> Replay:
        """Runs an ended job again as it was: with its specification and the code that it had.

        The code of jobs with a script is kept on the share of their logs by digest; if it has changed since, the old
        code runs from a folder of its own. Directories that its arguments name are written again.

        Args:
            name: the new job's name; None for this one's with the next number.
            secrets: the values of its secrets, which are not kept.

        Returns:
            The new run; its ``wait()`` says whether the weights are the same, bit for bit, or what differs first.

        Raises:
            NotFoundError: the job does not exist, or its code is no longer kept.
            SpecError: it has not ended, or has secrets whose values are not given.
        """
        from batchhvd.resources.studies import replay

        return replay.start(cast("Job", self), name, secrets or {})

    def difference(self, other: Job) -> JobDifference:
        """Returns what differs between this run and another: code line by line, specification, packages, data, machine.

        Raises:
            NotFoundError: one of them does not exist.
        """
        from batchhvd.resources.studies import replay

        return replay.difference(cast("Job", self), other)
