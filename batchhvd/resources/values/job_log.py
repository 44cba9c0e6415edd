"""One log file of one job, read piece by piece while the job writes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from batchhvd.errors import NotFoundError
from batchhvd.resources.values.file_entry import LinkReader
from batchhvd.wire.facts.states import JobState
from batchhvd.wire.models import PipelineAnswer, wire

if TYPE_CHECKING:
    from batchhvd.resources.job import Job

_WHILE_PREPARING = 1.0  # seconds


class JobLog:
    """One log file of one job, as a ``LogStream`` follows it.

    The local service can hold a request open until there is news: header ``x-batchhvd-wait`` says for how many seconds,
    ``x-batchhvd-unless`` which answer is not news, ``x-batchhvd-job`` whose end is. Others ignore these headers.
    """

    def __init__(self, job: Job, output: str, name: str) -> None:
        """Creates a reader at the start of the file.

        Args:
            job: whose log it is.
            output: the output directory's id.
            name: the file's name, with its folder in the directory.
        """
        self.held = False
        self._job, self._output = job, output
        self._folder, _, self._name = name.rpartition("/")
        self._reader = LinkReader(job._connection, f"{name!r} of job {job.name!r} cannot be read")
        self._tags: dict[str, str] = {}

    def state(self, wait: float) -> str:
        """Returns the job's state."""
        with self._job._asking("read"):
            model = self._job._connection.batchai.jobs.get(*self._job._path, **self._options("state", wait))
        return self._job._load(wire(model)).state

    def describe(self) -> str:
        """Says how the job stands."""
        return f"job {self._job.name!r} is {self._job.describe()}"

    def link(self, wait: float) -> str:
        """Returns the file's link, or ""."""
        for document in self._job._listed(self._output, self._folder, **self._options("link", wait)):
            if document.get("name") == self._name:
                return str(document.get("downloadUrl") or "")
        return ""

    def read(self, link: str, start: int, wait: float) -> Iterator[bytes]:
        """Yields what the file holds from a byte on."""
        yield from self._reader.read(link, start, self._headers(wait))
        self._note(self._reader.answer)

    def missing(self) -> NotFoundError | None:
        """Returns an error if the job succeeded without the file; a job that failed reports its own reason."""
        if self._job.state != JobState.SUCCEEDED:
            return None
        names = ", ".join(file.name for file in self._job.files(self._output)) or "none"
        return NotFoundError(
            f"job {self._job.name!r} ended without writing {self._name!r}. Its files are: {names}",
            code="FileNotFound",
        )

    def _options(self, about: str, wait: float) -> dict[str, object]:
        def note(response: PipelineAnswer) -> None:
            self._note(response.http_response.headers)
            self._tags[about] = response.http_response.headers.get("x-batchhvd-tag", "")

        tag = self._tags.get(about)
        return {
            "headers": {**self._headers(wait), **({"x-batchhvd-unless": tag} if tag else {})},
            "raw_response_hook": note,
        }

    def _headers(self, wait: float) -> dict[str, str]:
        longest = wait if self._job.is_prepared else _WHILE_PREPARING  # what it prepares is no news of the log
        return {"x-batchhvd-wait": f"{min(wait, longest):g}", "x-batchhvd-job": self._job.id}

    def _note(self, headers: Mapping[str, str]) -> None:
        self.held = "x-batchhvd-held" in headers
