"""The whole way on four nodes under Slurm: client, service, engine; and real Horovod between the nodes."""

from __future__ import annotations

import importlib.util
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import batchhvd
from batchhvd import CustomToolkit, Horovod, JobSpec
from batchhvd.engines.slurm import Slurm
from batchhvd.errors import JobFailedError
from batchhvd.wire.local_service import find, stop
from tests.support.slurm import Bed, beds
from tests.support.stage import PYTHON, Stage
from tests.support.waiting import until

pytestmark = pytest.mark.slurm

WAITS = """
import os, pathlib, socket, sys, time
print("rank", os.environ["HOROVOD_RANK"], "on", socket.gethostname(), flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
print("done", flush=True)
"""


@pytest.fixture
def session(slurm: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[batchhvd.Session]:
    monkeypatch.setenv("PATH", f"{slurm.bin}:{os.environ['PATH']}")
    yield batchhvd.local(tmp_path / "the röot", engine="slurm")
    stop(tmp_path / "the röot")


def test_a_job_on_four_nodes_outlives_a_killed_service(session: batchhvd.Session, slurm: Bed, tmp_path: Path) -> None:
    workspace = session.create_group("g", location="eastus").create_workspace("w")
    experiment = workspace.create_experiment("e")
    cluster = workspace.create_cluster("c", vm_size="Standard_NC6", nodes=4)
    share = session.group("g").create_storage_account("account").create_share("share")
    (tmp_path / "waits.py").write_text(WAITS)
    share.upload(tmp_path / "waits.py")
    mount = share.mount("ablage")
    go, root = tmp_path / "go", tmp_path / "the röot"
    spec = JobSpec(nodes=4, task=Horovod(script=mount / "waits.py", args=f'"{go}"'), mounts=[mount], logs=mount)
    cluster.wait(timeout=30)
    job = experiment.create_job("j", spec, cluster=cluster)
    job.wait("running", timeout=60)
    deadline = time.monotonic() + 60
    while len(ranks(root)) < 4:
        assert time.monotonic() < deadline
        time.sleep(0.1)

    found = find(root)
    assert found is not None and found.engine == "slurm"
    os.kill(found.pid, signal.SIGKILL)
    again = batchhvd.local(root, engine="slurm")
    assert find(root) != found
    job = again.group("g").workspace("w").experiment("e").job("j")
    go.touch()
    job.wait(timeout=60)
    assert (job.refresh().state, job.exit_code) == ("succeeded", 0)
    assert {line.split()[-1] for line in ranks(root)} == set(slurm.nodes)
    assert len(ranks(root)) == 4
    cluster.wait(timeout=10)
    assert cluster.refresh().nodes.idle == 4


def test_nodes_out_of_order_are_unusable_and_slurm_says_why(session: batchhvd.Session, slurm: Bed) -> None:
    slurm.slurm("scontrol", "update", "nodename=node2", "state=drain", "reason=new cables")
    try:
        workspace = session.create_group("g", location="eastus").create_workspace("w")
        cluster = workspace.create_cluster("c", vm_size="Standard_NC6", nodes=4)
        deadline = time.monotonic() + 30
        while (cluster.refresh().nodes.unusable, cluster.nodes.idle) != (1, 3):
            assert time.monotonic() < deadline, cluster.nodes
            time.sleep(0.1)
        assert "node2 is drained: new cables" in str(cluster.explain())
    finally:
        slurm.slurm("scontrol", "update", "nodename=node2", "state=resume")


def ranks(root: Path) -> list[str]:
    """Returns the lines in which ranks say where they are."""
    logs = root.glob("shares/**/stdouterr/stdout.txt")
    return [line for log in logs for line in log.read_text().splitlines() if line.startswith("rank")]


@pytest.mark.horovod
def test_real_horovod_sums_over_four_hosts(slurm: Bed, tmp_path: Path) -> None:
    framework = next((name for name in ("torch", "tensorflow") if importlib.util.find_spec(name)), None)
    if importlib.util.find_spec("horovod") is None or framework is None:
        pytest.skip("needs Horovod: python -m batchhvd.trainer.install")
    stage = Stage(lambda: Slurm(bin=str(slurm.bin), wait=30, pause=0.1), tmp_path / "the röot")
    (stage.root / "täsk one").mkdir(parents=True)
    script = stage.root / "täsk one" / "sum.py"
    script.write_text(SUM.format(framework=framework))
    task = stage.task(f'{PYTHON} "{script}"', nodes=4)
    try:
        assert stage.run(task, 240).state == "succeeded", stage.text(task, "stderr.txt")
    finally:
        stage.end()
    assert sorted(stage.lines(task)) == [f"{rank} of 4: 10.0 on node{rank + 1}" for rank in range(4)]
    assert "this node reaches it by eth0" in stage.text(task, f"execution-{task.nodes[1]}.log")


@pytest.mark.timeout(400)
def test_ranks_meet_over_two_hosts_without_horovod(slurm: Bed, tmp_path: Path) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    stage = Stage(lambda: Slurm(bin=str(slurm.bin), wait=30, pause=0.1), tmp_path / "the röot")
    (stage.root / "täsk one").mkdir(parents=True)
    script = stage.root / "täsk one" / "sum.py"
    script.write_text(WITHOUT)
    task = stage.task(f'{PYTHON} "{script}"', nodes=2, environment={"KERAS_BACKEND": "torch"})
    try:
        assert stage.run(task, 240).state == "succeeded", stage.text(task, "stderr.txt")
    finally:
        stage.end()
    assert sorted(stage.lines(task)) == [f"{rank} of 2: 3.0 on node{rank + 1}" for rank in range(2)]
    assert "torch.distributed (gloo): Horovod is not installed" in stage.text(task, "stderr.txt")


WITHOUT = """
import sys

sys.modules["horovod"] = None  # what makes an import fail
sys.modules["tensorflow"] = None
import socket
import numpy
from batchhvd.trainer import hvd

hvd.init()
total = hvd.allreduce(numpy.full(1, hvd.rank() + 1, "float32"), op=hvd.Sum)
print(hvd.rank(), "of", str(hvd.size()) + ":", float(total[0]), "on", socket.gethostname(), flush=True)
"""

SUM = """
import socket
import numpy, {framework}
import horovod.{framework} as hvd

hvd.init()
value = numpy.full(1, hvd.rank() + 1, "float32")
if "{framework}" == "torch":
    value = torch.from_numpy(value)
total = hvd.allreduce(value, op=hvd.Sum)
print(hvd.rank(), "of", str(hvd.size()) + ":", float(total[0]), "on", socket.gethostname(), flush=True)
"""


def test_a_job_stays_with_its_engine_when_the_service_starts_with_another(
    session: batchhvd.Session, slurm: Bed, tmp_path: Path
) -> None:
    share, cluster, experiment = place(session)
    (tmp_path / "waits.py").write_text(WAITS)
    share.upload(tmp_path / "waits.py")
    mount = share.mount("ablage")
    go, root = tmp_path / "go", tmp_path / "the röot"
    spec = JobSpec(nodes=2, task=Horovod(script=mount / "waits.py", args=f'"{go}"'), mounts=[mount], logs=mount)
    for name in ("goes-on", "is-ended"):
        experiment.create_job(name, spec, cluster=cluster).wait("running", timeout=60)
    stop(root)
    again = batchhvd.local(root, engine="processes").group("g").workspace("w").experiment("e")
    ended = again.job("is-ended")
    assert {ended.refresh().state, again.job("goes-on").refresh().state} == {"running"}
    ended.terminate()
    with pytest.raises(JobFailedError, match="terminated"):
        ended.wait(timeout=60)
    go.touch()
    goes_on = again.job("goes-on").wait(timeout=60)
    assert (goes_on.state, goes_on.exit_code) == ("succeeded", 0)
    until(lambda: not slurm.slurm("squeue", "-h").strip(), seconds=15)  # a runner ends after the ranks of all nodes


def test_jobs_wait_while_the_controller_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with beds(tmp_path, "--nodes", "2") as bed:
        monkeypatch.setenv("PATH", f"{bed.bin}:{os.environ['PATH']}")
        root = tmp_path / "the röot"
        try:
            share, cluster, experiment = place(batchhvd.local(root, engine="slurm"), nodes=2)
            mount = share.mount("ablage")
            spec = JobSpec(nodes=1, task=CustomToolkit(command="echo ran"), mounts=[mount], logs=mount)
            bed("controller-stop")
            jobs = [experiment.create_job(f"j{number}", spec, cluster=cluster) for number in range(4)]
            until(lambda: all("Slurm" in str(job.refresh().errors) for job in jobs[:2]), 60)
            time.sleep(5)  # without a pause and a second try, one job after the other would fail
            assert {job.refresh().state for job in jobs} == {"queued"}
            bed("controller-start")
            assert [job.wait(timeout=120).state for job in jobs] == ["succeeded"] * 4
        finally:
            stop(root)


def place(
    session: batchhvd.Session, nodes: int = 4
) -> tuple[batchhvd.FileShare, batchhvd.Cluster, batchhvd.Experiment]:
    """Makes a share, a cluster and an experiment."""
    group = session.create_group("g", location="eastus")
    workspace = group.create_workspace("w")
    share = group.create_storage_account("account").create_share("share")
    cluster = workspace.create_cluster("c", vm_size="Standard_NC6", nodes=nodes)
    cluster.wait(timeout=60)
    return share, cluster, workspace.create_experiment("e")
