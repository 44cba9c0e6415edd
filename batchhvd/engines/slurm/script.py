"""Writes the batch script of a task."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

from attrs import frozen

from batchhvd.engines.base import Launch, Task
from batchhvd.engines.slurm.run import CLAIM
from batchhvd.errors import EngineError

# Options of sbatch that a task or the whole engine may set; the engine sets the others itself.
_OPTION = re.compile(
    "account|begin|comment|constraint|cpus-per-task|dependency|exclude|exclusive|gpus|gpus-per-node|gpus-per-task|gres|"
    "licenses|mail-type|mail-user|mem|mem-per-cpu|nice|nodelist|partition|priority|qos|requeue-on-timeout|reservation|"
    "signal|switches|time|"
    "tmp|wckey"
)
_REQUEUING = "requeue-on-timeout"
_LEAD = 60  # seconds before the limit, if the option does not say how many
_UNNAMED = 7 * 24 * 3600.0  # seconds that Batch AI gives a job that names no limit
_VALUE = re.compile(r"[\w.,:;/=+@%&|!*()\[\]{}#^~-]*", re.ASCII)
_SHARES = frozenset(
    {"exclusive", "cpus-per-task", "mem", "mem-per-cpu"}
)  # with one of these the user decides how nodes are shared


def checked(options: Mapping[str, str]) -> dict[str, str]:
    """Returns options of sbatch after checking that each may be set.

    Raises:
        EngineError: one may not be set, or its value would not be read as one word.
    """
    for name, value in options.items():
        if not _OPTION.fullmatch(name):
            can = _OPTION.pattern.replace("|", ", ")
            raise EngineError(f"the slurm engine has no option {name!r}; it has: {can}", engine="slurm")
        if not _VALUE.fullmatch(value):
            raise EngineError(
                f"the value of Slurm's option {name} must not contain blanks or quotes: {value!r}", engine="slurm"
            )
    return dict(options)


@frozen(kw_only=True)
class ScriptLayout:
    """Where the parts of a batch script are found.

    Attributes:
        python: the interpreter that runs the node runner.
        runner: the node runner, as a word of the shell in which ``$folder`` is the task's folder.
        directory: the job's working directory, "" for the task's folder.
        output: the file for what is not the ranks' own output, "" for one in the task's folder.
        before: lines of shell that run first, with ``$folder`` set.
        most: the partition's time limit in minutes, or None.
    """

    python: str
    runner: str
    directory: str = ""
    output: str = ""
    before: tuple[str, ...] = ()
    most: int | None = None


def script(task: Task, options: Mapping[str, str], layout: ScriptLayout, *, mpi: str = "mpirun") -> str:
    """Returns the batch script of a task.

    Args:
        task: the task.
        options: options of sbatch, which win over the engine's own choice, but not over the job's own time limit.
        layout: where its parts are found.
        mpi: what starts the ranks of an MPI task.

    Raises:
        EngineError: a path cannot be written into a batch script.
    """
    if set(task.folder + layout.directory) & set("\n\r\0"):
        raise EngineError(f"a path for Slurm must not contain a line break: {task.folder!r}", engine="slurm")
    return _whole(
        task, options, _directives(task, options, layout), [f"folder={shlex.quote(task.folder)}"], layout, mpi
    )


def alike(task: Task, options: Mapping[str, str], layout: ScriptLayout, *, mpi: str) -> object:
    """Returns a value that is equal for tasks which can be elements of one job array."""
    own = {"job-name", "chdir", "output"}
    return tuple(pair for pair in _directives(task, options, layout) if pair[0] not in own), *_launcher(task, mpi)


def array_script(tasks: Sequence[Task], options: Mapping[str, str], layout: ScriptLayout, *, mpi: str) -> str:
    """Returns the batch script of a job array with one element for each task.

    Args:
        tasks: tasks that are alike.
        options: as for ``script``.
        layout: where its parts are found; its directory is the array's own.
        mpi: what starts the ranks of an MPI task.
    """
    first, names = tasks[0], os.path.commonprefix([task.name for task in tasks]).rstrip("_-.0123456789")
    directives = dict(_directives(first, options, layout))
    own = {"job-name": names or first.name, "output": "/dev/null", "array": f"0-{len(tasks) - 1}"}
    folders = ["folders=(", *(f"    {shlex.quote(task.folder)}" for task in tasks), ")"]
    places = [*folders, 'folder="${folders[$SLURM_ARRAY_TASK_ID]}"', 'exec >> "$folder/slurm.out" 2>&1']
    words = list({**directives, **own}.items())
    return _whole(first, options, words, [*places, 'cd "$folder" || exit'], layout, mpi)


def _whole(
    task: Task,
    options: Mapping[str, str],
    words: Iterable[tuple[str, str]],
    places: Iterable[str],
    layout: ScriptLayout,
    mpi: str,
) -> str:
    directives = [f"#SBATCH --{name}{'=' * bool(value)}{value}" for name, value in words]
    places = [*places, *layout.before, *_launcher(task, mpi)]
    runner = [f"{_srun(task)} \\", f'    {shlex.quote(layout.python)} -I -S {layout.runner} "$folder"']
    start = [f"exec {runner[0]}", runner[1]]
    if requeuing := _requeuing(options):
        start = [_REQUEUE.format(times=requeuing[0]), runner[0], f"{runner[1]} &", _WAIT]
    return "\n".join(["#!/bin/bash", *directives, "", *places, "", _AGAIN_SCRIPT, *start, ""])


def minutes(task: Task, options: Mapping[str, str], most: int | None) -> dict[str, str]:
    """Returns the option ``time`` of a task; the runner keeps the limit to the second, so Slurm's is a minute longer.

    A limit that the job itself names wins over the option; the limit of Batch AI for jobs that name none does not.

    Args:
        task: the task.
        options: the options that were set.
        most: the partition's own limit in minutes, or None.
    """
    if task.wall_seconds is None or ("time" in options and task.wall_seconds == _UNNAMED):
        return {}
    asked = math.ceil(task.wall_seconds / 60) + (_REQUEUING not in options)  # or it would never be requeued
    return {"time": str(asked if most is None else min(asked, most))}


def limited(task: Task, most: int | None) -> list[str]:
    """Says that a partition gives less time than the task may take, if it does."""
    if task.wall_seconds is None or most is None or task.wall_seconds <= most * 60:
        return []
    return [
        f"Slurm's partition ends jobs after {most} minutes; the job's own limit is {task.wall_seconds / 60:g} minutes"
    ]


def _directives(task: Task, options: Mapping[str, str], layout: ScriptLayout) -> list[tuple[str, str]]:
    time = minutes(task, options, layout.most)
    own = {"job-name": task.name, "nodes": str(len(task.nodes)), "ntasks-per-node": "1"}
    if not _SHARES & set(options):
        own |= {"exclusive": "", "mem": "0"}  # a node of Batch AI is a whole machine
    output = (layout.output or f"{task.folder}/slurm.out").replace("%", "%%")
    requeuing = _requeuing(options)
    options = {name: value for name, value in options.items() if name != _REQUEUING}
    if requeuing:
        own["signal"] = f"B:USR1@{requeuing[1]}"
    last = {"chdir": _quoted(layout.directory or task.folder), "output": _quoted(output), "open-mode": "append"}
    return list({**own, **options, **time, **last, "requeue": "", "export": "ALL"}.items())


def _requeuing(options: Mapping[str, str]) -> tuple[int, int] | None:
    """Returns how often a job goes back into the queue at its time limit, and how many seconds before; None if never.

    Raises:
        EngineError: the option cannot be read, or another one is in its way.
    """
    if _REQUEUING not in options:
        return None
    found = re.fullmatch("([0-9]{1,4})(?:@([0-9]{1,5}))?", options[_REQUEUING])
    if not found or "signal" in options:
        how = "excludes the option signal" if found else "is how often, or how often@seconds before: 3, or 3@120"
        raise EngineError(f"the slurm engine's option {_REQUEUING} {how}", engine="slurm")
    return int(found[1]), int(found[2] or _LEAD)


def _quoted(text: str) -> str:
    """Quotes a word for the directives of a batch script, which know quotes and backslashes but no variables."""
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def _srun(task: Task) -> str:
    """Returns the command that places one runner on each node; others may use the nodes beside them (MPI's daemons)."""
    count = len(task.nodes)
    place = f"--nodes={count} --ntasks={count} --ntasks-per-node=1"
    return f"srun {place} --export=ALL --mpi=none --overlap --kill-on-bad-exit=1"


def _launcher(task: Task, mpi: str) -> list[str]:
    if task.launch != Launch.MPI or mpi == "mpirun":
        return []
    place = f"--nodes={len(task.nodes)} --ntasks={task.size} --distribution=cyclic"
    command = f"env -u SLURM_NTASKS_PER_NODE srun --mpi={mpi} {place} --export=ALL --overlap --kill-on-bad-exit=1"
    return [f"export BATCHHVD_LAUNCHER={shlex.quote(command)}"]


_REQUEUE = """\
# Before its time is over, the job goes back into the queue: its ranks get SIGTERM, save, and go on in the next attempt.
again() {{ [ "${{SLURM_RESTART_COUNT:-0}}" -lt {times} ] && scontrol requeue "${{job:-$SLURM_JOB_ID}}"; }}
trap again USR1"""
_WAIT = """\
runner=$!
while wait "$runner"; code=$?; [ "$code" -gt 128 ] && kill -0 "$runner" 2>/dev/null; do :; done
exit "$code\""""


CLAIMING = f"""\
# Slurm may hold two jobs of one task if the answer to the first submission was lost; the first one that begins runs.
job="${{SLURM_ARRAY_JOB_ID:+${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID}}"
job="${{job:-$SLURM_JOB_ID}}"
ln -s "$job" "$folder/{CLAIM}" 2>/dev/null
[ "$(readlink "$folder/{CLAIM}")" = "$job" ] || exit 0"""


_AGAIN_SCRIPT = """\
# If Slurm starts this again: a run that had ended by itself is not repeated; otherwise its records are put aside.
if [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ]; then
    if ! grep -qs '"reason": "node"' "$folder/stop.json"; then
        [ "$(grep -ls '"state": "ended"' "$folder"/node-*.json | wc -l)" = "$SLURM_JOB_NUM_NODES" ] && exit
    fi
    before="$folder/attempt-$SLURM_RESTART_COUNT"
    mkdir -p "$before"
    mv -f "$folder"/node-*.json "$folder/rendezvous.json" "$before" 2>/dev/null
    grep -qs '"reason": "cancelled"' "$folder/stop.json" || mv -f "$folder/stop.json" "$before" 2>/dev/null
fi
"""
