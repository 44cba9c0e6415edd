"""Verdicts on real jobs and clusters that fare badly in real ways."""

from __future__ import annotations

from typing import Any

import pytest

from batchhvd import Cause, Horovod, Job, NotFoundError, ResourceGroup


def ended(job: Job) -> Job:
    return job.wait("ended", timeout=60)


def test_a_rank_that_exits(place: Any) -> None:
    command = "python3 -c \"raise ValueError('no data at ' + 'ä')\""
    verdict = ended(place.run(command)).explain()
    assert verdict.cause is Cause.RANK_FAILED
    assert verdict.evidence[0].startswith("rank 0, node tvm-")
    assert verdict.evidence[-1] == "ValueError: no data at ä"


def test_a_rank_that_is_killed(place: Any) -> None:
    verdict = ended(place.run("kill -SEGV $$")).explain()
    assert verdict.cause is Cause.RANK_FAILED and "SIGSEGV" in verdict.why


def test_a_script_that_is_not_there(place: Any) -> None:
    script = place.share.mount("data") / "no/such.py"
    job = ended(place.run("", task=Horovod(script)))
    assert job.explain().cause is Cause.SCRIPT_MISSING
    assert "no/such.py" in job.explain().why


def test_horovod_that_is_not_there(place: Any) -> None:
    verdict = ended(place.run("echo \"ModuleNotFoundError: No module named 'horovod'\" >&2; exit 1")).explain()
    assert verdict.cause is Cause.HOROVOD_MISSING and "batchhvd.trainer.install" in verdict.next


def test_a_job_that_takes_too_long(place: Any) -> None:
    verdict = ended(place.run("sleep 60", max_seconds=1)).explain()
    assert verdict.cause is Cause.WALL_CLOCK


def test_a_job_that_is_terminated(place: Any) -> None:
    job = place.run("sleep 60").wait("running", timeout=30)
    assert job.explain().cause is Cause.RUNNING
    assert job.terminate().explain().cause is Cause.TERMINATED


def test_a_share_that_goes_while_the_job_waits(place: Any) -> None:
    share = place.share.account.create_share("going")
    blocker = place.run("sleep 60", nodes=2).wait("running", timeout=30)
    mounts = [place.share.mount("data"), share.mount("other")]
    job = place.run("true", mounts=mounts)
    verdict = job.explain()
    assert verdict.cause is Cause.WAITING_FOR_NODES and "needs 1 nodes" in verdict.why
    share.delete()
    blocker.terminate()
    assert ended(job).explain().cause is Cause.MOUNT_FAILED
    assert "going" in job.explain().why


def test_a_cluster_that_is_too_small(place: Any) -> None:
    cluster = place.workspace.create_cluster("small", vm_size="Standard_NC6", nodes=2).wait(timeout=30)
    job = place.experiment.create_job("large", place.spec("true", nodes=2), cluster=cluster)
    ended(job)
    blocker = place.experiment.create_job("blocker", place.spec("sleep 60", nodes=2), cluster=cluster)
    blocker.wait("running", timeout=30)
    waiting = place.experiment.create_job("waiting", place.spec("true", nodes=2), cluster=cluster)
    cluster.resize(1)
    verdict = waiting.explain()
    assert verdict.cause is Cause.CLUSTER_TOO_SMALL
    assert verdict.next == "cluster.resize(2)"
    for one in (waiting, blocker):
        one.delete(timeout=30)
    cluster.delete(timeout=30)


def test_clusters_and_nodes(place: Any, group: ResourceGroup) -> None:
    assert place.cluster.explain().cause is Cause.READY
    job = ended(place.run("exit 1"))
    node = dict(job.errors[0].details)["Node"]
    assert place.cluster.explain(node).cause is Cause.READY
    with pytest.raises(NotFoundError, match=f"Give one of its nodes: .*{node}"):
        place.cluster.explain("tvm-none")
    many = group.create_workspace("w").create_cluster("c", vm_size="Standard_NC6", nodes=0)
    assert many.wait(timeout=30).explain().next.startswith("cluster.resize(")
    with pytest.raises(NotFoundError):
        place.workspace.cluster("none").explain()
    with pytest.raises(NotFoundError):
        place.experiment.job("none").explain()
