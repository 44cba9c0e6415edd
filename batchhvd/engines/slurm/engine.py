"""The engine for Slurm: a task is one batch job, and each of its nodes is one node of the job's allocation.

``preview`` returns the batch script, and ``submit`` sends exactly that. The script does two things: if Slurm has
started the run again, it moves the records of the earlier attempt out of the way; and it places one node runner on
each node with one ``srun``. Everything else is up to the runner.

A handle is the job's number and the task's folder, ``"1234 /shared/tasks/…"``. Slurm decides whether
a job is still running, unless the records of all nodes say that they have ended by themselves; the records decide how
it ended. While the controller does not answer, the records alone decide, and a job is never lost.

Source: the manual pages of sbatch, srun, squeue, sacct, scancel and sinfo of Slurm 22.05.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from batchhvd.engines import records
from batchhvd.engines.base import Status, StopReason, Task
from batchhvd.engines.slurm.answers import FIELDS, SlurmJob, accounted, job_of, nodes_of, readable
from batchhvd.engines.slurm.judge import judged
from batchhvd.engines.slurm.run import SlurmRun, Submission, read_submission
from batchhvd.engines.slurm.script import ScriptLayout, checked, script
from batchhvd.errors import EngineError, EngineMissingError
from batchhvd.node import archive, durable
from batchhvd.node.records import write_json

_UNKNOWN = "Invalid job id"  # what squeue says if it knows none of the jobs; any other failure is not an answer
_AGAIN = 5.0  # seconds between two cancellations of the same job
_PACKAGE = "slurm-client"


class Slurm:
    """The engine that runs tasks on a cluster under Slurm.

    It works on any machine on which ``sbatch`` works, if the tasks' folders and this Python are on a file system that
    the nodes share.

    Args:
        bin: the folder of Slurm's commands, "" to find them in PATH.
        python: the interpreter that runs the node runner on the nodes.
        mpi: what starts the ranks of an MPI task: ``"mpirun"``, or a kind that ``srun --mpi`` has, such as ``"pmix"``.
        pause: for how many seconds an answer of squeue is reused. An answer of sinfo is reused ten times as long, and a
            controller that does not answer is left alone for as long as that.
        options: options of sbatch for every task, such as ``partition="gpu"``; ``_`` stands for ``-``.

    Raises:
        EngineError: an option is not one that can be set.
        EngineMissingError: sbatch or squeue is not installed.
    """

    def __init__(
        self,
        *,
        bin: str = "",
        python: str = sys.executable,
        mpi: str = "mpirun",
        pause: float | str = 0.5,
        **options: str,
    ) -> None:
        self._bin, self._python, self._mpi, self._pause = bin, python, mpi, float(pause)
        self._options = checked({name.replace("_", "-"): value for name, value in options.items()})
        self._seen: dict[str, tuple[float, SlurmJob | None]] = {}
        self._cancelled: dict[str, float] = {}
        self._silent = -math.inf  # when the controller last gave no answer
        self._nodes: tuple[float, dict[str, tuple[bool, str]] | None] = (-math.inf, None)
        for name in ("sbatch", "squeue"):
            self._find(name)

    # -- the four verbs --

    def nodes(self) -> int:
        """Returns how many nodes the partition has, whatever their state.

        Raises:
            EngineError: the controller does not answer, and never has.
        """
        found = self._sinfo()
        if found is None:
            raise EngineError(
                "Slurm's controller does not answer; check it with: scontrol ping", engine="slurm", command="sinfo"
            )
        return len(found)

    def preview(self, task: Task) -> str:
        """Returns the batch script of a task.

        Raises:
            EngineError: the task has an option that cannot be set.
        """
        options = {**self._options, **checked(task.options)}
        layout = ScriptLayout(python=self._python, runner=f'"$folder/{archive.name()}"')
        return script(task, options, layout, mpi=self._mpi)

    def submit(self, task: Task) -> str:
        """Hands a task to sbatch and returns its handle.

        Raises:
            EngineError: an option cannot be set, or sbatch rejected the job; the message contains Slurm's.
        """
        text, folder = self.preview(task), Path(task.folder)
        known = read_submission(folder)
        job = self._earlier(folder) if known is None else known["job"]
        if job is None:
            task.write()
            archive.write(folder)
            durable.replace(folder / "job.sbatch", text.encode())
            job = self._sbatch(text)
        submission: Submission = {"job": job, "nodes": list(task.nodes)}
        write_json(folder / "slurm.json", submission, lasting=True)
        self._seen.pop(job, None)
        return f"{job} {folder}"

    def status(self, handles: Sequence[str]) -> Mapping[str, Status]:
        """Returns the status of each run; asks Slurm once, about all runs whose records do not say how they ended."""
        runs = {handle: SlurmRun.read(handle) for handle in handles}
        asked = [run.job for run in runs.values() if not run.is_final]
        for handle in [handle for handle, run in runs.items() if run.is_damaged]:
            self._end_damaged(handle, runs[handle])
        jobs = self._jobs(asked) if asked else {}
        return {handle: run.told if run.is_final else judged(run, jobs) for handle, run in runs.items()}

    def cancel(self, handle: str) -> None:
        """Tells the runners to end, and Slurm to end the job; Slurm uses force after its KillWait.

        While the controller does not answer, only the runners are told: a job that is still queued then ends as soon as
        it starts.
        """
        run, now = SlurmRun.read(handle), time.monotonic()
        if run.is_final:
            return
        with contextlib.suppress(FileNotFoundError):  # a folder that is gone has no runners to tell
            records.declare(run.folder, StopReason.CANCELLED, error="the job was terminated")
        if now - self._cancelled.get(handle, -_AGAIN) >= _AGAIN:
            self._cancelled[handle] = now
            self._seen.pop(run.job, None)
            self._run("scancel", run.job)

    def _end_damaged(self, handle: str, run: SlurmRun) -> None:
        """Ends a run whose records cannot be read; the stop file says why, should a node write its own again."""
        with contextlib.suppress(OSError):  # the job is cancelled in any case
            records.declare(run.folder, StopReason.ENGINE, error=run.told.error)
        self.cancel(handle)

    # -- what only this engine has --

    def node_states(self) -> dict[str, str]:
        """Returns the nodes of the partition that accept no jobs, each with its state and Slurm's reason."""
        return {name: text for name, (usable, text) in (self._sinfo() or {}).items() if not usable}

    # -- Slurm's commands --

    def _find(self, name: str) -> str:
        path = shutil.which(name, path=self._bin or None)
        if path is None:
            where = f"in {self._bin}" if self._bin else "in PATH"
            message = f"{name} was not found {where}; on Debian and Ubuntu: apt-get install {_PACKAGE}"
            raise EngineMissingError(message, engine="slurm", command=name)
        return path

    def _run(self, name: str, *arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Runs a command of Slurm; one that does not finish within 30 s counts as a failure."""
        command = [self._find(name), *arguments]
        try:
            return subprocess.run(command, input=text, capture_output=True, text=True, timeout=30, check=False)
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, 1, "", f"{name}: timed out after 30 s")

    def _sbatch(self, text: str) -> str:
        """Sends a batch script and returns the job's number."""
        answer = self._run("sbatch", "--parsable", text=text)
        if answer.returncode:
            told, code = answer.stderr.strip(), answer.returncode
            message = f"sbatch rejected the job: {told}"
            raise EngineError(message, engine="slurm", command="sbatch", exit_code=code, output=told)
        return answer.stdout.strip().partition(";")[0]

    def _earlier(self, folder: Path) -> str | None:
        """Returns the job of a submission that was interrupted before its number was stored: it runs in the folder."""
        if not (folder / "job.sbatch").exists():
            return None
        found = self._squeue("--me") or {}
        return next((number for number, job in found.items() if job.folder == str(folder)), None)

    def _jobs(self, numbers: Sequence[str]) -> dict[str, SlurmJob] | None:
        """Returns what Slurm knows about jobs, or None while its controller does not answer."""
        now = time.monotonic()
        self._seen = {number: seen for number, seen in self._seen.items() if now - seen[0] <= self._pause}
        if not set(numbers) <= set(self._seen):
            fresh = self._squeue(f"--jobs={','.join(numbers)}")
            if fresh is None:
                return None
            forgotten = [number for number in numbers if number not in fresh]
            fresh.update(self._sacct(forgotten) if forgotten else {})
            self._seen.update({number: (now, fresh.get(number)) for number in numbers})
        known = {number: self._seen[number][1] for number in numbers}
        return {number: job for number, job in known.items() if job is not None}

    def _squeue(self, which: str) -> dict[str, SlurmJob] | None:
        if time.monotonic() - self._silent < 10 * self._pause:
            return None
        fields = ",".join(f"{name}:|" for name in FIELDS)
        answer = self._run("squeue", "--noheader", "--states=all", which, f"--Format={fields}")
        if answer.returncode and _UNKNOWN not in answer.stderr:
            self._silent = time.monotonic()
            return None
        return readable(job_of, answer.stdout)  # an unknown job has no line

    def _sacct(self, numbers: Sequence[str]) -> dict[str, SlurmJob]:
        """Asks the accounting about jobs that the controller has forgotten; most small sites have no accounting."""
        if shutil.which("sacct", path=self._bin or None) is None:
            return {}
        columns = "--format=JobIDRaw,State,ExitCode,End"
        answer = self._run("sacct", "-n", "-P", "-X", "--starttime=1970-01-01", f"--jobs={','.join(numbers)}", columns)
        return readable(accounted, answer.stdout) if not answer.returncode else {}

    def _sinfo(self) -> dict[str, tuple[bool, str]] | None:
        """Returns for each node of the partition whether it accepts jobs, and its state with Slurm's reason.

        While the controller does not answer, the last answer is reused; None if there was none.
        """
        now, (asked, found) = time.monotonic(), self._nodes
        if now - asked > 10 * self._pause:
            partition = self._options.get("partition", "")
            chosen = [f"--partition={partition}"] if partition else []
            answer = self._run("sinfo", "--noheader", "--Node", *chosen, "--format=%P|%N|%T|%E")
            found = found if answer.returncode else nodes_of(answer.stdout.splitlines(), bool(partition))
            self._nodes = (time.monotonic(), found)
        return found
