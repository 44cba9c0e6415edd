"""From the documents of a job and its cluster to the task that an engine runs."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchhvd.service.scheduler import task as environment
from batchhvd.service.scheduler.layout import TaskLayout
from batchhvd.service.scheduler.task import Attempt, Site
from batchhvd.service.store.job import StoredJob
from batchhvd.service.store.records import Record
from batchhvd.wire.facts import vm_sizes
from batchhvd.wire.facts.toolkits import spread

FOLDER = Path("/wurzel ü/tasks/u/1")
SHARE = Path("/wurzel ü/shares/acc/share")
SEGMENT = "s/g/workspaces/w/experiments/e/jobs/j/u"
ROOT = "$AZ_BATCHAI_JOB_MOUNT_ROOT"
VOLUME = {
    "azureFileUrl": "https://acc.file.core.windows.net/share",
    "relativeMountPath": "ext",
    "accountName": "acc",
    "credentials": {},
}


def plan(
    site: Site | None = None, nodes: int = 2, private: Any = None, cluster: Any = None, **properties: Any
) -> TaskLayout:
    body: dict[str, Any] = {
        "nodeCount": nodes,
        "stdOutErrPathPrefix": f"{ROOT}/ext/logs",
        "jobOutputDirectoryPathSegment": SEGMENT,
        "mountVolumes": {"azureFileShares": [VOLUME]},
        **properties,
    }
    if not any(name.endswith("Settings") and name != "containerSettings" for name in properties):
        body["customToolkitSettings"] = {"commandLine": "true"}
    own = {"outputs": "outputs"} if private is None else private
    job = StoredJob(Record("/j", "jobs", "/e", {"name": "j ü!", "properties": body}, own, 1), "queued")
    owner: Any = {"vmSize": "STANDARD_NC6", **(cluster or {})}
    targets = {mount: SHARE / mount.inside for mount in environment.mounts_of(job.properties, owner)}
    run = Attempt(FOLDER, tuple(f"tvm-{k}" for k in range(nodes)))
    return environment.build(job, owner, targets, run, site or Site(python="/opt/py thon/bin/python3"))


def test_a_horovod_job_runs_its_script_with_the_services_interpreter() -> None:
    task = plan(
        nodes=2,
        horovodSettings={"pythonScriptFilePath": f"{ROOT}/ext/a b.py", "commandLineArgs": f"--dir={ROOT}/ext -n 3"},
    ).task
    assert task.launch == "horovod"
    assert task.command == (
        f'"/opt/py thon/bin/python3" "{ROOT}/ext/a b.py" --dir="${{AZ_BATCHAI_JOB_MOUNT_ROOT}}"/ext -n 3'
    )
    assert task.script == f"{ROOT}/ext/a b.py"
    assert task.environment["PATH"] == "/opt/py thon/bin:$PATH"
    assert task.ranks == (1, 1)
    assert task.name == "j---"


def test_the_interpreter_may_be_named() -> None:
    block = {"pythonScriptFilePath": "x.py", "pythonInterpreterPath": "python3.12"}
    assert plan(horovodSettings=block).task.command == '"python3.12" "x.py"'


def test_other_kinds_keep_their_command_line() -> None:
    mpi = plan(customMpiSettings={"commandLine": "prog -x", "processCount": 5}).task
    assert (mpi.launch, mpi.command, mpi.ranks) == ("mpi", "prog -x", (3, 2))
    single = plan(customToolkitSettings={"commandLine": "echo hi | tee $AZ_BATCHAI_OUTPUT_OUTPUT/result.txt"}).task
    assert single.launch == "single"
    assert single.command == 'echo hi | tee "${AZ_BATCHAI_OUTPUT_OUTPUT}"/result.txt'


@given(ranks=st.integers(0, 500), nodes=st.integers(1, 50))
def test_ranks_are_spread_evenly(ranks: int, nodes: int) -> None:
    counts = spread(ranks, nodes)
    assert sum(counts) == ranks
    assert max(counts) - min(counts) <= 1
    assert list(counts) == sorted(counts, reverse=True)


def test_links_lead_to_the_shares_and_the_logs_lie_on_them() -> None:
    found = plan(cluster={"nodeSetup": {"mountVolumes": {"azureFileShares": [VOLUME]}}})
    assert found.links == {FOLDER / "mounts/ext": SHARE, FOLDER / "cluster/ext": SHARE}
    assert found.task.logs == str(SHARE / "logs" / SEGMENT / "stdouterr")
    assert found.task.environment["AZ_BATCHAI_JOB_MOUNT_ROOT"] == str(FOLDER / "mounts")
    assert found.task.environment["AZ_BATCHAI_MOUNT_ROOT"] == str(FOLDER / "cluster")
    assert found.task.environment["AZ_BATCHAI_STDOUTERR_DIR"] == f"{ROOT}/ext/logs/{SEGMENT}/stdouterr"


def test_a_directory_of_a_share_may_be_mounted() -> None:
    volume = {**VOLUME, "azureFileUrl": "http://127.0.0.1:9/acc/share/deep%20down"}
    found = plan(mountVolumes={"azureFileShares": [volume]})
    assert found.links == {FOLDER / "mounts/ext": SHARE / "deep down"}
    assert found.task.logs == str(SHARE / "deep down" / "logs" / SEGMENT / "stdouterr")


def test_inputs_outputs_and_own_variables_come_in_the_order_of_expansion() -> None:
    found = plan(
        inputDirectories=[{"id": "DATA", "path": f"{ROOT}/ext/data"}],
        outputDirectories=[
            {"id": "MODEL", "pathPrefix": f"{ROOT}/ext", "pathSuffix": "models"},
            {"id": "BARE", "pathPrefix": f"{ROOT}/ext/"},
        ],
        environmentVariables=[{"name": "A", "value": "$AZ_BATCHAI_INPUT_DATA/x"}, {"name": "B", "value": "${A}y"}],
    )
    variables = found.task.environment
    assert variables["AZ_BATCHAI_INPUT_DATA"] == f"{ROOT}/ext/data"
    assert variables["AZ_BATCHAI_OUTPUT_MODEL"] == f"{ROOT}/ext/{SEGMENT}/outputs/models"
    assert variables["AZ_BATCHAI_OUTPUT_BARE"] == f"{ROOT}/ext/{SEGMENT}/outputs"
    names = list(variables)
    order = ["AZ_BATCHAI_JOB_MOUNT_ROOT", "AZ_BATCHAI_INPUT_DATA", "AZ_BATCHAI_OUTPUT_MODEL", "A", "B"]
    assert sorted(order, key=names.index) == order
    outputs = SHARE / SEGMENT / "outputs"
    assert set(found.directories) == {outputs / "models", outputs, Path(found.task.logs)}


def test_the_outputs_of_a_job_from_before_keep_their_place() -> None:
    directories = [{"id": "MODEL", "pathPrefix": f"{ROOT}/ext", "pathSuffix": "models"}]
    found = plan(outputDirectories=directories, private={"uuid": "u"})  # an old record has no field "outputs"
    assert found.task.environment["AZ_BATCHAI_OUTPUT_MODEL"] == f"{ROOT}/ext/{SEGMENT}/models"
    assert SHARE / SEGMENT / "models" in found.directories


def test_every_documented_variable_is_there() -> None:
    names = set(plan().task.environment)
    job = {"MOUNT_ROOT", "JOB_MOUNT_ROOT", "JOB_NAME", "SHARED_JOB_TEMP", "MPI_HOST_FILE", "NODE_LIST", "NUM_GPUS"}
    assert {f"AZ_BATCHAI_{name}" for name in job} <= names  # the other ones are each node's own


def test_secrets_are_no_part_of_what_is_shown() -> None:
    task = plan(private={"secrets": {"TOKEN": "hunter2"}}).task
    assert task.secrets == {"TOKEN": "hunter2"}
    assert "hunter2" not in repr(task)
    assert "TOKEN" not in task.environment


def test_an_image_that_is_not_run_and_fields_without_effect_are_said() -> None:
    image = {"imageSourceRegistry": {"image": "tensorflow/tensorflow:1.8.0-gpu"}}
    notices = plan(containerSettings=image, private={"warnings": ["toolType has no effect"]}).task.notices
    assert notices[0] == "warning: toolType has no effect"
    assert "tensorflow/tensorflow:1.8.0-gpu" in notices[1]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("P7D", 604800), ("PT1H2S", 3602), ("7.00:00:00", 604800), ("00:05:00", 300), ("PT0.5S", 0.5), ("P1DT1M", 86460)],
)
def test_durations(text: str, seconds: float) -> None:
    assert plan(constraints={"maxWallClockTime": text}).task.wall_seconds == seconds
    assert plan(constraints={"maxWallClockTime": text}).task.wall_seconds == seconds


def test_what_is_no_duration_is_refused() -> None:
    with pytest.raises(ValueError, match="'soon' is not a duration"):
        plan(constraints={"maxWallClockTime": "soon"})


def test_stalls_and_retries_are_asked_for_by_variables() -> None:
    def own(**values: str) -> Any:
        return [{"name": name, "value": value} for name, value in values.items()]

    assert (plan().task.stall_seconds, plan().task.stall_action) == (600, "warn")
    task = plan(environmentVariables=own(BATCHHVD_STALL_SECONDS="2.5", BATCHHVD_STALL_ACTION="stop")).task
    assert (task.stall_seconds, task.stall_action) == (2.5, "stop")
    assert plan(environmentVariables=own(BATCHHVD_STALL_SECONDS="0")).task.stall_seconds is None
    assert environment.retries({"environmentVariables": own(BATCHHVD_RETRIES="3")}) == 3
    assert environment.retries({"environmentVariables": own(BATCHHVD_RETRIES="many")}) is None


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("ls $AZ_BATCHAI_X/y", 'ls "${AZ_BATCHAI_X}"/y'),
        ("ls ${AZ_BATCHAI_X}y", 'ls "${AZ_BATCHAI_X}"y'),
        ('ls "$AZ_BATCHAI_X/y"', 'ls "$AZ_BATCHAI_X/y"'),
        ("echo '$AZ_BATCHAI_X'", "echo '$AZ_BATCHAI_X'"),
        (r"echo \$AZ_BATCHAI_X", r"echo \$AZ_BATCHAI_X"),
        ("echo $HOME", "echo $HOME"),
        ("don't $AZ_BATCHAI_X", 'don\'t "${AZ_BATCHAI_X}"'),
    ],
)
def test_variables_outside_quotes_are_quoted(command: str, expected: str) -> None:
    assert environment.protect(command) == expected


@pytest.mark.parametrize("path", ["a b", 'quote"d', "back\\slash", "tick`s`", "$(whoami)", "do$ ar", "$HOME/ü"])
def test_paths_reach_the_program_as_they_are_but_for_variables(path: str) -> None:
    words = subprocess.run(
        ["sh", "-c", f"printf %s {environment.quote(path)}"],
        capture_output=True,
        text=True,
        env={"HOME": "/h"},
        check=True,
    )
    assert words.stdout == path.replace("$HOME", "/h")


def test_vm_sizes() -> None:
    assert vm_sizes.size("Standard_NC6") == vm_sizes.VmSize("STANDARD_NC6", 6, 1, 56 * 2**30)
    assert vm_sizes.size("nc24rs_v3").gpus == 4
    assert vm_sizes.size("STANDARD_D1").gpus == 0
    assert vm_sizes.size("Standard_E64s_v9").cores == 64  # by guess
    assert vm_sizes.size("odd").cores == 1
