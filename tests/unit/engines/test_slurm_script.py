"""The batch scripts that the Slurm engine sends, and those that are given to keep."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from batchhvd import JobSpec
from batchhvd.engines import export
from batchhvd.engines.base import Task
from batchhvd.engines.base import export as exported
from batchhvd.engines.slurm.script import ScriptLayout, checked, script
from batchhvd.errors import EngineError
from batchhvd.node import archive
from batchhvd.service.job_script import script as from_job_file

CASES = Path(__file__).parents[2] / "data" / "jobs"


LAYOUT = ScriptLayout(python="/usr/bin/python3", runner='"$folder/node-1.pyz"')


def task(**rest: Any) -> Task:
    place = {"folder": "/sha red/täsk", "logs": "/sha red/logs", "name": "job_1"}
    settings: dict[str, Any] = {**place, "nodes": ("a", "b"), "ranks": (2, 1), "launch": "horovod", "command": "true"}
    return Task(**{**settings, **rest})


def directives(text: str) -> dict[str, str]:
    lines = [line.removeprefix("#SBATCH --") for line in text.splitlines() if line.startswith("#SBATCH")]
    return {name: "".join(shlex.split(value)) for name, _, value in (line.partition("=") for line in lines)}


def of(given: Task, **options: str) -> str:
    return script(given, checked(options), LAYOUT)


def test_a_task_has_whole_nodes_and_one_runner_on_each() -> None:
    text = of(task())
    assert directives(text) == {
        "job-name": "job_1",
        "nodes": "2",
        "ntasks-per-node": "1",
        "exclusive": "",
        "mem": "0",
        "chdir": "/sha red/täsk",
        "output": "/sha red/täsk/slurm.out",
        "open-mode": "append",
        "requeue": "",
        "export": "ALL",
    }
    assert text.splitlines()[-2:] == [
        "exec srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --export=ALL --mpi=none --overlap --kill-on-bad-exit=1 \\",
        '    /usr/bin/python3 -I -S "$folder/node-1.pyz" "$folder"',
    ]


@pytest.mark.parametrize(
    ("seconds", "minutes"), [(None, None), (1.0, "2"), (60.0, "2"), (61.0, "3"), (604800.0, "10081")]
)
def test_slurms_limit_leaves_the_runner_time_to_keep_its_own(seconds: float | None, minutes: str | None) -> None:
    assert directives(of(task(wall_seconds=seconds))).get("time") == minutes


def test_a_jobs_own_time_limit_wins_over_the_option() -> None:
    assert directives(of(task(wall_seconds=7200.0), time="1"))["time"] == "121"


def test_options_win_over_the_engines_own_choice_but_not_over_what_it_needs() -> None:
    unnamed = task(wall_seconds=7 * 24 * 3600.0)  # the job itself named no limit
    found = directives(of(unnamed, partition="gpu", time="1:00:00", **{"cpus-per-task": "8"}))
    assert (found["partition"], found["time"], found["cpus-per-task"]) == ("gpu", "1:00:00", "8")
    assert not {"exclusive", "mem"} & set(found)


@pytest.mark.parametrize(
    "name", ["output", "array", "nodes", "wrap", "export", "requeue", "partition\n#SBATCH --x", ""]
)
def test_options_that_are_the_engines_own_are_refused(name: str) -> None:
    with pytest.raises(EngineError, match="has no option"):
        checked({name: "1"})


@pytest.mark.parametrize("value", ["a b", 'a"b', "a'b", "a\nb", "a\\b", "$(x)", "a`b"])
def test_values_that_are_not_one_word_are_refused(value: str) -> None:
    with pytest.raises(EngineError, match="blanks or quotes"):
        checked({"partition": value})


@pytest.mark.parametrize("folder", ['/a "b"/c', "/a 'b'/c", "/a\\b/$HOME/%j", "/日本 %%"])
def test_any_folder_is_quoted_for_slurm_and_for_the_shell(folder: str) -> None:
    text = of(task(folder=folder))
    assert directives(text)["chdir"] == folder
    assert directives(text)["output"] == folder.replace("%", "%%") + "/slurm.out"
    line = next(line for line in text.splitlines() if line.startswith("folder="))
    assert shlex.split(line) == [f"folder={folder}"]


def test_a_folder_with_a_line_break_is_refused() -> None:
    with pytest.raises(EngineError, match="line break"):
        of(task(folder="/a\nb"))


def test_mpi_tasks_take_mpirun_or_slurms_own_launcher() -> None:
    assert "BATCHHVD_LAUNCHER" not in of(task(launch="mpi"))
    text = script(task(launch="mpi"), {}, LAYOUT, mpi="pmix")
    assert "srun --mpi=pmix --nodes=2 --ntasks=3" in text
    assert "BATCHHVD_LAUNCHER" not in script(task(), {}, LAYOUT, mpi="pmix")


# -- scripts to keep ---------------------------------------------------------------------------------------------------


def test_the_exported_batch_script_holds_the_task_and_names_the_runner() -> None:
    own = task(secrets={"TOKEN": "s3cret"}, environment={"A": "ü"})
    text = exported("slurm", own, ["put the files there"])
    assert "s3cret" not in text
    assert f' -I -S {shlex.quote(str(archive.FOLDER))} "$folder"' in text
    body = re.search(r"<<'END_OF_TASK'\n(.*)\nEND_OF_TASK\n", text, re.DOTALL)
    assert body is not None
    found = json.loads(body[1])
    assert found["environment"] == {"A": "ü"}
    assert found["secrets"] == {"TOKEN": ""}
    assert "#   - put the files there" in text
    assert "the secret variable TOKEN" in text


def test_horovodrun_gets_the_ranks_of_each_host_and_a_list_of_what_is_lost() -> None:
    text = exported("horovodrun", task(preparation="apt-get install x", wall_seconds=60.0, secrets={"TOKEN": "s"}))
    assert "hosts=${HOSTS:-node1:2,node2:1}" in text
    assert "timeout 60 horovodrun --gloo --start-timeout 300 -np 3 -H" in text
    assert "run it on each host before: apt-get install x" in text
    assert "${TOKEN:?" in text


@pytest.mark.parametrize("value", ['a "b" `c` \\ $X ${HOME}x $(date) $5 ü', "$UNKNOWN/${A}"])
def test_only_the_jobs_own_variables_are_expanded(value: str) -> None:
    quoted = export._value(value, task(environment={"A": "1", "B": value}))
    assert quoted.startswith('"') and quoted.endswith('"')
    assert "$(" not in quoted.replace("\\$(", "")
    assert ("\\$UNKNOWN" in quoted) == ("$UNKNOWN" in value)


def test_what_is_no_horovod_job_cannot_go_to_horovodrun() -> None:
    with pytest.raises(EngineError, match="not a Horovod job"):
        exported("horovodrun", task(launch="single"))
    with pytest.raises(EngineError, match="must be one of slurm, horovodrun, not .kubernetes."):
        exported("kubernetes", task())


def test_a_job_file_becomes_a_script_with_what_is_left_to_do() -> None:
    path = CASES / "tutorial-4-nodes.json"
    document = JobSpec.read(path, account="examplestore").to_document()
    made = from_job_file("slurm", document, Path("/home/me/cifar"))
    assert directives(made)["nodes"] == "4"
    assert "the share myshare of the storage account examplestore" in made
    assert "/home/me/cifar/mounts/" in made
    assert "the container image tensorflow/tensorflow:1.8.0-gpu" in made


def test_a_job_whose_logs_lie_nowhere_has_no_script() -> None:
    properties = {"nodeCount": 1, "stdOutErrPathPrefix": "/tmp", "customToolkitSettings": {"commandLine": "true"}}
    with pytest.raises(EngineError, match="/tmp lies on no share"):
        from_job_file("slurm", {"properties": properties}, Path("/home/me/x"))


def test_the_task_that_is_exported_stays_as_it_was() -> None:
    own = task(secrets={"TOKEN": "s3cret"})
    exported("slurm", own)
    assert own == evolve(own) and own.secrets["TOKEN"] == "s3cret"
