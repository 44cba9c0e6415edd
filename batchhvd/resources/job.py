"""A job: what runs on a cluster, how it stands, and the files that it writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from attrs import define, field

from batchhvd.advice import explain
from batchhvd.advice.explain import ClusterFacts, JobFacts, Verdict
from batchhvd.errors import JobFailedError, NotFoundError, ServiceError, SpecError
from batchhvd.logs.progress import Progress
from batchhvd.logs.stream import ENDED, LogStream
from batchhvd.resources.base import Poller, Resource
from batchhvd.resources.cluster import Cluster
from batchhvd.resources.metrics import Metrics
from batchhvd.resources.output_file import LinkReader, OutputFile
from batchhvd.spec.job import JobSpec
from batchhvd.wire.connection import AGAIN
from batchhvd.wire.models import Document, moment, wire
from batchhvd.wire.reasons import Reason, reasons
from batchhvd.wire.waiting import Clock, Report, wait_until

if TYPE_CHECKING:
    from typing_extensions import Self

METRICS = "stdout.txt"
"""The log in which trainings speak of their epochs."""

LOGS = "stdouterr"
"""The id of the output directory that holds the logs. Source: the published description of listOutputFiles."""

GOALS = ("running", "succeeded", "ended")
"""What ``Job.wait`` can wait for."""

_LINK_MINUTES = 600  # the most that the description allows
_SHOWN = 10  # lines of the failed rank in the error's text; the error's ``tail`` has them all


@define(eq=False, repr=False, slots=False)
class Job(Resource):
    """A job; its fields are empty before the first answer.

    Attributes:
        state: ``queued``, ``running``, ``terminating``, ``succeeded`` or ``failed``.
        exit_code: 0, or that of the first rank that failed (128 + n for signal n); None while nothing ended.
        started: when it began to run, or None.
        ended: when it ended, or None.
        errors: why it waits or failed, in the service's words.
    """

    state: str = field(default="", init=False)
    exit_code: int | None = field(default=None, init=False)
    started: datetime | None = field(default=None, init=False)
    ended: datetime | None = field(default=None, init=False)
    errors: tuple[Reason, ...] = field(default=(), init=False)

    kind: ClassVar[str] = "job"
    _segment: ClassVar[str] = "/jobs"

    @property
    def spec(self) -> JobSpec | None:
        """What it is made of, without keys and secret values; None before the first answer."""
        return JobSpec.from_job(self._document) if self._document else None

    def wait(
        self,
        until: str = "succeeded",
        *,
        timeout: float | None = None,
        report: Report | None = None,
        clock: Clock | None = None,
    ) -> Self:
        """Waits until the job runs or has ended; Ctrl-C ends the waiting and leaves the job alone.

        Args:
            until: ``"running"`` (or beyond), ``"succeeded"``, or ``"ended"`` in whichever way.
            timeout: seconds, or None for a week.
            report: is told each change of what is waited for.
            clock: the clock to sleep by.

        Raises:
            JobFailedError: it failed, and that was not what was waited for.
            WaitTimeoutError: the time is over; the job goes on.
            SpecError: ``until`` is none of these words.
        """
        if until not in GOALS:
            raise SpecError(f"a job cannot be waited for until {until!r}", remedy=f"give one of {', '.join(GOALS)}")
        return wait_until(
            self.refresh,
            lambda job: job._reached(until),
            timeout=timeout,
            describe=Job.describe,
            what=f"job {self.name!r} to be {until}",
            clock=clock,
            pace=self.connection.pace,
            report=report,
        )

    def describe(self) -> str:
        """Returns how the job stood at the last answer, in a few words; asks nobody."""
        return f"{self.state}, {self.errors[0]}" if self.errors and self.state == "queued" else self.state

    def terminate(self, *, timeout: float = 60.0) -> Self:
        """Ends the job and waits until no rank runs; one that has ended already is fine.

        Raises:
            NotFoundError: there is no such job.
            WaitTimeoutError: it did not end in time.
        """
        with self._asking("terminated"):
            self._finish(self.connection.batchai.jobs.begin_terminate(*self._path, **AGAIN), timeout, "terminated")
        return self.refresh()

    def files(self, output: str = LOGS, folder: str = ".") -> Iterator[OutputFile]:
        """Lists the files that the job has written.

        Args:
            output: ``"stdouterr"`` for the logs, or the id of an output directory.
            folder: a folder in it.

        Raises:
            BadRequestError: there is no such output directory.
        """
        for document in self._listed(output, folder):
            yield OutputFile.of(self.connection, document)

    def stream(
        self,
        name: str = "stdout.txt",
        *,
        output: str = LOGS,
        cursor: int = 0,
        timeout: float | None = None,
        report: Report | None = None,
        clock: Clock | None = None,
    ) -> LogStream:
        """Follows a log file as the job writes it; ends when the job has ended and every byte was read.

        Args:
            name: the file's name.
            output: its output directory.
            cursor: the byte to begin with: ``LogStream.cursor`` of an earlier stream.
            timeout: seconds that the whole may take, or None for a week.
            report: is told what is waited for, such as why the job is queued.
            clock: the clock to sleep by.
        """
        pace = self.connection.pace
        return LogStream(
            JobLog(self, output, name), cursor=cursor, timeout=timeout, pace=pace, report=report, clock=clock
        )

    def metrics(self) -> Metrics:
        """Reads what the training has said of its epochs so far.

        Raises:
            NotFoundError: there is no such job.
        """
        spec = self.refresh().spec
        return Metrics.of(self._log(METRICS).decode("utf-8", errors="replace"), spec.ranks if spec else None)

    def progress(self, *, timeout: float | None = None, report: Report | None = None) -> Iterator[Progress]:
        """Follows the training: yields how it stands, each time that it has said more, until the job has ended.

        The bars that several ranks print over one another come out as one bar for each writer.

        Args:
            timeout: seconds that the whole may take, or None for a week.
            report: is told what is waited for, such as why the job is queued.
        """
        spec = self.refresh().spec
        progress = Progress(spec.ranks if spec else None)
        for text in self.stream(METRICS, timeout=timeout, report=report):
            progress.feed(text)
            yield progress
        progress.close()
        yield progress

    def explain(self) -> Verdict:
        """Says why the job waits, runs, failed or succeeded, with the evidence and what to do next.

        Raises:
            NotFoundError: there is no such job.
        """
        self.refresh()
        task = (self._document.get("properties") or {}).get("horovodSettings") or {}
        facts = JobFacts(
            id=self.id,
            name=self.name,
            state=self.state,
            nodes=int((self._document.get("properties") or {}).get("nodeCount") or 1),
            errors=self.errors,
            exit_code=self.exit_code,
            started=self.started,
            ended=self.ended,
            cluster=self._cluster_facts(),
            script=str(task.get("pythonScriptFilePath") or ""),
            restarted=self.connection.started,
            log=lambda name: self._log(name)[-8000:].decode("utf-8", errors="replace"),
        )
        return explain.of_job(facts)

    def _cluster_facts(self) -> ClusterFacts | None:
        id = str(((self._document.get("properties") or {}).get("cluster") or {}).get("id") or "")
        cluster = Cluster(self.parent.parent, id.rpartition("/")[2] or "-")
        return cluster._known() if cluster.exists() else None

    def _log(self, name: str) -> bytes:
        """Returns what a log file holds now, b"" where there is none."""
        for file in self.files():
            if file.name == name:
                return file.read()
        return b""

    def _listed(self, output: str, folder: str = ".", **options: Any) -> Iterator[Document]:
        from azure.mgmt.batchai.models import JobsListOutputFilesOptions

        asked = JobsListOutputFilesOptions(
            outputdirectoryid=output, directory=folder, linkexpiryinminutes=_LINK_MINUTES, max_results=1000
        )
        with self._asking(f"searched for files of {output!r}"):
            yield from map(wire, self.connection.batchai.jobs.list_output_files(*self._path, asked, **AGAIN, **options))

    def _reached(self, goal: str) -> bool:
        if self.state == "failed" and goal != "ended":
            raise self._failure()
        return self.state in ENDED or (goal == "running" and self.state == "running")

    def _failure(self) -> JobFailedError:
        reason = self.errors[0] if self.errors else Reason("", "the service gave no reason")
        details = reason.details
        tail = details.get("Tail", "").splitlines()
        files = self._log_names()
        message = f"job {self.name!r} failed: {str(reason).rstrip('.')}. Ask its explain() for the cause"
        message += f", or read {', '.join(files)} with stream()" if files else ""
        return JobFailedError(
            "\n    ".join([message, *tail[-_SHOWN:]]),
            resource=self.id,
            reasons=self._reasons(),
            exit_code=self.exit_code,
            node=details.get("Node", ""),
            rank=int(details["Rank"]) if details.get("Rank", "").isdigit() else None,
            tail=tail,
            files=files,
        )

    def _log_names(self) -> list[str]:
        try:
            return [file.name for file in self.files() if not file.folder]
        except ServiceError:  # the failure itself is worth more than the names that go with it
            return []

    def _load(self, document: Document) -> Self:
        properties = document.get("properties") or {}
        execution = properties.get("executionInfo") or {}
        self.state = str(properties.get("executionState") or "")
        self.exit_code = execution.get("exitCode")
        self.started = moment(execution.get("startTime"))
        self.ended = moment(execution.get("endTime"))
        self.errors = reasons(execution.get("errors") or ())
        return super()._load(document)

    def _facts(self) -> dict[str, object]:
        return {"state": self.state, "exit_code": self.exit_code}

    def _reasons(self) -> list[str]:
        return [str(reason) for reason in self.errors]

    def _read(self) -> Document:
        return wire(self.connection.batchai.jobs.get(*self._path))

    def _remove(self) -> Poller:
        poller: Poller = self.connection.batchai.jobs.begin_delete(*self._path)
        return poller


class JobLog:
    """One log file of one job, as a ``LogStream`` follows it.

    The local service can hold a request open until there is news: header ``x-batchhvd-wait`` says for how many seconds,
    ``x-batchhvd-unless`` which answer is none, ``x-batchhvd-job`` whose end is. Others ignore these headers.
    """

    def __init__(self, job: Job, output: str, name: str) -> None:
        """Makes it.

        Args:
            job: whose log it is.
            output: the output directory's id.
            name: the file's name, with its folder in the directory.
        """
        self.held = False
        self._job, self._output = job, output
        self._folder, _, self._name = name.rpartition("/")
        self._reader = LinkReader(job.connection, f"{name!r} of job {job.name!r} cannot be read")
        self._tags: dict[str, str] = {}

    def state(self, wait: float) -> str:
        """Returns the job's state."""
        with self._job._asking("read"):
            model = self._job.connection.batchai.jobs.get(*self._job._path, **self._options("state", wait))
        return self._job._load(wire(model)).state

    def describe(self) -> str:
        """Says how the job stands."""
        return f"job {self._job.name!r} is {self._job.describe()}"

    def link(self, wait: float) -> str:
        """Returns the file's link, or ""."""
        for document in self._job._listed(self._output, self._folder or ".", **self._options("link", wait)):
            if document.get("name") == self._name:
                return str(document.get("downloadUrl") or "")
        return ""

    def read(self, link: str, start: int, wait: float) -> Iterator[bytes]:
        """Yields what the file holds from a byte on."""
        yield from self._reader.read(link, start, self._headers(wait))
        self._note(self._reader.answer)

    def missing(self) -> NotFoundError | None:
        """Returns the error where the job succeeded without the file; a failure says itself why there is none."""
        if self._job.state != "succeeded":
            return None
        names = ", ".join(file.name for file in self._job.files(self._output)) or "none"
        return NotFoundError(
            f"job {self._job.name!r} has ended without writing {self._name!r}. Its files are: {names}",
            code="FileNotFound",
        )

    def _options(self, about: str, wait: float) -> dict[str, Any]:
        def note(response: Any) -> None:
            self._note(response.http_response.headers)
            self._tags[about] = response.http_response.headers.get("x-batchhvd-tag", "")

        tag = self._tags.get(about)
        return {
            "headers": {**self._headers(wait), **({"x-batchhvd-unless": tag} if tag else {})},
            "raw_response_hook": note,
        }

    def _headers(self, wait: float) -> dict[str, str]:
        return {"x-batchhvd-wait": f"{wait:g}", "x-batchhvd-job": self._job.id}

    def _note(self, headers: Mapping[str, str]) -> None:
        self.held = "x-batchhvd-held" in headers
