"""Tasks as scripts to keep, for Slurm and for Horovod's own launcher. Each script lists what it cannot express."""

from __future__ import annotations

import json
import posixpath
import re
import shlex
import sys
from collections.abc import Iterator, Sequence

from attrs import asdict, evolve

from batchhvd.engines.base import Launch, Task
from batchhvd.engines.slurm.script import ScriptLayout, script
from batchhvd.errors import EngineError
from batchhvd.node import archive

_END = "END_OF_TASK"


def export(format: str, task: Task, notes: Sequence[str] = ()) -> str:
    """Returns a task as a script; see ``base.export``."""
    if format not in _FORMATS:
        raise EngineError(f"the format must be one of {', '.join(_FORMATS)}, not {format!r}", engine=format)
    return _FORMATS[format](task, notes)


def slurm(task: Task, notes: Sequence[str] = ()) -> str:
    """Returns the batch script that the Slurm engine would send, with the task's own file inside.

    It needs the node runner, to whose folder it has the path, and the task's folder on a file system that all nodes
    share.
    """
    open_secrets = [f"the value of the secret variable {name}: it is empty in the task below" for name in task.secrets]
    document = json.dumps(asdict(evolve(task, secrets=dict.fromkeys(task.secrets, ""))), indent=1, ensure_ascii=False)
    before = [
        *_listed(f"The job {task.name}, as the Slurm engine of batchhvd runs it.", [*notes, *open_secrets]),
        'mkdir -p "$folder"',
        'if [ "${SLURM_RESTART_COUNT:-0}" = 0 ]; then rm -f "$folder"/node-*.json "$folder"/{stop,rendezvous}.json; fi',
        f"(umask 077; cat > \"$folder/task.json\") <<'{_END}'",
        document,
        _END,
    ]
    home = posixpath.dirname(task.folder)
    return script(
        task,
        {},
        ScriptLayout(
            python=sys.executable,
            runner=shlex.quote(str(archive.FOLDER)),
            directory=home,
            output=f"{task.folder}.out",
            before=tuple(before),
        ),
    )


def horovodrun(task: Task, notes: Sequence[str] = ()) -> str:
    """Returns a shell script that starts the ranks with Horovod's own launcher.

    Raises:
        EngineError: the task is not a Horovod job.
    """
    if task.launch != Launch.HOROVOD:
        raise EngineError(f"{task.name} is not a Horovod job: horovodrun cannot start it", engine="horovodrun")
    hosts = ",".join(f"{name}:{ranks}" for name, ranks in zip(_hosts(task), task.ranks, strict=True))
    lines = ["#!/bin/bash", *_listed(f"The job {task.name} by Horovod's own launcher.", [*notes, *_lost(task)]), ""]
    lines += [f"folder={shlex.quote(task.folder)}", 'mkdir -p "$folder/temp"', 'cd "$folder/temp" || exit']
    lines += [f"export {name}={_value(value, task)}" for name, value in task.environment.items()]
    lines += [f': "${{{name}:?is a secret of the job: export it first}}"' for name in task.secrets]
    lines += [f"hosts=${{HOSTS:-{hosts}}}  # HOSTS=first:2,second:2 gives the real names", ""]
    limit = [] if task.wall_seconds is None else ["timeout", f"{task.wall_seconds:g}"]
    launch = [*limit, "horovodrun", "--gloo", "--start-timeout", "300", "-np", str(task.size)]
    lines += [f'exec {shlex.join(launch)} -H "$hosts" \\', f"    bash -c {shlex.quote(task.command)}", ""]
    return "\n".join(lines)


def _hosts(task: Task) -> Iterator[str]:
    if len(task.nodes) == 1:
        yield "localhost"
    else:
        yield from (f"node{number}" for number in range(1, len(task.nodes) + 1))


def _lost(task: Task) -> Iterator[str]:
    """Yields what Horovod's launcher cannot do."""
    if task.preparation is not None:
        yield f"the preparation; run it on each host before: {task.preparation}"
    if task.stall_seconds is not None:
        yield "the watch for ranks that neither write nor compute"
    yield "the log files of the job and of each node: the output goes to the terminal"


def _value(text: str, task: Task) -> str:
    """Quotes a value so that the job's variables, and no others, are still expanded."""
    known = {*task.environment, "PATH", "HOME", "USER"}

    def one(found: re.Match[str]) -> str:
        return found[0] if (found[1] or found[2]) in known else "\\" + found[0]

    quoted = re.sub(r'[\\"`]', lambda found: "\\" + found[0], text)
    return '"' + re.sub(r"\$(?:(\w+)|\{(\w+)\})?", one, quoted) + '"'


def _listed(title: str, notes: Sequence[str]) -> list[str]:
    told = ["# Left to you:", *(f"#   - {' '.join(note.split())}" for note in notes)] if notes else []
    return [f"# {title}", *told]


_FORMATS = {"slurm": slurm, "horovodrun": horovodrun}
