"""Slurm: a task is one batch job, and each of its nodes one node of the job's allocation.

``preview`` is the batch script, and ``submit`` sends exactly it. The script does two things: it moves the records of a
run that Slurm has started again out of the way, and it places one node runner on each node with one ``srun``. All else
is the runner's business.

A handle is the job's number and the task's folder, ``"1234 /shared/tasks/…"``. Whether a job goes on or is over is
Slurm's word, as long as Slurm knows the job; how it ended is what the runners have written into the folder. While the
controller does not answer, a job is what its records say, and never lost.

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

from batchhvd.engines import node, records
from batchhvd.engines.base import ENDED, Status, Task
from batchhvd.errors import EngineError, EngineMissing

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
_AWAY = re.compile(r"unable to contact slurm|connection refused|connect failure|timed out|communication", re.I)
_AGAIN = 5.0  # seconds between two cancellations of the same job
_SETTLE = 5.0  # seconds that the records of a job that is over may take to be seen (network file systems)
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
class Handle:
    """A run: the number of its job, and its folder."""

    job: str
    folder: Path

    @classmethod
    def parse(cls, text: str) -> Handle:
        job, _, folder = text.partition(" ")
        return cls(job, Path(folder))

    def __str__(self) -> str:
        return f"{self.job} {self.folder}"


class Slurm:
    """The engine that runs tasks on a cluster under Slurm.

    It works from any machine on which ``sbatch`` works, if the tasks' folders and this Python lie on a file system that
    the nodes share.

    Args:
        bin: the folder of Slurm's commands, "" to find them by PATH.
        python: the interpreter that runs the node runner on the nodes.
        mpi: what starts the ranks of an MPI task: ``"mpirun"``, or a kind that ``srun --mpi`` has, such as ``"pmix"``.
        pause: an answer of squeue is used again for so many seconds.
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
        self._options = _checked({name.replace("_", "-"): value for name, value in options.items()})
        self._seen: dict[str, tuple[float, Job | None]] = {}
        self._cancelled: dict[str, float] = {}
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
        options = {**self._options, **_checked(task.options)}
        return script(task, options, python=self._python, mpi=self._mpi)

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
        return str(Handle(known["job"], folder))

    def status(self, handles: Sequence[str]) -> Mapping[str, Status]:
        """Returns how each run stands, with one question to Slurm for all of them."""
        parsed = {text: Handle.parse(text) for text in handles}
        jobs = self._jobs([handle.job for handle in parsed.values()])
        away, known = jobs is None, jobs or {}
        return {text: _status(handle, known.get(handle.job), away) for text, handle in parsed.items()}

    def cancel(self, handle: str) -> None:
        """Tells the runners to end, and Slurm to end the job; Slurm uses force after its KillWait.

        While the controller does not answer, the runners' part alone is done: a job that still waits then ends as soon
        as it starts.
        """
        run, now = Handle.parse(handle), time.monotonic()
        if not (run.folder / "slurm.json").exists():
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
        fields = ",".join(f"{name}:|" for name in _FIELDS)
        answer = self._run("squeue", "--noheader", "--states=all", which, f"--Format={fields}")
        if answer.returncode and _AWAY.search(answer.stderr):
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


def _checked(options: Mapping[str, str]) -> dict[str, str]:
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


def script(
    task: Task, options: Mapping[str, str], *, python: str, mpi: str = "mpirun", before: Sequence[str] = ()
) -> str:
    """Returns the batch script of a task. Pure.

    Args:
        task: the task.
        options: options of sbatch, which win over the engine's own choice.
        python: the interpreter that runs the node runner.
        mpi: what starts the ranks of an MPI task.
        before: lines of shell that run first, with ``$folder`` set.

    Raises:
        EngineError: the folder's path cannot stand in a batch script.
    """
    if set(task.folder) & set("\n\r\0"):
        raise EngineError(f"Slurm cannot have a line break in a path: {task.folder!r}", engine="slurm")
    directives = [
        f"#SBATCH --{name}={value}" if value else f"#SBATCH --{name}" for name, value in _directives(task, options)
    ]
    places = [f"folder={shlex.quote(task.folder)}", *before, *_launcher(task, mpi)]
    runner = f'    {shlex.quote(python)} -I -S "$folder/node.py" "$folder"'
    return "\n".join(["#!/bin/bash", *directives, "", *places, "", _AGAIN_SCRIPT, f"exec {_srun(task)} \\", runner, ""])


def _directives(task: Task, options: Mapping[str, str]) -> list[tuple[str, str]]:
    own = {"job-name": task.name, "nodes": str(len(task.nodes)), "ntasks-per-node": "1"}
    if not _SHARES & set(options):
        own |= {"exclusive": "", "mem": "0"}  # a node of Batch AI is a machine of one's own
    if task.wall_seconds is not None:
        own["time"] = str(math.ceil(task.wall_seconds / 60) + 1)  # minutes; the runner keeps the limit to the second
    output = _quoted(task.folder.replace("%", "%%") + "/slurm.out")
    last = {"chdir": _quoted(task.folder), "output": output, "open-mode": "append", "requeue": "", "export": "ALL"}
    return list({**own, **options, **last}.items())


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
# A run that Slurm starts again puts the records of the one before aside; a cancellation stays.
if [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ]; then
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


def _status(handle: Handle, job: Job | None, away: bool) -> Status:
    """Returns how a run stands, from Slurm's word and the runners' records."""
    names: list[str] = (records.read(handle.folder / "slurm.json") or {}).get("nodes", [])
    if not names:
        return Status(
            state="lost", reason="engine", error=f"there is no run of Slurm's job {handle.job} in {handle.folder}"
        )
    found = records.nodes(handle.folder, len(names))
    restarts = job.restarts if job else None
    attempt = 1 + (len(list(handle.folder.glob("attempt-*"))) if restarts is None else restarts)
    told = records.status(records.stop(handle.folder), found, attempt=attempt)
    if job is None:
        return _unknown(handle, told, away)
    if job.state in _OVER:
        return _over(handle, job, told, [record is None or record["state"] != "ended" for record in found])
    if job.state in _WAITING:
        return Status(state="queued", reason=_reason(job.reason), attempt=attempt)
    return _going_on(told)


def _going_on(told: Status) -> Status:
    """Returns the status of a run that is not over, whatever its records say."""
    state = told.state if told.state == "preparing" else "running" if told.started else "preparing"
    return Status(state=state, started=told.started, attempt=told.attempt)


def _reason(word: str) -> str:
    text = _REASONS.get(word.partition(",")[0], "")
    return f"it waits in Slurm's queue ({word}{': ' + text if text else ''})"


def _unknown(handle: Handle, told: Status, away: bool) -> Status:
    """Judges a run of which Slurm says nothing, by its records alone."""
    if told.state in ENDED and not (away and told.reason == "node"):  # such a run may be about to start again
        return told
    if away:
        return evolve(told if told.state == "queued" else _going_on(told), reason="Slurm's controller does not answer")
    error = f"Slurm does not know its job {handle.job} any more, and not all nodes have said how they ended"
    return evolve(_going_on(told), state="lost", reason="node", error=error)


def _over(handle: Handle, job: Job, told: Status, missing: Sequence[bool]) -> Status:
    """Judges a run that is over for Slurm: by its records, where they say more than that the nodes were told to end."""
    if not any(missing) and told.reason != "node":
        return told
    if any(missing) and job.state in ("COMPLETED", "FAILED") and time.time() - (job.ended or 0) < _SETTLE:
        return _going_on(told)
    end = evolve(_going_on(told), ended=told.ended or job.ended, exit_code=job.exit_code, node=told.node)
    if job.state == "COMPLETED":
        return evolve(end, state="succeeded", exit_code=0, node="")
    if job.state == "FAILED":
        return _failed(handle, end, missing) if any(missing) else told
    state, reason, error = _ENDS[job.state]
    return evolve(end, state=state, reason=reason, error=error, exit_code=job.exit_code or None)


def _failed(handle: Handle, end: Status, missing: Sequence[bool]) -> Status:
    """Judges a job whose batch script failed before all nodes could say how they ended."""
    if end.started is None:
        told = "Slurm could not start the nodes' runners"
        return evolve(end, state="failed", reason="engine", error=told, tail=_tail(handle.folder / "slurm.out"))
    for index in (index for index, gone in enumerate(missing) if gone):
        node.complete(handle.folder, index, end.exit_code or 1)
    found = records.nodes(handle.folder, len(missing))
    return records.status(records.stop(handle.folder), found, attempt=end.attempt)


def _tail(path: Path) -> tuple[str, ...]:
    try:
        return tuple(path.read_text(encoding="utf-8", errors="replace").splitlines()[-20:])
    except FileNotFoundError:
        return ()
