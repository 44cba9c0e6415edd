"""Verdicts: one cause for each thing that can be the matter, with its evidence and the next call."""

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from attrs import evolve

from batchhvd.advice.explain import ClusterFacts, JobFacts, Verdict, of_cluster, of_job, of_node
from batchhvd.cli.frame.failure import described
from batchhvd.resources.session import Session
from batchhvd.resources.values.listing import files
from batchhvd.service.status import verdict as page
from batchhvd.wire.connection import Connection
from batchhvd.wire.facts.causes import REMEDIES, Cause, Code
from batchhvd.wire.reasons import Reason

START = datetime(2026, 11, 27, 12, 0, tzinfo=timezone.utc)
CLUSTER = ClusterFacts("/c", "nc6", "succeeded", "steady", 4, {"idle": 1, "running": 3}, ())
JOB = JobFacts(
    id="/j",
    name="cifar",
    state="failed",
    nodes=4,
    errors=(),
    exit_code=3,
    started=START,
    ended=START + timedelta(seconds=90),
    cluster=CLUSTER,
    script="$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/train.py",
    restarted=START - timedelta(hours=1),
    log=lambda name: "",
)


def failed(code: str, message: str = "It went wrong.", **details: str) -> Verdict:
    return of_job(evolve(JOB, errors=[Reason(code, message, details)]))


@pytest.mark.parametrize(
    ("code", "cause", "then"),
    [
        ("MountFailed", Cause.MOUNT_FAILED, "create the share"),
        ("ScriptNotFound", Cause.SCRIPT_MISSING, "share.upload("),
        ("JobPreparationFailed", Cause.PREPARATION_FAILED, "JobSpec.preparation"),
        ("RankFailed", Cause.RANK_FAILED, "job.stream('stderr.txt')"),
        ("OutOfMemory", Cause.OUT_OF_MEMORY, "batch size"),
        ("WallClockLimit", Cause.WALL_CLOCK, "JobSpec.max_seconds"),
        ("JobTerminated", Cause.TERMINATED, "submit"),
        ("NodeLost", Cause.NODE_LOST, "cluster.explain()"),
        ("HorovodMissing", Cause.HOROVOD_MISSING, "python -m batchhvd.trainer.install"),
        ("HorovodBroken", Cause.HOROVOD_BROKEN, "python -m batchhvd.trainer.install"),
        ("EngineFailed", Cause.ENGINE_FAILED, "execution"),
        ("SomethingNew", Cause.UNKNOWN, "job.files()"),
    ],
)
def test_each_code_has_its_cause(code: str, cause: Cause, then: str) -> None:
    verdict = failed(code)
    assert verdict.cause is cause
    assert verdict.why and then in verdict.next
    assert str(verdict).splitlines()[0] == f"{cause}: {verdict.why}"
    assert str(verdict).splitlines()[-1] == f"Next: {verdict.next}"


def test_a_rank_that_crashed() -> None:
    traceback = "Traceback (most recent call last):\n"
    tail = f"noise\n{traceback}  File x\n{traceback}  File y\nValueError: z"
    details = {"Rank": "2", "Node": "tvm-1_3-p", "ExitCode": "139", "Signal": "11", "Tail": tail, "Attempt": "1"}
    verdict = failed("RankFailed", "Rank 2 ended by signal 11 on node tvm-1_3-p.", **details)
    assert verdict.why == "Rank 2 was killed by SIGSEGV on node tvm-1_3-p"
    assert verdict.evidence[0] == "rank 2, node tvm-1_3-p, exit code 139, attempt 1, signal SIGSEGV"
    assert verdict.evidence[1:] == ("Traceback (most recent call last):", "  File y", "ValueError: z")


def test_a_signal_that_has_no_name() -> None:
    assert "signal 99" in failed("RankFailed", Signal="99", Rank="0").why


def test_without_last_lines_the_logs_are_read() -> None:
    logs = {"stderr.txt": "a\nb", "stderr-job_prep-n1.txt": "E: no such package"}
    facts = evolve(JOB, log=lambda name: logs.get(name, ""))
    reason = Reason("JobPreparationFailed", "The preparation failed.", {"Node": "n1"})
    assert of_job(evolve(facts, errors=[reason])).evidence[-1] == "E: no such package"
    assert of_job(evolve(facts, errors=[Reason("RankFailed", "x")])).evidence == ("a", "b")


def test_a_missing_script_is_named() -> None:
    assert "/mnt/train.py" in failed("ScriptNotFound", Path="/mnt/train.py").why
    assert "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/train.py" in failed("ScriptNotFound").why


def test_a_service_that_was_restarted_meanwhile() -> None:
    during = START + timedelta(seconds=60)
    lost = evolve(JOB, errors=[Reason("NodeLost", "The node is lost.")], restarted=during)
    assert of_job(lost).cause is Cause.SERVICE_RESTARTED
    assert "12:01:00" in of_job(lost).why
    assert of_job(evolve(lost, restarted=START + timedelta(seconds=200))).cause is Cause.NODE_LOST
    assert of_job(evolve(lost, errors=[Reason("RankFailed", "x")])).cause is Cause.RANK_FAILED
    running = evolve(JOB, state="running", ended=None, restarted=during)
    assert of_job(running).cause is Cause.RUNNING
    assert of_job(running).evidence == ("the service was started again at 12:01:00; the job kept running",)


def test_earlier_attempts_are_told() -> None:
    verdict = of_job(evolve(JOB, errors=[Reason("RankFailed", "Second."), Reason("NodeLost", "First.")]))
    assert verdict.cause is Cause.RANK_FAILED
    assert verdict.evidence[-1] == "before that: First."


@pytest.mark.parametrize(
    ("cluster", "cause", "then"),
    [
        (CLUSTER, Cause.WAITING_FOR_NODES, "job.wait('running')"),
        (evolve(CLUSTER, target=2, counts={"idle": 2}), Cause.CLUSTER_TOO_SMALL, "cluster.resize(4)"),
        (evolve(CLUSTER, state="resizing", counts={"idle": 1}), Cause.WAITING_FOR_RESIZE, "job.wait('running')"),
        (evolve(CLUSTER, counts={"idle": 2, "unusable": 2}), Cause.CLUSTER_UNUSABLE, "cluster.explain()"),
        (None, Cause.CLUSTER_GONE, "delete"),
    ],
)
def test_why_a_job_waits(cluster: ClusterFacts | None, cause: Cause, then: str) -> None:
    waiting = evolve(JOB, state="queued", cluster=cluster, errors=[Reason("Waiting", "It waits.")], started=None)
    verdict = of_job(waiting)
    assert verdict.cause is cause
    assert then in verdict.next and "It waits." in verdict.evidence


def test_other_states_of_a_job() -> None:
    assert of_job(evolve(JOB, state="succeeded")).why == "job 'cifar' succeeded after 90.0 s"
    assert of_job(evolve(JOB, state="terminating")).cause is Cause.TERMINATED
    assert of_job(JOB).cause is Cause.UNKNOWN


@pytest.mark.parametrize(
    ("cluster", "cause"),
    [
        (CLUSTER, Cause.READY),
        (evolve(CLUSTER, state="resizing"), Cause.RESIZING),
        (evolve(CLUSTER, provisioning="failed"), Cause.NOT_MADE),
        (evolve(CLUSTER, errors=[Reason("NotEnoughNodes", "Two at most.")]), Cause.CLUSTER_TOO_SMALL),
        (evolve(CLUSTER, counts={"unusable": 1}, errors=[Reason("SetupTaskFailed", "x")]), Cause.CLUSTER_UNUSABLE),
    ],
)
def test_clusters(cluster: ClusterFacts, cause: Cause) -> None:
    verdict = of_cluster(cluster)
    assert verdict.cause is cause
    assert "'nc6'" in verdict.why and verdict.next
    assert all(str(reason) in str(verdict) for reason in cluster.errors)


def test_a_node() -> None:
    reasons = [Reason("SetupTaskFailed", "Its setup failed.", {"Node": "n1"})]
    cluster = evolve(CLUSTER, errors=reasons, counts={"unusable": 1})
    assert of_node(cluster, "n2") is None
    verdict = of_node(cluster, "n1")
    assert verdict is not None and verdict.cause is Cause.CLUSTER_UNUSABLE
    assert verdict.why == "node n1 of cluster 'nc6' is unusable: Its setup failed"


@pytest.mark.parametrize("code", [code for code in Code if code != Code.WAITING])
def test_the_client_and_the_status_page_name_the_same_cause(code: Code) -> None:
    said: dict[str, Any] = {"code": code.value, "message": "It went wrong.", "details": []}
    info = {"startTime": "2026-11-27T12:00:00.000Z", "endTime": "2026-11-27T12:01:30.000Z", "errors": [said]}
    properties: Any = {"executionState": "failed", "nodeCount": 4, "executionInfo": info}
    assert page.of_job(properties, "")["cause"] == failed(code).cause
    during = "2026-11-27T12:01:00.000Z"
    restarted = of_job(evolve(JOB, errors=[Reason(code, "It went wrong.")], restarted=START + timedelta(seconds=60)))
    assert page.of_job(properties, during)["cause"] == restarted.cause


def test_every_cause_of_a_failure_has_a_next_step_for_python_and_for_the_shell() -> None:
    for code in Code:
        if code is not Code.WAITING:
            verdict = failed(code)
            remedy = REMEDIES[verdict.cause].named(JOB.name)
            assert verdict.next == remedy.python
            assert verdict.for_shell().next == remedy.shell and "NAME" not in remedy.shell
            assert str(verdict.for_shell()).splitlines()[-1] == f"Next: {remedy.shell}"
    assert verdict.for_shell() != verdict and verdict.for_shell().cause is verdict.cause


@pytest.mark.parametrize("state", ["queued", "running", "terminating", "succeeded"])
def test_the_command_line_is_told_commands(state: str) -> None:
    waiting = of_job(evolve(JOB, state=state)).for_shell()
    assert "batchhvd job" in waiting.next and "cifar" in waiting.next and "(" not in waiting.next
    assert "batchhvd job submit" in of_cluster(CLUSTER).for_shell().next
    assert "batchhvd cluster resize nc6 --target" in of_cluster(evolve(CLUSTER, counts={})).for_shell().next


CUDA = "E0000 00:00:1764.1 2898 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error: UNKNOWN ERROR (303)"
MEMORY = "torch.cuda.OutOfMemoryError: CUDA out of memory"
ONEDNN = "2026-11-28 12:00:00.1: I tensorflow/core/util/port.cc:153] oneDNN custom operations are on."


@pytest.mark.parametrize(
    ("details", "tail", "expected"),
    [
        ({"Signal": "9"}, [CUDA], "Rank 1 was killed by SIGKILL on node n"),
        ({"Signal": "9"}, ["epoch 3", ONEDNN, CUDA, " "], "Rank 1 was killed by SIGKILL on node n; last line: epoch 3"),
        ({"Signal": "250"}, [], "Rank 1 was killed by signal 250 on node n"),
        ({}, ["ValueError: x", CUDA], "Rank 1 ended with exit code 137 on node n; last line: ValueError: x"),
        ({}, [CUDA], "Rank 1 ended with exit code 137 on node n"),
        ({}, [MEMORY, CUDA], f"Rank 1 ended with exit code 137 on node n; last line: {MEMORY}"),
    ],
)
def test_a_killed_rank_is_named_first_and_the_noise_of_a_framework_never(
    details: dict[str, str], tail: list[str], expected: str
) -> None:
    message = f"Rank 1 ended with exit code 137 on node n; last line: {tail[-1] if tail else 'none'}."
    known = {"Rank": "1", "Node": "n", "ExitCode": "137", "Tail": "\n".join(tail), **details}
    reason = Reason("RankFailed", message, known)
    assert str(reason) == f"{expected}."
    verdict = failed("RankFailed", message, **known)
    assert verdict.why == expected
    assert (
        ("who killed it" in verdict.next)
        == (details.get("Signal") == "9")
        == ("who killed it" in verdict.for_shell().next)
    )
    job = Session(Connection("https://arm.example", "s")).group("g").workspace("w").experiment("e").job("j")
    error = {"code": reason.code, "message": message, "details": [{"name": n, "value": v} for n, v in known.items()]}
    job._load({"name": "j", "properties": {"executionState": "failed", "executionInfo": {"errors": [error]}}})
    job.files = lambda *_: files(lambda: iter(()))  # type: ignore[method-assign]
    assert str(job._failure()).startswith(f"job 'j' failed: {expected}.") and expected in job._repr_html_()
    assert described(job, job._failure()).splitlines()[0] == f"job 'j' failed: {expected}"


def test_a_rank_that_others_wait_for_is_shown_while_the_job_runs() -> None:
    lines = {
        "execution*.log": "2026-11-27T12:00:01Z rank 0 started\n"
        "2026-11-27T12:00:40Z the other ranks have waited for rank 1 for more than 7 s, says Horovod\n"
    }
    verdict = of_job(evolve(JOB, state="running", log=lambda name: lines.get(name, "")))
    assert verdict.evidence[-1].endswith("Z the other ranks have waited for rank 1 for more than 7 s, says Horovod")


def test_a_signal_that_the_service_names_is_not_told_twice() -> None:
    verdict = failed("RankFailed", "Rank 1 was killed by SIGKILL on node a.", Rank="1", Node="a", Signal="9")
    assert verdict.why == "Rank 1 was killed by SIGKILL on node a"
