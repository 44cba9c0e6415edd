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
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from attrs import evolve

from batchhvd.engines import records
from batchhvd.engines.base import Status, StopReason, Task
from batchhvd.engines.slurm.arrays import ArraySubmitter
from batchhvd.engines.slurm.commands import SlurmCommands
from batchhvd.engines.slurm.grace import SiteGrace
from batchhvd.engines.slurm.judge import judged
from batchhvd.engines.slurm.partition import Partition
from batchhvd.engines.slurm.run import SlurmRun, Submission
from batchhvd.engines.slurm.script import CLAIMING, ScriptLayout, alike, array_script, checked, limited, script
from batchhvd.engines.slurm.submission import Submitter
from batchhvd.engines.slurm.watch import JobWatch
from batchhvd.errors import EngineBusyError, EngineError
from batchhvd.node import archive
from batchhvd.node.folder.records import write_json

_AGAIN = 5.0  # seconds between two cancellations of the same job


class Slurm:
    """The engine that runs tasks on a cluster under Slurm.

    It works on any machine on which ``sbatch`` works, if the tasks' folders and this Python are on a file system that
    the nodes share.

    Args:
        bin: the folder of Slurm's commands, "" to find them in PATH.
        python: the interpreter that runs the node runner on the nodes.
        mpi: what starts the ranks of an MPI task: ``"mpirun"``, or a kind that ``srun --mpi`` has, such as ``"pmix"``.
        pause: the least number of seconds between two questions to Slurm about all jobs; while the answers are the
            same, the pause grows to twenty times as long. A controller that does not answer is left alone for ten.
        wait: for how many seconds to wait for an answer of Slurm; after that, it is fetched later.
        doubt: for how many seconds after a lost answer of sbatch its job may still turn up in Slurm's queue.
        grace: seconds between SIGTERM and SIGKILL when a task is ended; by default a little less than Slurm's KillWait.
        ahead: how many more nodes clusters may have than the partition: jobs on them wait in Slurm's queue.
        prologue: a file of shell commands that the batch script reads first, such as ``module load``; "" for none.
        options: options of sbatch for every task, such as ``partition="gpu"``; ``_`` stands for ``-``.

    Raises:
        EngineError: an option is not one that can be set, or the prologue does not exist.
        EngineMissingError: sbatch or squeue is not installed.
    """

    def __init__(
        self,
        *,
        bin: str = "",
        python: str = sys.executable,
        mpi: str = "mpirun",
        pause: float | str = 0.5,
        wait: float | str = 1,
        doubt: float | str = 30,
        grace: float | str | None = None,
        ahead: int | str = 0,
        prologue: str = "",
        **options: str,
    ) -> None:
        self._python, self._mpi, self._prologue = python, mpi, _existing(prologue)
        self._ahead = int(ahead)
        self._grace = None if grace is None else float(grace)
        self._options = checked({name.replace("_", "-"): value for name, value in options.items()})
        self._commands = SlurmCommands(bin, float(wait))
        self._site = SiteGrace(self._commands)
        self._watch = JobWatch(self._commands, float(pause))
        self._submitter = Submitter(self._commands, self._watch, float(doubt))
        self._partition = Partition(self._commands, self._options.get("partition", ""), float(pause))
        self._arrays = ArraySubmitter(
            self._submitter, self._watch, self._submit_one, self._alike, self._write_all, self._keep_element
        )
        self._told: dict[str, str | EngineError] = {}  # what came of tasks of a submission of many, by folder
        self._cancelled: dict[str, float] = {}

    # -- the four verbs --

    def nodes(self) -> int:
        """Returns how many nodes clusters may have: those of the partition, whatever their state, and those ahead.

        Raises:
            EngineError: the controller does not answer, and never has.
        """
        found = self._partition.nodes()
        if found is None:
            raise EngineError(
                "Slurm's controller does not answer; check it with: scontrol ping", engine="slurm", command="sinfo"
            )
        return len(found) + self._ahead

    def preview(self, task: Task) -> str:
        """Returns the batch script of a task.

        Raises:
            EngineError: the task has an option that cannot be set.
        """
        return script(task, self._options_of(task), self._layout(f'"$folder/{archive.name()}"'), mpi=self._mpi)

    def _options_of(self, task: Task) -> dict[str, str]:
        return {**self._options, **checked(task.options)}

    def _layout(self, runner: str, directory: str = "") -> ScriptLayout:
        before = (CLAIMING, *([f". {shlex.quote(self._prologue)}"] if self._prologue else []))
        most = self._partition.minutes()
        return ScriptLayout(python=self._python, runner=runner, directory=directory, before=before, most=most)

    def submit(self, task: Task) -> str:
        """Hands a task to sbatch and returns its handle.

        Raises:
            EngineBusyError: Slurm takes no jobs at the moment, or has not answered yet; submit it again later.
            EngineError: an option cannot be set, or sbatch rejected the job; the message contains Slurm's.
        """
        folder = Path(task.folder)
        job = self._answered(folder, lambda: self._submitter.submit(folder, partial(self._write, task)), "sbatch")
        return self._keep(folder, job, task.nodes)

    def submit_many(self, tasks: Sequence[Task]) -> dict[str, str | EngineError]:
        """Hands tasks to sbatch, those that are alike as job arrays; returns the handle of each by its folder.

        Instead of a handle, an ``EngineBusyError`` says that a task has to be submitted again later, and any other
        ``EngineError`` why it cannot run. While one submission of many is on its way, no other one begins.
        """
        new = [task for task in tasks if task.folder not in self._told]
        if new:
            self._told |= self._commands.soon("arrays", lambda: self._arrays.submit(new)) or {}
        busy = _unanswered("sbatch")
        return {task.folder: self._told.pop(task.folder, busy) for task in tasks}

    def find(self, folder: str) -> str | None:
        """Returns the handle of a task's run, or None if it was never accepted.

        Raises:
            EngineBusyError: it is not known whether Slurm has accepted it.
        """
        place = Path(folder)
        if not (place / "task.json").exists():
            return None
        job = self._answered(place, lambda: self._submitter.find(place) or "", "squeue")
        return self._keep(place, job, Task.read(place).nodes) if job else None

    def status(self, handles: Sequence[str]) -> Mapping[str, Status]:
        """Returns the status of each run; asks Slurm once, about all runs whose records do not say how they ended."""
        runs = {handle: SlurmRun.read(handle) for handle in handles}
        asked = [run.job for run in runs.values() if not run.is_final]
        for handle in [handle for handle, run in runs.items() if run.is_damaged]:
            self._end_damaged(handle, runs[handle])
        jobs = self._watch.jobs(asked) if asked else {}
        silence = self._watch.silence if jobs is None else ""
        counted = self._partition.counted
        return {h: run.told if run.is_final else judged(run, jobs, silence, counted) for h, run in runs.items()}

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
            self._watch.forget(run.job)
            self._commands.aside("scancel", run.job)

    def _end_damaged(self, handle: str, run: SlurmRun) -> None:
        """Ends a run whose records cannot be read; the stop file says why, should a node write its own again."""
        with contextlib.suppress(OSError):  # the job is cancelled in any case
            records.declare(run.folder, StopReason.ENGINE, error=run.told.error)
        self.cancel(handle)

    # -- what only this engine has --

    def entrance(self, handle: str, index: int, *, terminal: bool = False) -> list[str]:
        """Returns the words before a command line with which it runs in a node of a run, beside the ranks' own step.

        Args:
            handle: the run.
            index: the node's number, from 0.
            terminal: whether the command's input and output are a terminal.
        """
        run = SlurmRun.read(handle)
        archive.write(run.folder)
        way = "--pty" if terminal else "--unbuffered"  # without it, output waits for the end of a line
        place = ["--nodes=1", "--ntasks=1", f"--relative={index}", "--overlap", "--quiet", "--mpi=none", "--chdir=/"]
        step = [self._commands.path("srun"), f"--jobid={self._raw(run.job)}", *place, "--export=ALL", way]
        return [*step, *archive.command(str(run.folder), str(index), "--enter", python=self._python)]

    def _raw(self, job: str) -> str:
        """Returns the number by which srun knows a job: that of an element of an array is not array and index."""
        if "_" not in job:
            return job
        told = self._commands.run("squeue", "--noheader", "--array", f"--jobs={job}", "--format=%A").stdout.split()
        return told[0] if told else job

    def node_states(self) -> dict[str, str]:
        """Returns the nodes of the partition that accept no jobs, each with its state and Slurm's reason."""
        return {name: text for name, (usable, text) in (self._partition.nodes() or {}).items() if not usable}

    # -- submission --

    def _answered(self, folder: Path, call: Callable[[], str], command: str) -> str:
        """Returns what a call returns, which asks Slurm; both calls about a folder exclude each other."""
        found = self._commands.soon(folder, call)
        if found is None:
            raise _unanswered(command)
        return found

    def _write(self, task: Task) -> str:
        """Prepares the folder of a task and returns its batch script."""
        text = self.preview(task)
        self._completed(task).write()
        archive.write(Path(task.folder))
        return text

    def _completed(self, task: Task) -> Task:
        said = limited(task, self._partition.minutes())
        grace, notice = self._grace, self._grace
        if grace is None:
            grace, notice = self._site.kill_wait(), self._site.preemption(self._options_of(task))
        signalled = task.container is None and self._site.reaches_ranks()  # a container's processes are not the job's
        return evolve(task, notices=(*task.notices, *said), grace=grace, notice=notice, signalled=signalled)

    def _submit_one(self, task: Task) -> str:
        number = self._submitter.submit(Path(task.folder), partial(self._write, task))
        return self._keep(Path(task.folder), number, task.nodes)

    def _alike(self, task: Task) -> object:
        return alike(task, self._options_of(task), self._layout(""), mpi=self._mpi)

    def _write_all(self, tasks: Sequence[Task], directory: Path) -> str:
        """Prepares the folders of tasks that are alike and returns the batch script of their array."""
        layout = self._layout(shlex.quote(f"{directory}/{archive.name()}"), str(directory))
        text = array_script(tasks, self._options_of(tasks[0]), layout, mpi=self._mpi)
        for task in tasks:
            self._completed(task).write(synced=False)
        return text

    def _keep_element(self, task: Task, job: str) -> str:
        return self._keep(Path(task.folder), job, task.nodes, lasting=False)

    def _keep(self, folder: Path, job: str, nodes: Sequence[str], *, lasting: bool = True) -> str:
        submission: Submission = {"job": job, "nodes": list(nodes)}
        write_json(folder / "slurm.json", submission, lasting=lasting, synced=lasting)  # Slurm knows an array's anyway
        self._watch.forget(job)
        return f"{job} {folder}"


def _unanswered(command: str) -> EngineBusyError:
    return EngineBusyError(f"{command} has not answered yet", engine="slurm", command=command, again=0.5)


def _existing(prologue: str) -> str:
    if prologue and not Path(prologue).is_file():
        raise EngineError(f"the prologue {prologue!r} is not a file", engine="slurm")
    return str(Path(prologue).absolute()) if prologue else ""
