"""Each cause that ``explain()`` knows, made by a real fault in a real job: the verdicts name it.

One service and one cluster for all. Each row is what a job is, what is done to it, and what both verdicts must say:
the client's (``job.explain()``) and the status page's (``service/verdict.py``).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from attrs import define, field

import batchhvd
from batchhvd import Cluster, ClusterSpec, Experiment, FileShare, Horovod, Job, JobSpec, Session, Workspace
from batchhvd.advice.explain import Verdict
from batchhvd.service import drills
from batchhvd.wire.facts.causes import Cause
from tests.support.faults import processes
from tests.support.waiting import until

NODES = 3
FOREVER = "while True: time.sleep(0.05)"
HUNGRY = "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28)); x = bytearray(1 << 30)"
# What Horovod that was built for another framework says when it is imported.
BROKEN = "raise ImportError('undefined symbol: _ZN10tensorflow8OpKernel')"


@define
class Place:
    """The real service in a process of its own, its client, and all that a job needs."""

    root: Path
    process: subprocess.Popen[bytes] = field(init=False)
    session: Session = field(init=False)
    workspace: Workspace = field(init=False)
    experiment: Experiment = field(init=False)
    cluster: Cluster = field(init=False)
    share: FileShare = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.start()
        self.session = batchhvd.local(self.root)
        self.workspace = self.session.create_group("g").create_workspace("w")
        self.experiment = self.workspace.create_experiment("e")
        self.share = self.session.group("g").create_storage_account("konto").create_share("ablage")
        self.share.create_directory("logs")
        self.cluster = self.more_nodes("c", NODES)

    def start(self) -> None:
        """Starts the service and waits until it answers."""
        with (self.root / "out.txt").open("ab") as out:
            command = [sys.executable, "-m", "batchhvd.service", "--root", str(self.root), "--prepare", "host"]
            self.process = subprocess.Popen(command, stdout=out, stderr=out)
        until(lambda: (self.root / "endpoint").exists())

    def kill(self) -> None:
        """Kills the service, as the kernel would."""
        self.process.kill()
        self.process.wait()
        (self.root / "endpoint").unlink()

    def more_nodes(self, name: str, nodes: int, priority: Literal["dedicated", "lowpriority"] = "dedicated") -> Cluster:
        """Makes a cluster and waits for its nodes."""
        spec = ClusterSpec(vm_size="Standard_NC6", nodes=nodes, priority=priority)
        return self.workspace.create_cluster(name, spec).wait(timeout=30)

    def submit(self, what: str, cluster: Cluster | None = None, **more: Any) -> Job:
        """Submits a job whose ranks run some Python, one a node."""
        name = f"j{os.urandom(4).hex()}"
        mount = self.share.mount("ablage")
        script = self.root / "shares/konto/ablage" / f"{name}.py"
        script.write_text(f"import os, sys, time\nrank = int(os.environ['HOROVOD_RANK'])\n{what}\n", encoding="utf-8")
        spec = {"nodes": 1, "task": Horovod(mount / f"{name}.py"), "mounts": [mount], "logs": mount / "logs", **more}
        return self.experiment.create_job(name, JobSpec(**spec), cluster=cluster or self.cluster)

    def running(self, what: str, **more: Any) -> tuple[Job, Path]:
        """Submits a job, waits until its ranks have all said that they are up, and returns it with its folder."""
        job = self.submit(f"print('up', flush=True)\n{what}", **more)
        spec = job.spec
        assert spec is not None
        until(lambda: _said(job).count("up\n") == spec.ranks)
        return job, drills.find(self.root, job.id)

    def told(self, job: Job) -> dict[str, Any]:
        """Returns the verdict that the status page shows of a job."""
        ask = urllib.request.Request(f"{self.session.endpoint}/status.json")
        ask.add_header("Authorization", f"Bearer {(self.root / 'token').read_text().strip()}")
        with urllib.request.urlopen(ask) as answer:
            jobs = json.load(answer)["jobs"]
        found: dict[str, Any] = next(entry["verdict"] for entry in jobs if entry["name"] == job.name)
        return found


def _said(job: Job) -> str:
    return b"".join(file.read() for file in job.files() if file.name == "stdout.txt").decode()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    root = tmp_path_factory.mktemp("wurzel ü")
    made = Place(root)
    try:
        yield made
        until(lambda: not processes(root), 10)
    finally:
        made.process.kill()
        made.process.wait()
        for pid in processes(root):
            os.kill(pid, signal.SIGKILL)


# -- faults: each makes a job, does something to it, and returns it ---------------------------------------------------


def crash(what: str, **more: Any) -> Callable[[Place], Job]:
    """Rank 1 of two does something that ends it; rank 0 would go on for ever."""
    return lambda place: place.submit(f"if rank == 1:\n    {what}\n{FOREVER}", nodes=2, **more)


def killed(place: Place) -> Job:
    job, folder = place.running(FOREVER, nodes=2)
    drills.kill_rank(folder, 1, signal.SIGSEGV)
    return job


def killed_by_the_kernel(place: Place) -> Job:
    group = Path("/sys/fs/cgroup/memory") / f"batchhvd-matrix-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(64 << 20))
    except OSError as error:
        pytest.skip(f"needs a memory cgroup of version 1 that may be written: {error}")
    hungry = f"open('{group}/cgroup.procs', 'w').write(str(os.getpid())); x = b'x' * 10**9"
    job = crash(hungry)(place).wait("ended", timeout=30)
    until(lambda: not (group / "cgroup.procs").read_text())
    group.rmdir()
    return job


def too_long(place: Place) -> Job:
    return place.submit(FOREVER, max_seconds=1)


def terminated(place: Place) -> Job:
    job, _ = place.running(FOREVER)
    return job.terminate()


def without_its_share(place: Place) -> Job:
    """The share goes while the job waits for its node."""
    blocker, folder = place.running(FOREVER, nodes=NODES)
    gone = place.share.account.create_share("gone")
    job = place.submit("", mounts=[place.share.mount("ablage"), gone.mount("other")])
    gone.delete()
    drills.kill_rank(folder, 0)
    blocker.wait("ended", timeout=30)
    return job


def without_its_script(place: Place) -> Job:
    return place.submit("", task=Horovod(place.share.mount("ablage") / "no/such.py"))


def badly_prepared(place: Place) -> Job:
    return place.submit("", preparation="echo cannot find it >&2; exit 7")


def evicted(place: Place) -> Job:
    low = place.more_nodes("low", 2, priority="lowpriority")
    job, folder = place.running(FOREVER, nodes=2, cluster=low, environment={"BATCHHVD_RETRIES": "0"})
    drills.evict(folder, 1)
    return job


def lost_with_the_service(place: Place) -> Job:
    """The machine of service and nodes is switched off and on."""
    job, folder = place.running(FOREVER)
    place.kill()
    drills.evict(folder, 0)
    place.start()
    return job


def without_horovod(place: Place) -> Job:
    return crash("sys.path[:] = [part for part in sys.path if 'packages' not in part]; import horovod.torch")(place)


def trained(place: Place, *lines: str) -> Job:
    """A rank asks the trainer's binding for Horovod; that Keras uses PyTorch is said by something that loads faster."""
    (place.root / "packages").mkdir(exist_ok=True)
    (place.root / "packages" / "keras.py").write_text("class config:\n    backend = lambda: 'torch'\n")
    found = f"sys.path.insert(0, {str(place.root / 'packages')!r})"
    return crash("; ".join([found, *lines, "from batchhvd.trainer.hvd import world", "world.init()"]))(place)


def the_trainer_without_horovod(place: Place) -> Job:
    """On PyTorch too, ranks that insist on Horovod do not do without."""
    return trained(place, "import os; os.environ['BATCHHVD_EXCHANGE'] = 'horovod'; sys.modules['horovod'] = None")


def with_another_horovod(place: Place) -> Job:
    """Horovod is there, and was built for another framework."""
    package = place.root / "packages" / "horovod"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "torch.py").write_text(BROKEN)
    return trained(place)


def queued_behind(place: Place) -> Job:
    place.running(FOREVER, nodes=NODES - 1)
    return place.submit("", nodes=NODES - 1)


def queued_on_a_small_cluster(place: Place) -> Job:
    """The cluster shrinks while the job waits."""
    small = place.more_nodes("small", 2)
    place.running(FOREVER, nodes=1, cluster=small)
    job = place.submit("", nodes=2, cluster=small)
    small.resize(1)
    return job


def set_up(place: Place, name: str, command: str) -> Cluster:
    """Makes a cluster of two nodes with a setup task."""
    task = {"commandLine": command, "stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/ablage"}
    setup = {"setupTask": task, "mountVolumes": {"azureFileShares": [place.share.mount("ablage").to_document()]}}
    spec = ClusterSpec(vm_size="Standard_NC6", nodes=2, extra={"nodeSetup": setup})
    return place.workspace.create_cluster(name, spec)


def queued_on_unusable_nodes(place: Place) -> Job:
    cluster = set_up(place, "unusable", "echo no such package; exit 3")
    job = place.submit("", cluster=cluster)
    until(lambda: cluster.refresh().nodes.unusable == 2)
    return job


def queued_while_nodes_come(place: Place) -> Job:
    return place.submit("", cluster=set_up(place, "coming", "sleep 60"))


def with_a_full_share(place: Place) -> Job:
    job, folder = place.running("while True: print('more' * 99, flush=True); time.sleep(0.01)")
    drills.fill(folder, 4096)
    return job


def without_its_cluster(place: Place) -> Job:
    going = place.more_nodes("going", 1)
    job, _ = place.running(FOREVER, cluster=going)
    going.delete(timeout=30)
    return job


# -- the matrix -------------------------------------------------------------------------------------------------------

WAITING = {
    "not enough idle nodes": (queued_behind, Cause.WAITING_FOR_NODES, "waiting", "has 1 idle"),
    "unusable nodes": (queued_on_unusable_nodes, Cause.CLUSTER_UNUSABLE, "waiting", "no such package"),
    "nodes to come": (queued_while_nodes_come, Cause.WAITING_FOR_RESIZE, "waiting", "still resizing"),
    "a smaller cluster": (queued_on_a_small_cluster, Cause.CLUSTER_TOO_SMALL, "waiting", "set to 1 at most"),
}
ENDED = {
    "mount": (without_its_share, Cause.MOUNT_FAILED, "mount failed", "no share gone any more"),
    "script": (without_its_script, Cause.SCRIPT_MISSING, "script missing", "no/such.py"),
    "preparation": (badly_prepared, Cause.PREPARATION_FAILED, "preparation failed", "cannot find it"),
    "exit code": (crash("sys.exit(3)"), Cause.RANK_FAILED, "rank failed", "exit code 3"),
    "traceback": (crash("raise ValueError('no ä')"), Cause.RANK_FAILED, "rank failed", "ValueError: no ä"),
    "signal": (killed, Cause.RANK_FAILED, "rank failed", "signal SIGSEGV"),
    "MemoryError": (crash(HUNGRY), Cause.OUT_OF_MEMORY, "out of memory", "MemoryError"),
    "the kernel": (killed_by_the_kernel, Cause.OUT_OF_MEMORY, "out of memory", "signal SIGKILL"),
    "time": (too_long, Cause.WALL_CLOCK, "wall-clock limit", "1 s"),
    "terminated": (terminated, Cause.TERMINATED, "terminated", "by the user"),
    "its cluster": (without_its_cluster, Cause.TERMINATED, "terminated", "cluster was deleted"),
    "a full share": (with_a_full_share, Cause.ENGINE_FAILED, "engine failed", "File too large"),
    "eviction": (evicted, Cause.NODE_LOST, "node lost", "tvm-"),
    "no Horovod": (without_horovod, Cause.HOROVOD_MISSING, "Horovod missing", "No module named 'horovod'"),
    "none for us": (the_trainer_without_horovod, Cause.HOROVOD_MISSING, "Horovod missing", "HorovodMissingError: "),
    "Horovod": (with_another_horovod, Cause.HOROVOD_BROKEN, "Horovod broken", "undefined symbol: _ZN10tensorflow"),
    "restart": (
        lost_with_the_service,
        Cause.SERVICE_RESTARTED,
        "service restarted",
        "found that the job's ranks were gone",
    ),
}
Row = tuple[Callable[[Place], Job], Cause, str, str]


@pytest.mark.parametrize("row", ENDED.values(), ids=ENDED)
def test_why_it_failed(place: Place, row: Row) -> None:
    fault, cause, short, words = row
    job = fault(place).wait("ended", timeout=40)
    assert job.state == "failed"
    check(job.explain(), place.told(job), cause, short, words)
    until(lambda: not processes(place.root), 10)


@pytest.mark.parametrize("row", WAITING.values(), ids=WAITING)
def test_why_it_waits(place: Place, row: Row) -> None:
    fault, cause, short, words = row
    job = fault(place)
    until(lambda: place.told(job)["cause"] != "queued")
    check(job.explain(), place.told(job), cause, short, words)
    for one in [*place.experiment.jobs(), *place.workspace.clusters()]:
        if one != place.cluster:
            one.delete(timeout=30)


def test_a_cluster_that_gets_fewer_nodes_than_it_asks_for(place: Place) -> None:
    """The engine has a hundred nodes in all, and the cluster asks for more."""
    large = place.workspace.create_cluster("large", ClusterSpec(vm_size="Standard_NC6", nodes=102))
    job = place.submit("", nodes=101, cluster=large)
    until(lambda: large.refresh().state == "steady")
    verdict = large.explain()
    assert verdict.cause is Cause.CLUSTER_TOO_SMALL
    assert verdict.next.startswith("cluster.resize(100)")
    found = job.explain()
    assert found.cause is Cause.CLUSTER_TOO_SMALL, found
    assert "did not get all its nodes" in found.why and "needs 101 nodes" in found.why
    job.delete(timeout=30)
    large.delete(timeout=30)


def check(verdict: Verdict, told: dict[str, Any], cause: Cause, short: str, words: str) -> None:
    assert (verdict.cause, told["cause"]) == (cause, short), (verdict, told)
    assert words in str(verdict), verdict
    assert verdict.why and verdict.next and told["why"]
    if short != "waiting":
        assert told["next"]
