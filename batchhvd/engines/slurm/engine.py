"""Slurm: a task is one batch job, and each of its nodes one node of the job's allocation.

``preview`` is the batch script, and ``submit`` sends exactly it. The script does two things: it moves the records of a
run that Slurm has started again out of the way, and it places one node runner on each node with one ``srun``. All else
is the runner's business.

A handle is the job's number and the task's folder, ``"1234 /shared/tasks/…"``. Whether a job goes on or is over is
Slurm's word, until the records of all nodes say that they have ended by themselves; how it ended is what those records
say. While the controller does not answer, a job is what its records say, and never lost.

Source: the manual pages of sbatch, srun, squeue, sacct, scancel and sinfo of Slurm 22.05.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from batchhvd.engines import records
from batchhvd.engines.base import Status, Task
from batchhvd.errors import EngineError, EngineMissing
from batchhvd.node import node

# Options of sbatch that a task or the whole engine may set; the others are this engine's own.
_OPTION = re.compile(
    "account|begin|comment|constraint|cpus-per-task|dependency|exclude|exclusive|gpus-per-node|gres|licenses|mail-type|"
    "mail-user|mem|mem-per-cpu|nice|nodelist|partition|priority|qos|reservation|switches|time|tmp"
)
_VALUE = re.compile(r"[\w.,:;/=+@%&|!*()\[\]{}#^~-]*", re.ASCII)
_SHARES = frozenset({"exclusive", "cpus-per-task", "mem", "mem-per-cpu"})  # the caller shares nodes in his own way

_WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
_ENDS = {  # how a job that ended otherwise than by its own exit is reported: state, reason, error
    "CANCELLED": ("cancelled", "cancelled", "the job was cancelled in Slurm"),
    "TIMEOUT": ("failed", "time", "the job reached its time limit in Slurm"),
    "DEADLINE": ("failed", "time", "the job reached its deadline in Slurm"),
    "NODE_FAIL": ("failed", "node", "Slurm lost a node of the job"),
    "BOOT_FAIL": ("failed", "node", "a node of the job did not boot"),
    "PREEMPTED": ("failed", "node", "Slurm gave the job's nodes to another job"),
    "REVOKED": ("failed", "node", "Slurm moved the job to another cluster"),
    "OUT_OF_MEMORY": ("failed", "memory", "the job used more memory than Slurm had given it"),
}
_OVER = frozenset({"COMPLETED", "FAILED", *_ENDS})
_REASONS = {
    "BeginTime": "it starts again after Slurm's own pause",
    "Dependency": "another job has to end first",
    "JobHeldAdmin": "an administrator holds it",
    "JobHeldUser": "it is held: scontrol release",
    "None": "it has just been submitted",
    "PartitionConfig": "the partition does not have such nodes",
    "PartitionNodeLimit": "the partition does not give so many nodes to one job",
    "PartitionTimeLimit": "its time limit is longer than the partition's: set the option time",
    "Priority": "jobs of higher priority come first",
    "ReqNodeNotAvail": "nodes that it needs are down, drained or reserved",
    "Resources": "not enough nodes are free",
}
_UNUSABLE = re.compile("down|drain.*|drng|fail.*|error|inval|maint|unk.*|.*[*]")
_FIELDS = ("JobID", "State", "Reason", "RestartCnt", "exit_code", "EndTime", "WorkDir")
_UNKNOWN = "Invalid job id"  # what squeue says when it knows none of the jobs; any other failure is no answer
_AGAIN = 5.0  # seconds between two cancellations of the same job
_SETTLE = 3.0  # seconds that the records of a job that is over may take to be seen (network file systems)
_PACKAGE = "slurm-client"


@frozen
class Job:
    """What Slurm says of a job.

    Attributes:
        state: Slurm's word, such as ``"RUNNING"``.
        reason: why it waits or failed, in Slurm's word.
        restarts: how often Slurm has started it again.
        exit_code: the batch script's, as a shell gives it.
        ended: seconds since 1970, or None.
        folder: its working directory, "" where not known.
    """

    state: str
    reason: str = ""
    restarts: int | None = None
    exit_code: int | None = None
    ended: float | None = None
    folder: str = ""


@frozen
class Run:
    """A run as its records show it.

    Attributes:
        job: the number of its job.
        folder: its folder.
        told: how it stands by the records of its nodes.
        missing: the indices of the nodes whose record does not say that they have ended.
    """

    job: str
    folder: Path
    told: Status
    missing: tuple[int, ...] = ()

    @classmethod
    def read(cls, handle: str) -> Run:
        """Returns the run of a handle, a lost one where its folder knows nothing of it."""
        job, _, place = handle.partition(" ")
        folder = Path(place)
        names = (records.read(folder / "slurm.json") or {}).get("nodes", ())
        if not names:
            error = f"there is no run of Slurm's job {job} in {folder}"
            return cls(job, folder, Status(state="lost", reason="engine", error=error))
        found = records.nodes(folder, len(names))
        told = records.status(records.stop(folder), found, attempt=1 + len(list(folder.glob("attempt-*"))))
        missing = [index for index, one in enumerate(found) if one is None or one["state"] != "ended"]
        return cls(job, folder, told, tuple(missing))

    @property
    def final(self) -> bool:
        """Whether the records say how it ended; nodes that were told to end may be about to start again."""
        return not self.missing and self.told.reason != "node"

    @property
    def moving(self) -> Status:
        """How it stands, if it is not over."""
        told = self.told
        state = "preparing" if told.state == "preparing" or told.started is None else "running"
        return Status(state=state, started=told.started, attempt=told.attempt)


class Slurm:
    """The engine that runs tasks on a cluster under Slurm.

    It works from any machine on which ``sbatch`` works, if the tasks' folders and this Python lie on a file system that
    the nodes share.

    Args:
        bin: the folder of Slurm's commands, "" to find them by PATH.
        python: the interpreter that runs the node runner on the nodes.
        mpi: what starts the ranks of an MPI task: ``"mpirun"``, or a kind that ``srun --mpi`` has, such as ``"pmix"``.
        pause: an answer of squeue is used again for so many seconds, one of sinfo ten times as long; as long is a
            controller that does not answer left alone.
        options: options of sbatch for every task, such as ``partition="gpu"``; ``_`` stands for ``-``.

    Raises:
        EngineError: an option is not one that can be set.
        EngineMissing: sbatch or squeue is not installed.
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
        self._seen: dict[str, tuple[float, Job | None]] = {}
        self._cancelled: dict[str, float] = {}
        self._silent = -math.inf  # when the controller last gave no answer
        self._nodes: tuple[float, dict[str, tuple[bool, str]] | None] = (-math.inf, None)
        for name in ("sbatch", "squeue"):
            self._find(name)

    # -- the four verbs --

    def nodes(self) -> int:
        """Returns how many nodes the partition has, whatever state they are in.

        Raises:
            EngineError: the controller does not answer and has not answered before.
        """
        found = self._sinfo()
        if found is None:
            raise EngineError("Slurm's controller does not answer; is it running?", engine="slurm", command="sinfo")
        return len(found)

    def preview(self, task: Task) -> str:
        """Returns the batch script of a task.

        Raises:
            EngineError: the task has an option that cannot be set.
        """
        options = {**self._options, **checked(task.options)}
        return script(task, options, Layout(python=self._python), mpi=self._mpi)

    def submit(self, task: Task) -> str:
        """Hands a task to sbatch and returns its handle.

        Raises:
            EngineError: an option cannot be set, or sbatch refused the job; the message is Slurm's.
        """
        text, folder = self.preview(task), Path(task.folder)
        known = records.read(folder / "slurm.json") or self._earlier(folder)
        if known is None:
            task.write()
            shutil.copyfile(node.__file__, folder / "node.py")
            (folder / "job.sbatch").write_text(text, encoding="utf-8")
            known = {"job": self._sbatch(text), "nodes": list(task.nodes)}
        node.write_json(folder / "slurm.json", {**known, "nodes": list(task.nodes)})
        self._seen.pop(known["job"], None)
        return f"{known['job']} {folder}"

    def status(self, handles: Sequence[str]) -> Mapping[str, Status]:
        """Returns how each run stands, with one question to Slurm for all whose records do not say how they ended."""
        runs = {handle: Run.read(handle) for handle in handles}
        asked = [run.job for run in runs.values() if not run.final]
        jobs = self._jobs(asked) if asked else {}
        return {handle: run.told if run.final else _status(run, jobs) for handle, run in runs.items()}

    def cancel(self, handle: str) -> None:
        """Tells the runners to end, and Slurm to end the job; Slurm uses force after its KillWait.

        While the controller does not answer, the runners' part alone is done: a job that still waits then ends as soon
        as it starts.
        """
        run, now = Run.read(handle), time.monotonic()
        if run.final:
            return
        records.declare(run.folder, "cancelled", error="the job was terminated")
        if now - self._cancelled.get(handle, -_AGAIN) >= _AGAIN:
            self._cancelled[handle] = now
            self._seen.pop(run.job, None)
            self._run("scancel", run.job)

    # -- what only this engine has --

    def node_states(self) -> dict[str, str]:
        """Returns the nodes of the partition that take no jobs, each with its state and Slurm's reason."""
        return {name: text for name, (usable, text) in (self._sinfo() or {}).items() if not usable}

    # -- Slurm's commands --

    def _find(self, name: str) -> str:
        path = shutil.which(name, path=self._bin or None)
        if path is None:
            where = f"in {self._bin}" if self._bin else "in PATH"
            message = f"there is no {name} {where}; on Debian and Ubuntu: apt-get install {_PACKAGE}"
            raise EngineMissing(message, engine="slurm", command=name)
        return path

    def _run(self, name: str, *arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Runs a command of Slurm; one that does not end within 30 s counts as one that got no answer."""
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
            message = f"sbatch did not take the job: {told}"
            raise EngineError(message, engine="slurm", command="sbatch", exit_code=code, output=told)
        return answer.stdout.strip().partition(";")[0]

    def _earlier(self, folder: Path) -> dict[str, Any] | None:
        """Returns the job of a submission that was cut off before its number was kept: it has the folder as its own."""
        if not (folder / "job.sbatch").exists():
            return None
        found = self._squeue("--me") or {}
        return next(({"job": number} for number, job in found.items() if job.folder == str(folder)), None)

    def _jobs(self, numbers: Sequence[str]) -> dict[str, Job] | None:
        """Returns what Slurm knows of jobs, None while its controller does not answer."""
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

    def _squeue(self, which: str) -> dict[str, Job] | None:
        if time.monotonic() - self._silent < 10 * self._pause:
            return None
        fields = ",".join(f"{name}:|" for name in _FIELDS)
        answer = self._run("squeue", "--noheader", "--states=all", which, f"--Format={fields}")
        if answer.returncode and _UNKNOWN not in answer.stderr:
            self._silent = time.monotonic()
            return None
        return dict(_job_of(line) for line in answer.stdout.splitlines())  # no line for a job that is not known

    def _sacct(self, numbers: Sequence[str]) -> dict[str, Job]:
        """Asks the accounting for jobs that the controller has forgotten; most small sites have none."""
        if shutil.which("sacct", path=self._bin or None) is None:
            return {}
        columns = "--format=JobIDRaw,State,ExitCode,End"
        answer = self._run("sacct", "-n", "-P", "-X", "--starttime=1970-01-01", f"--jobs={','.join(numbers)}", columns)
        return dict(map(_accounted, answer.stdout.splitlines())) if not answer.returncode else {}

    def _sinfo(self) -> dict[str, tuple[bool, str]] | None:
        """Returns each node of the partition: whether it takes jobs, and its state with Slurm's reason.

        While the controller does not answer, the last answer stands; None where there was none.
        """
        now, (asked, found) = time.monotonic(), self._nodes
        if now - asked > 10 * self._pause:
            partition = self._options.get("partition", "")
            chosen = [f"--partition={partition}"] if partition else []
            answer = self._run("sinfo", "--noheader", "--Node", *chosen, "--format=%P|%N|%T|%E")
            found = found if answer.returncode else _nodes_of(answer.stdout.splitlines(), bool(partition))
            self._nodes = (time.monotonic(), found)
        return found


# ---- the batch script ------------------------------------------------------------------------------------------------


def checked(options: Mapping[str, str]) -> dict[str, str]:
    """Returns options of sbatch, all of which may be set.

    Raises:
        EngineError: one may not be, or its value would not be read as one word.
    """
    for name, value in options.items():
        if not _OPTION.fullmatch(name):
            can = _OPTION.pattern.replace("|", ", ")
            raise EngineError(f"the slurm engine has no option {name!r}; there are: {can}", engine="slurm")
        if not _VALUE.fullmatch(value):
            raise EngineError(f"the value of Slurm's option {name} has blanks or quotes: {value!r}", engine="slurm")
    return dict(options)


@frozen(kw_only=True)
class Layout:
    """Where the parts of a batch script are.

    Attributes:
        python: the interpreter that runs the node runner.
        runner: the node runner's file, as a word of the shell in which ``$folder`` is the task's folder.
        directory: the job's working directory, "" for the task's folder.
        output: where Slurm writes what is not the ranks' own output, "" for a file in the task's folder.
        before: lines of shell that run first, with ``$folder`` set.
    """

    python: str
    runner: str = '"$folder/node.py"'
    directory: str = ""
    output: str = ""
    before: tuple[str, ...] = ()


def script(task: Task, options: Mapping[str, str], layout: Layout, *, mpi: str = "mpirun") -> str:
    """Returns the batch script of a task. Pure.

    Args:
        task: the task.
        options: options of sbatch, which win over the engine's own choice.
        layout: where its parts are.
        mpi: what starts the ranks of an MPI task.

    Raises:
        EngineError: a path cannot stand in a batch script.
    """
    if set(task.folder + layout.directory) & set("\n\r\0"):
        raise EngineError(f"Slurm cannot have a line break in a path: {task.folder!r}", engine="slurm")
    directives = [f"#SBATCH --{name}{'=' * bool(value)}{value}" for name, value in _directives(task, options, layout)]
    places = [f"folder={shlex.quote(task.folder)}", *layout.before, *_launcher(task, mpi)]
    start = [f"exec {_srun(task)} \\", f'    {shlex.quote(layout.python)} -I -S {layout.runner} "$folder"']
    return "\n".join(["#!/bin/bash", *directives, "", *places, "", _AGAIN_SCRIPT, *start, ""])


def _directives(task: Task, options: Mapping[str, str], layout: Layout) -> list[tuple[str, str]]:
    own = {"job-name": task.name, "nodes": str(len(task.nodes)), "ntasks-per-node": "1"}
    if not _SHARES & set(options):
        own |= {"exclusive": "", "mem": "0"}  # a node of Batch AI is a machine of one's own
    if task.wall_seconds is not None:
        own["time"] = str(math.ceil(task.wall_seconds / 60) + 1)  # minutes; the runner keeps the limit to the second
    output = (layout.output or f"{task.folder}/slurm.out").replace("%", "%%")
    last = {"chdir": _quoted(layout.directory or task.folder), "output": _quoted(output), "open-mode": "append"}
    return list({**own, **options, **last, "requeue": "", "export": "ALL"}.items())


def _quoted(text: str) -> str:
    """Quotes a word for the directives of a batch script, which know quotes and backslashes but no variables."""
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def _srun(task: Task) -> str:
    """Returns the command that places one runner on each node; others may use the nodes beside them (MPI's daemons)."""
    count = len(task.nodes)
    place = f"--nodes={count} --ntasks={count} --ntasks-per-node=1"
    return f"srun {place} --export=ALL --mpi=none --overlap --kill-on-bad-exit=1"


def _launcher(task: Task, mpi: str) -> list[str]:
    if task.launch != "mpi" or mpi == "mpirun":
        return []
    place = f"--nodes={len(task.nodes)} --ntasks={task.size} --distribution=cyclic"
    command = f"env -u SLURM_NTASKS_PER_NODE srun --mpi={mpi} {place} --export=ALL --overlap --kill-on-bad-exit=1"
    return [f"export BATCHHVD_LAUNCHER={shlex.quote(command)}"]


_AGAIN_SCRIPT = """\
# Where Slurm starts this again: what had ended by itself stays so, else the records of the run before are put aside.
if [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ]; then
    if ! grep -qs '"reason": "node"' "$folder/stop.json"; then
        [ "$(grep -ls '"state": "ended"' "$folder"/node-*.json | wc -l)" = "$SLURM_JOB_NUM_NODES" ] && exit
    fi
    before="$folder/attempt-$SLURM_RESTART_COUNT"
    mkdir -p "$before"
    grep -qs '"reason": "cancelled"' "$folder/stop.json" || mv -f "$folder/stop.json" "$before" 2>/dev/null
    mv -f "$folder"/node-*.json "$folder/rendezvous.json" "$before" 2>/dev/null
fi
"""


# ---- reading Slurm's answers -----------------------------------------------------------------------------------------


def _job_of(line: str) -> tuple[str, Job]:
    """Reads a line of squeue: fields as in ``_FIELDS``, each followed by a bar."""
    number, state, reason, restarts, code, ended, folder = line.removesuffix("|").split("|", len(_FIELDS) - 1)
    job = Job(state, reason, int(restarts or 0), _shell_code(int(code or 0)), _seconds(ended), folder)
    return number, job


def _accounted(line: str) -> tuple[str, Job]:
    """Reads a line of sacct; a state may be followed by who brought it about, an exit code by its signal."""
    number, state, code, ended = line.split("|")
    exit_code, _, number_of_signal = code.partition(":")
    signalled = int(number_of_signal or 0)
    return number, Job(
        state.partition(" ")[0], "", None, 128 + signalled if signalled else int(exit_code), _seconds(ended)
    )


def _shell_code(wait_status: int) -> int:
    code = os.waitstatus_to_exitcode(wait_status)
    return code if code >= 0 else 128 - code


def _seconds(stamp: str) -> float | None:
    try:
        return datetime.fromisoformat(stamp).timestamp()  # Slurm writes local time
    except ValueError:
        return None


def _nodes_of(lines: Sequence[str], chosen: bool) -> dict[str, tuple[bool, str]]:
    """Reads the lines of sinfo; the partition that jobs go to by default has a star, where none was chosen."""
    rows = [line.split("|", 3) for line in lines]
    default = not chosen and any(row[0].endswith("*") for row in rows)
    return {name: _node_of(state, why) for where, name, state, why in rows if where.endswith("*") or not default}


def _node_of(state: str, why: str) -> tuple[bool, str]:
    """Says whether a node in this state takes jobs, and what to tell of it; a star means that it does not answer."""
    text = state.rstrip("*~#!%$@^-+")
    return not _UNUSABLE.fullmatch(state.rstrip("~#!%$@^-+")), f"{text}: {why}" if why not in ("", "none") else text


# ---- judging ---------------------------------------------------------------------------------------------------------


def _status(run: Run, jobs: Mapping[str, Job] | None) -> Status:
    """Returns how a run stands whose records do not say that it has ended.

    Args:
        run: the run.
        jobs: what Slurm says of the jobs that it knows, None while its controller does not answer.
    """
    if jobs is None:
        waits = run.told.state == "queued"
        return evolve(run.told if waits else run.moving, reason="Slurm's controller does not answer")
    job = jobs.get(run.job)
    if job is None:
        return _forgotten(run)
    if job.restarts is not None:
        run = evolve(run, told=evolve(run.told, attempt=1 + job.restarts))
    if job.state in _WAITING:
        return Status(state="queued", reason=_reason(job.reason), attempt=run.told.attempt)
    return _over(run, job) if job.state in _OVER else run.moving


def _reason(word: str) -> str:
    text = _REASONS.get(word.partition(",")[0], "")
    return f"it waits in Slurm's queue ({word}{': ' + text if text else ''})"


def _forgotten(run: Run) -> Status:
    if not run.missing:
        return run.told
    error = f"Slurm does not know its job {run.job} any more, and not all nodes have said how they ended"
    return evolve(run.moving, state="lost", reason="node", error=error)


def _over(run: Run, job: Job) -> Status:
    """Judges a run that is over for Slurm, though its records say no more than that its nodes were told to end."""
    if run.missing and job.state in ("COMPLETED", "FAILED") and time.time() - (job.ended or 0) < _SETTLE:
        return run.moving
    end = evolve(run.moving, ended=run.told.ended or job.ended, exit_code=job.exit_code)
    if job.state in ("COMPLETED", "FAILED"):
        return _unsaid(run, end) if run.missing else run.told
    state, reason, error = _ENDS[job.state]
    return evolve(end, state=state, reason=reason, error=error, node=run.told.node, exit_code=job.exit_code or None)


def _unsaid(run: Run, end: Status) -> Status:
    """Judges a job whose batch script has ended, well or not, though not all nodes have said how they ended."""
    if end.started is None:
        error, tail = "no node's runner has left a record", _tail(run.folder / "slurm.out")
        return evolve(end, state="failed", reason="engine", error=error, tail=tail)
    for index in run.missing:
        node.complete(run.folder, index, end.exit_code or 1)
    told = Run.read(f"{run.job} {run.folder}").told
    lost = records.read(run.folder / f"node-{run.missing[0]}.json")
    return evolve(told, node=lost["node"], error=lost["error"]) if told.reason == "node" else told


def _tail(path: Path) -> tuple[str, ...]:
    try:
        return tuple(path.read_text(encoding="utf-8", errors="replace").splitlines()[-20:])
    except FileNotFoundError:
        return ()
