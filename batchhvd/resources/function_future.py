"""A function as a job: how it is submitted, and the values that its ranks return."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from attrs import frozen

from batchhvd.errors import JobFailedError, NotFoundError
from batchhvd.functions import packing
from batchhvd.functions.__main__ import OUTPUT, RETURNED
from batchhvd.resources import quick_run
from batchhvd.resources.job import RESULT, Job
from batchhvd.resources.values.file_entry import FileEntry
from batchhvd.spec.job import Horovod, JobSpec, OutputDirectory
from batchhvd.transfer.code import read_folder
from batchhvd.wire.facts.job_variables import ORIGIN
from batchhvd.wire.facts.states import ENDED, JobState

if TYPE_CHECKING:
    from batchhvd.resources.cluster import Cluster
    from batchhvd.resources.experiment import Experiment
    from batchhvd.resources.share import FileShare

V = TypeVar("V")


class FunctionFuture(Generic[V]):
    """The values that a function returns on the ranks of a job.

    It is made of the job's name only: it can be pickled, and ``Experiment.future`` makes it again in another program.

    Attributes:
        job: the job.
    """

    def __init__(self, job: Job) -> None:
        """Creates a future without sending a request.

        Args:
            job: the job, which ``Experiment.submit`` has made.
        """
        self.job = job

    def result(self, timeout: float | None = None) -> V:
        """Waits for the job's end and returns what the function returned on rank 0.

        What the job wrote is unpickled here: trust the job, and whoever can write to its share.

        Args:
            timeout: seconds, or None for a week.

        Raises:
            WaitTimeoutError: the time is over; the job continues.
            JobFailedError: the job failed and no function raised: a rank was killed, or the job was terminated.
            NotFoundError: it is not the job of a function.
            RemoteError: the value cannot be read here.
            Exception: what the function raised on the first rank that failed; ``__cause__`` has its traceback there.
        """
        return self._values(timeout, 1)[0]

    def results(self, timeout: float | None = None) -> list[V]:
        """Waits for the job's end and returns what the function returned on each rank; raises as ``result`` does."""
        return self._values(timeout, None)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Waits for the job's end and returns what ``result`` would raise, or None."""
        self.job.wait("ended", timeout=timeout)
        try:
            self.result()
        except Exception as error:  # whatever the function raised
            return error
        return None

    def done(self) -> bool:
        """Says whether the job has ended."""
        return self.job.refresh().state in ENDED

    def running(self) -> bool:
        """Says whether the job runs at the moment."""
        return self.job.refresh().state == JobState.RUNNING

    def cancel(self) -> bool:
        """Terminates the job and waits until no rank runs; returns False if it had ended already."""
        if self.done():
            return False
        self.job.terminate()
        return True

    def __repr__(self) -> str:
        return f"FunctionFuture({self.job!r})"

    def _values(self, timeout: float | None, count: int | None) -> list[V]:
        self.job.wait("ended", timeout=timeout)
        files = self._files()
        try:
            self.job.wait("succeeded")
        except JobFailedError as error:
            self._raise(files, error)
        ranks = range(self.job.spec.ranks if count is None else count)
        return [self._read(files, rank) for rank in ranks]

    def _files(self) -> dict[str, FileEntry]:
        if all(directory.id != OUTPUT for directory in self.job.spec.outputs):
            raise NotFoundError(
                f"job {self.job.name!r} is not the job of a function, so it has no value. Read its files, or use the "
                "name of a job that submit() has made",
                target=self.job.id,
            )
        return {file.name: file for file in self.job.files(OUTPUT)}

    def _raise(self, files: Mapping[str, FileEntry], error: JobFailedError) -> None:
        """Raises what the function raised on the first rank that failed, or what ended the job instead."""
        named = [error.rank] if error.rank is not None else []
        for rank in [*named, *(rank for rank in range(self.job.spec.ranks) if rank not in named)]:
            if f"rank-{rank}.json" in files and self._about(files, rank).get("state") != RETURNED:
                self._read(files, rank)
            elif rank in named:
                break  # it was killed: what others say followed from it
        raise error

    def _read(self, files: Mapping[str, FileEntry], rank: int) -> V:
        if f"rank-{rank}.json" not in files:
            raise NotFoundError(
                f"rank {rank} of job {self.job.name!r} ended without a value: the function left by os._exit(). Read "
                "what it printed with future.job.stream()",
                target=self.job.id,
            )
        pickled = files[f"rank-{rank}.pickle"]
        return cast("V", packing.read(self._about(files, rank), pickled.read, rank, self.job.name))

    def _about(self, files: Mapping[str, FileEntry], rank: int) -> dict[str, object]:
        found: dict[str, object] = json.loads(files[f"rank-{rank}.json"].read())
        return found


def submit(
    experiment: Experiment,
    function: Callable[..., V],
    args: Sequence[object],
    arguments: Mapping[str, object],
    *,
    nodes: int,
    cluster: Cluster | None,
    code: str | os.PathLike[str] | None,
    preparation: str,
    environment: str | os.PathLike[str] | None,
    name: str | None,
) -> FunctionFuture[V]:
    """Submits a function; ``Experiment.submit`` describes the arguments."""
    own = {"nodes": nodes != 1, "cluster": cluster, "code": code, "preparation": preparation, "name": name}
    own["environment"] = environment
    packing.check_call(function, args, arguments, tuple(own), [option for option, given in own.items() if given])
    how = HowToRun(nodes, code, preparation, environment)
    spec = described(experiment, function, args, arguments, how)
    on = cluster or quick_run.cluster(experiment.workspace, nodes)
    return FunctionFuture(experiment.create_job(name, spec, cluster=on, rerun=name is not None))


@frozen
class HowToRun:
    """How a function runs; ``Experiment.submit`` describes the fields."""

    nodes: int
    code: str | os.PathLike[str] | None
    preparation: str
    environment: str | os.PathLike[str] | None


def described(
    experiment: Experiment,
    function: Callable[..., object],
    args: Sequence[object],
    arguments: Mapping[str, object],
    how: HowToRun,
) -> JobSpec:
    """Returns the spec of a function's job, after what it needs was uploaded."""
    code, environment = how.code, how.environment
    quick_run.check_requirements(environment)
    packed = packing.pack(function, args, arguments, Path(code) if code else None)
    program = read_folder(Path(code)) if code else None
    share = quick_run.share(experiment.group)
    mount = share.mount(quick_run.MOUNT)
    runner = _send(share, packed)
    words = [mount / f"functions/{packed.digest}", *([mount / quick_run.upload(share, program)] if program else [])]
    task = Horovod(script=mount / runner, args=" ".join(f'"{word}"' for word in words))
    return JobSpec(
        nodes=how.nodes,
        task=quick_run.in_environment(share, task, environment),
        mounts=[mount],
        logs=mount / "logs",
        outputs=[OutputDirectory(RESULT, mount / "logs", "result"), OutputDirectory(OUTPUT, mount / "logs", "values")],
        preparation=how.preparation or None,
        environment={ORIGIN: f"submit {packed.name}"},
    )


def _send(share: FileShare, packed: packing.PackedFunction) -> str:
    """Uploads a function and what runs it, and returns the path of the script."""
    program = packing.program()
    place = f"functions/runner-{packing.digest_of(program)}"
    with tempfile.TemporaryDirectory() as folder:
        for name, content in packed.files.items():
            Path(folder, name).write_bytes(content)
        own = [(Path(folder, name), f"functions/{packed.digest}/{name}") for name in packed.files]
        share._send([*own, *((path, f"{place}/{name}") for name, path in program.items())])
    return f"{place}/run_function.py"
