"""A job: what runs on a cluster, its state, and the files that it writes."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from datetime import datetime
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from attrs import define, field

from batchhvd.errors import JobFailedError, ServiceError, SpecError
from batchhvd.logs.progress import Progress, ProgressReader
from batchhvd.logs.stream import LogStream
from batchhvd.resources import preparation, runs
from batchhvd.resources.base import Operations, Resource
from batchhvd.resources.cluster import Cluster
from batchhvd.resources.studies.repeatable import Repeatable
from batchhvd.resources.values.file_entry import FileEntry, output_entry
from batchhvd.resources.values.job_failure import failure
from batchhvd.resources.values.job_log import JobLog
from batchhvd.resources.values.listing import Listing, files
from batchhvd.resources.values.metrics import Metrics
from batchhvd.resources.values.usage import Usage, follow
from batchhvd.spec.job import JobSpec
from batchhvd.transfer.checksum import usable
from batchhvd.transfer.selection import target_here
from batchhvd.wire.connection import AGAIN
from batchhvd.wire.entrance import entrance
from batchhvd.wire.facts import additions, toolkits
from batchhvd.wire.facts.documents import Body
from batchhvd.wire.facts.job_variables import ORIGIN
from batchhvd.wire.facts.states import ENDED, GoalWord, JobState, JobStateWord, WireWord
from batchhvd.wire.models import Document, moment, wire
from batchhvd.wire.reasons import Reason, reasons
from batchhvd.wire.waiting import Report, wait_until

if TYPE_CHECKING:
    from typing_extensions import Self

    from batchhvd.advice.explain import ClusterFacts, Verdict
    from batchhvd.resources.experiment import Experiment
    from batchhvd.resources.group import ResourceGroup
    from batchhvd.resources.workspace import Workspace

METRICS = "stdout.txt"  # the log in which trainings report their epochs
LOGS = "stdouterr"
"""The id of the output directory that holds the logs. Source: the published description of listOutputFiles."""
RESULT = "RESULT"
"""The id of the output directory that ``Session.run`` gives a job."""


class Goal(WireWord):
    """What ``Job.wait`` can wait for."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    ENDED = "ended"


_LINK_MINUTES = 600  # the most that the description allows


@define(eq=False, repr=False, slots=False)
class Job(Repeatable, Resource):
    """A job.

    Attributes:
        state: ``queued``, ``running``, ``terminating``, ``succeeded`` or ``failed``.
        exit_code: 0, or that of the first rank that failed (128 + n for signal n); None until a rank has ended.
        started: when it began to run, or None.
        ended: when it ended, or None.
        errors: why it waits or failed, as the service puts it; and how earlier attempts ended.
    """

    state: JobState | JobStateWord = field(init=False)
    exit_code: int | None = field(init=False)
    started: datetime | None = field(init=False)
    ended: datetime | None = field(init=False)
    errors: tuple[Reason, ...] = field(init=False)

    _prepared: bool = field(default=False, init=False)
    _phase: str = field(default="", init=False)

    kind: ClassVar[str] = "job"
    _plural: ClassVar[str] = "jobs"
    _segment: ClassVar[str] = "/jobs"
    _operations: ClassVar[Operations] = Operations("batchai", "jobs", "list_by_experiment")

    @property
    def experiment(self) -> Experiment:
        """The experiment that it belongs to."""
        return cast("Experiment", self._parent)

    @property
    def workspace(self) -> Workspace:
        """The workspace that it belongs to."""
        return self.experiment.workspace

    @property
    def group(self) -> ResourceGroup:
        """The resource group that it belongs to."""
        return self.workspace.group

    @property
    def spec(self) -> JobSpec:
        """What it consists of, without keys and secret values."""
        return JobSpec._from_job(self.document)

    def wait(
        self, until: GoalWord = "succeeded", *, timeout: float | None = None, report: Report | None = None
    ) -> Self:
        """Waits until the job runs or has ended; Ctrl-C ends the wait and leaves the job running.

        Args:
            until: ``"running"`` (or any later state), ``"succeeded"``, or ``"ended"`` with any result.
            timeout: seconds, or None for a week.
            report: is called with a line each time the state changes.

        Raises:
            JobFailedError: it failed, and the goal was not ``"ended"``.
            WaitTimeoutError: the time is over; the job continues.
            SpecError: ``until`` is none of these words.
        """
        if until not in set(Goal):
            raise SpecError(
                f"a job cannot be waited for until it is {until!r}", remedy=f"give one of {', '.join(Goal)}"
            )
        return wait_until(
            self.refresh,
            lambda job: job._reached(until),
            timeout=timeout,
            describe=Job.describe,
            what=f"job {self.name!r} to be {until}",
            clock=self._session.clock,
            pace=self._connection.pace,
            report=report,
        )

    def describe(self) -> str:
        """Returns the job's last known state in a few words; of a job that is being prepared, what with."""
        preparing = "" if self._prepared else preparation.phase(self)
        self._prepared = self._prepared or (self.state != JobState.QUEUED and preparing == "")
        self._phase = preparing or ""
        if preparing:
            return f"{self.state}, {preparing}"
        return f"{self.state}, {self.errors[0]}" if self.errors and self.state == JobState.QUEUED else self.state

    @property
    def is_prepared(self) -> bool:
        """Whether it has no preparation, or one that had ended when ``describe`` was last called."""
        return self._prepared or not (self._document.get("properties") or {}).get("jobPreparation")

    def terminate(self, *, timeout: float = 60.0) -> Self:
        """Terminates the job and waits until no rank runs; does nothing if it has ended already.

        Raises:
            NotFoundError: the job does not exist.
            WaitTimeoutError: it did not end in time; it is still terminating.
        """
        with self._asking("terminated"):
            self._finish(self._connection.batchai.jobs.begin_terminate(*self._path, **AGAIN), timeout, "terminated")
        return self.refresh()

    def files(self, output: str = LOGS, directory: str = "") -> Listing[FileEntry]:
        """Lists the files and directories that the job has written; nothing is sent before it is read.

        Args:
            output: ``"stdouterr"`` for the logs, or the id of an output directory.
            directory: a directory in it; "" for its root.

        Raises:
            BadRequestError: the job has no such output directory.
        """
        folder = directory.removeprefix("./").strip("/").removeprefix(".")
        return files(lambda: (output_entry(self._connection, found, folder) for found in self._listed(output, folder)))

    def download(self, to: str | os.PathLike[str] = ".", *, output: str = RESULT) -> list[Path]:
        """Copies all that the job has written to an output directory, and returns the local paths.

        Args:
            to: the local folder; it is made if it is missing.
            output: the output directory's id.

        Raises:
            BadRequestError: the job has no such output directory.
            SpecError: a local file cannot be written.
        """
        return list(self._download("", Path(to), output))

    def _download(self, directory: str, to: Path, output: str) -> Iterator[Path]:
        for file in self.files(output, directory):
            if file.is_directory:
                yield from self._download(file.path, to, output)
                continue
            target = target_here(to, file.path)
            with usable(target, "written"):
                target.parent.mkdir(parents=True, exist_ok=True)
                yield file.download(target)

    def stream(
        self,
        name: str = "stdout.txt",
        *,
        output: str = LOGS,
        cursor: int = 0,
        timeout: float | None = None,
        report: Report | None = None,
    ) -> LogStream:
        """Follows a log file while the job writes it; ends when the job has ended and every byte has been read.

        Args:
            name: the file's name.
            output: its output directory.
            cursor: the byte to start from: ``LogStream.cursor`` of an earlier stream.
            timeout: seconds that the stream may take, or None for a week.
            report: is called with a line about what is waited for, such as why the job is queued.
        """
        return LogStream(
            JobLog(self, output, name),
            cursor=cursor,
            timeout=timeout,
            pace=self._connection.pace,
            report=report,
            clock=self._session.clock,
        )

    def stream_preparation(self, *, report: Report | None = None) -> Iterator[str]:
        """Follows what the job's preparation prints on its first node; ends when the preparation has ended.

        Args:
            report: is called with a line about what is waited for, such as why the job is queued.

        Raises:
            NotFoundError: the job does not exist.
        """
        return preparation.follow(self, report) if self.spec.preparation else iter(())

    def entrance(self, node: int = 0, *, terminal: bool = False) -> list[str]:
        """Returns the words before a command line with which it runs in a node, with its ranks' files and variables.

        They are for a program on the service's machine: ``subprocess.run([*job.entrance(), "nvidia-smi"])``.

        Args:
            node: the node's number, from 0.
            terminal: whether the command's input and output are a terminal.

        Raises:
            SpecError: the service is not one of this machine.
            ConflictError: the job does not run.
            BadRequestError: the nodes of its engine cannot be entered.
        """
        return entrance(self._connection, "job", self.id, node, terminal=terminal, name=self.name)

    def usage(self, interval: float = 2.0) -> Iterator[Usage]:
        """Follows what each rank uses of its machine: processors, memory, GPUs; ends when the job has ended.

        It enters each node as ``entrance`` does. ``next(job.usage())`` is one look, after half a second.

        Args:
            interval: seconds between two looks.

        Raises:
            SpecError: the service is not one of this machine.
            ConflictError: the job does not run, or its nodes cannot be measured; the message says why.
            BadRequestError: the nodes of its engine cannot be entered.
        """
        nodes = range(self.refresh().spec.nodes)
        return follow([partial(self.entrance, node) for node in nodes], interval)

    def metrics(self) -> Metrics:
        """Reads what the training has printed about its epochs so far, and what it reported with ``hvd.report``.

        Raises:
            NotFoundError: the job does not exist.
        """
        spec = self.refresh().spec
        return Metrics._of(self.files(), METRICS, spec.ranks)

    def progress(self, *, timeout: float | None = None, report: Report | None = None) -> Iterator[Progress]:
        """Follows the training: yields a snapshot each time the log has grown, until the job has ended.

        Bars that several ranks print over one another are separated into one bar for each writer.

        Args:
            timeout: seconds that the stream may take, or None for a week.
            report: is called with a line about what is waited for, such as why the job is queued.
        """
        spec = self.refresh().spec
        reader = ProgressReader(spec.ranks)
        for text in self.stream(METRICS, timeout=timeout, report=report):
            reader.feed(text)
            yield reader.snapshot()
        reader.close()
        yield reader.snapshot()

    def explain(self) -> Verdict:
        """Explains why the job waits, runs, failed or succeeded, with the evidence and the next step.

        Raises:
            NotFoundError: the job does not exist.
        """
        from batchhvd.advice import explain  # late: most programs never ask

        task = toolkits.block_of(self.refresh()._document.get("properties") or {})
        facts = explain.JobFacts(
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
            restarted=self._connection.started,
            preparing=preparation.phase(self) or "",
            origin=self.spec.environment.get(ORIGIN, ""),
            log=lambda name: self._log(name)[-8000:].decode("utf-8", errors="replace"),
        )
        return explain.of_job(facts)

    def _create(self, body: Body, timeout: float) -> Self:
        return self._created(lambda: self._connection.batchai.jobs.begin_create(*self._path, parameters=body), timeout)

    def _repeat(self, spec: JobSpec, body: Body, timeout: float) -> Self:
        """Returns the job, which exists, if it has not ended and is the same; nothing is started."""
        if self.state in ENDED:
            raise runs.has_ended(self, spec)
        if other := runs.has_changed(self, spec):
            raise other
        self._create(runs.noted(body, runs.notes_of(self._document)), timeout)  # the service compares the rest
        warnings.warn(f"job {self.name!r} is {self.state} already; nothing was started", UserWarning, stacklevel=3)
        return self

    def _cluster_facts(self) -> ClusterFacts | None:
        id = str(((self._document.get("properties") or {}).get("cluster") or {}).get("id") or "")
        cluster = Cluster(self.workspace, id.rpartition("/")[2] or "-")
        return cluster._known() if cluster.exists() else None

    def _log(self, name: str) -> bytes:
        """Returns the present content of the log files of a name or pattern; b"" if there are none."""
        return b"".join(file.read() for file in self.files() if fnmatch(file.name, name) and not file.is_directory)

    def _listed(self, output: str, directory: str = "", **options: object) -> Iterator[Document]:
        from azure.mgmt.batchai.models import JobsListOutputFilesOptions

        asked = JobsListOutputFilesOptions(
            outputdirectoryid=output, directory=directory or ".", linkexpiryinminutes=_LINK_MINUTES, max_results=1000
        )
        with self._asking(f"searched for files of {output!r}"):
            yield from map(
                wire, self._connection.batchai.jobs.list_output_files(*self._path, asked, **AGAIN, **options)
            )

    def _reached(self, goal: str) -> bool:
        if self.state == JobState.FAILED and goal != Goal.ENDED:
            raise self._failure()
        return self.state in ENDED or (goal == Goal.RUNNING and self.state == JobState.RUNNING)

    def _failure(self) -> JobFailedError:
        return failure(self.id, self.name, self.errors, exit_code=self.exit_code, files=self._log_names())

    def _log_names(self) -> list[str]:
        try:
            return [file.name for file in self.files() if not file.is_directory]
        except ServiceError:  # the failure itself matters more than the names of its files
            return []

    def _load(self, document: Document) -> Self:
        properties = document.get("properties") or {}
        execution = properties.get("executionInfo") or {}
        self.state = cast("JobState", JobState.read(str(properties.get("executionState") or "")))
        self.exit_code = execution.get("exitCode")
        self.started = moment(execution.get("startTime")) if additions.ran(properties) else None
        self.ended = moment(execution.get("endTime"))
        self.errors = reasons(additions.told_errors(properties))
        return super()._load(document)

    def _facts(self) -> dict[str, object]:
        return {"state": f"{self.state}, {self._phase}" if self._phase else self.state, "exit_code": self.exit_code}

    def _repr_html_(self) -> str:
        if self._document and self.state == JobState.RUNNING:
            self.describe()  # looks whether it is being prepared
        return super()._repr_html_()

    def _where(self) -> dict[str, object]:
        return runs.where(self)

    def _details(self) -> dict[str, object]:
        return runs.details(self)

    def _reasons(self) -> list[str]:
        return [str(reason) for reason in self.errors]
