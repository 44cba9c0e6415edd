"""What jobs of the toolkits and their nodes are on four hosts under Slurm: who is told what, and who can come in."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchhvd.wire.local_service import stop
from tests.support.entered import NEEDED, Entered
from tests.support.slurm import Bed
from tests.support.waiting import until
from tests.wire.conftest import start

pytestmark = [pytest.mark.slurm, NEEDED]
SCRIPTS = Path(__file__).parents[2] / "data" / "toolkits"
MPI = """
import os, socket
from ctypes import CDLL, RTLD_GLOBAL, addressof, byref, c_char, c_int, c_void_p
mpi = CDLL("libmpi.so.40", RTLD_GLOBAL)
mpi.MPI_Init(None, None)
world, kind, operation = (
    c_void_p(addressof(c_char.in_dll(mpi, f"ompi_mpi_{name}"))) for name in ("comm_world", "int", "op_sum")
)
mine, total = c_int(int(os.environ["AZ_BATCHAI_TASK_INDEX"]) + 1), c_int()
mpi.MPI_Allreduce(byref(mine), byref(total), 1, kind, operation, world)
os.write(1, f"{total.value} on {socket.gethostname()}\\n".encode())
mpi.MPI_Finalize()
"""


@pytest.fixture(scope="module")
def entered(slurm: Bed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Entered]:
    folder = tmp_path_factory.mktemp("the toolkits ü")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{slurm.bin}:{os.environ['PATH']}")
        running = start(folder / "root", "--engine", "slurm")
        try:
            made = Entered(running, folder / "client", nodes=4)
            for script in SCRIPTS.glob("*.py"):
                shutil.copy(script, running.root / "shares" / made.account / "share")
            yield made
        finally:
            running.stop()
            stop(folder / "root")


def run(entered: Entered, name: str, block: str, nodes: int, script: str, **settings: Any) -> list[str]:
    """Runs a job of a toolkit to its good end and returns what its ranks wrote."""
    task = {"pythonScriptFilePath": f"$AZ_BATCHAI_JOB_MOUNT_ROOT/m/{script}", **settings}
    path = entered.job(name, "", nodeCount=nodes, customToolkitSettings=None, **{block: task})
    until(lambda: entered.state(path) in ("succeeded", "failed"), 300)
    assert entered.state(path) == "succeeded", entered.output(path, "stderr.txt")
    return sorted(entered.output(path).splitlines())


@pytest.mark.timeout(400)
def test_ranks_of_ddp_meet_over_hosts_by_the_variables_of_torchrun(entered: Entered) -> None:
    pytest.importorskip("torch")
    lines = run(entered, "ddp", "pyTorchSettings", 2, "ddp.py")
    assert [line.split(" sum ")[0] for line in lines] == [f"rank {rank} of 2" for rank in range(2)]
    assert len({line.split(" sum ")[1] for line in lines}) == 1


def test_tensorflow_s_workers_find_the_parameter_servers_of_other_hosts(entered: Entered) -> None:
    kinds = {f"{kind}CommandLineArgs": f"for-{kind}" for kind in ("master", "worker", "parameterServer")}
    lines = run(entered, "tf", "tensorFlowSettings", 3, "role.py", workerCount=3, parameterServerCount=2, **kinds)
    workers = [f"worker {index} 2 3 for-worker" for index in (1, 2)]
    servers = [f"ps {index} 2 3 for-parameterServer" for index in (0, 1)]
    assert lines == sorted(["chief 0 2 3 for-master", *servers, *workers])


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="needs Open MPI")
def test_ranks_of_an_mpi_toolkit_sum_over_the_hosts_of_the_allocation(entered: Entered, slurm: Bed) -> None:
    (entered.running.root / "shares" / entered.account / "share" / "sums.py").write_text(MPI)
    lines = run(entered, "mpi", "chainerSettings", 4, "sums.py", processCount=4)
    assert lines == [f"10 on {node}" for node in slurm.nodes]


@pytest.fixture(scope="module")
def job(entered: Entered) -> Iterator[str]:
    variables = [{"name": "COLOUR", "value": "blue"}]
    path = entered.job("waits", "echo begun; sleep 20000", nodeCount=2, environmentVariables=variables)
    until(lambda: entered.output(path) == "begun\n")
    yield path
    entered.running.finish(entered.running.call("DELETE", path))


def test_a_login_is_on_the_host_of_the_job_and_sees_what_its_ranks_see(entered: Entered, job: str, slurm: Bed) -> None:
    line = 'hostname; id -u; echo "$COLOUR $AZ_BATCHAI_TASK_INDEX"; ls "$AZ_BATCHAI_JOB_MOUNT_ROOT"; cat; exit 7'
    names = slurm.slurm("squeue", "-h", "--states=running", "-O", "NodeList:.50").strip()
    hosts = slurm.slurm("scontrol", "show", "hostnames", names).split()
    found = entered.run("@NODE", line, text="in\n", node=1)
    assert (found.returncode, found.stdout) == (7, f"{hosts[1]}\n{os.getuid()}\nblue 1\nm\nin\n"), found.stderr


def test_a_shell_there_has_a_terminal_and_files_are_copied(entered: Entered, job: str, tmp_path: Path) -> None:
    own, theirs = pty.openpty()
    with subprocess.Popen(entered.command("-tt", "@NODE"), stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        os.write(own, b"stty size; hostname; exit 5\n")
        assert process.wait(60) == 5
        assert re.search(rb"\r\nnode[1-4]\r\n", os.read(own, 65536))
    os.close(own)
    (tmp_path / "sent").write_bytes(os.urandom(300_000))
    for words in (("sent", "@NODE:there"), ("@NODE:there", "back")):
        given = [word if "@" in word else str(tmp_path / word) for word in words]
        assert entered.run(*given, program="scp").returncode == 0
    assert (tmp_path / "back").read_bytes() == (tmp_path / "sent").read_bytes()


def test_nobody_comes_in_without_the_key_or_without_a_job(entered: Entered, job: str) -> None:
    assert "Permission denied" in entered.run("@NODE", "hostname", user="eve").stderr
    idle = entered.run("@NODE", "hostname", node=3)
    assert idle.returncode and "only the nodes of jobs exist" in idle.stderr
