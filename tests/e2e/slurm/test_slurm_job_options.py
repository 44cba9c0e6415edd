"""Options of the engine for one job, and a job that goes back into Slurm's queue at its time limit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import batchhvd
from batchhvd import CustomToolkit, JobFailedError, JobSpec
from tests.support.slurm import Bed
from tests.support.waiting import until

pytestmark = pytest.mark.slurm
COUNTS = """
import os, pathlib, signal, sys, time
state = pathlib.Path(sys.argv[1])
step = int(state.read_text()) if state.exists() else 0
def save(*_):
    print("saves at", step, flush=True)
    state.write_text(str(step))
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("begins at", step, flush=True)
resumed = step > 0
while step < 100 or not resumed:  # the first attempt goes on until its limit
    step += 1
    time.sleep(0.05)
print("done at", step, flush=True)
"""


def test_a_job_has_options_of_its_own_and_is_requeued_at_its_limit_and_goes_on(
    slurm: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{slurm.bin}:{os.environ['PATH']}")
    session = batchhvd.local(tmp_path / "the röot", engine="slurm")
    try:
        group = session.create_group("g")
        share = group.create_storage_account("account").create_share("share")
        (tmp_path / "counts.py").write_text(COUNTS)
        share.upload(tmp_path / "counts.py")
        workspace, mount = group.create_workspace("w"), share.mount("m")
        cluster = workspace.create_cluster("c", vm_size="Standard_NC6", nodes=2)
        experiment = workspace.create_experiment("e")
        task = CustomToolkit(command=f'python3 {mount / "counts.py"} "{tmp_path / "state"}"')
        options = {"partition": "urgent", "requeue_on_timeout": "1@55", "comment": "mine"}
        spec = JobSpec(nodes=1, task=task, mounts=[mount], logs=mount, max_seconds=60, engine_options=options)
        job = experiment.create_job("j", spec, cluster=cluster)
        assert job.spec.engine_options == {"partition": "urgent", "requeue-on-timeout": "1@55", "comment": "mine"}
        job.wait("running", timeout=60)
        told = slurm.slurm("squeue", "-h", "-O", "Partition:|,Comment:|,TimeLimit:|").split("|")
        assert [word.strip() for word in told[:3]] == ["urgent", "mine", "1:00"]
        until(lambda: "PENDING" in slurm.slurm("squeue", "-h", "-O", "State"), 120, pause=0.3)
        number = slurm.slurm("squeue", "-h", "-o", "%A").strip()
        slurm.slurm("scontrol", "update", f"jobid={number}", "starttime=now")
        job.wait(timeout=120)
        lines = "".join(job.stream()).splitlines()
        assert lines[0] == "begins at 0" and lines[-1].startswith("done at "), lines
        saved = [line.split()[-1] for line in lines if line.startswith("saves")]
        assert saved and f"begins at {saved[-1]}" in lines, lines
        bad = JobSpec(nodes=1, task=task, mounts=[mount], logs=mount, engine_options={"colour": "blue"})
        with pytest.raises(JobFailedError, match="no option 'colour'"):
            experiment.create_job("bad", bad, cluster=cluster).wait(timeout=60)
    finally:
        session.stop_service()
