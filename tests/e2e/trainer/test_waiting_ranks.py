"""Real ranks of Horovod that keep the others waiting, or are killed: who it was is said within half a minute."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchhvd.node.rendezvous import Rendezvous
from batchhvd.trainer.install import COMMAND, installed
from batchhvd.trainer.install.installation import framework_version
from batchhvd.trainer.measure import ranks
from tests.support import prefork
from tests.support.faults import Live, live
from tests.support.waiting import until

pytestmark = pytest.mark.horovod

# Rank 1 waits before its second exchange until a file is there.
SLOW = """
import os, sys, time
sys.modules.update(dict.fromkeys(("tensorflow", "sklearn", "scipy", "pandas", "matplotlib", "IPython")))  # faster
from pathlib import Path
from batchhvd.trainer import hvd
hvd.init()
hvd.allreduce(1.0)
print("up", flush=True)
while hvd.rank() == 1 and not Path(os.environ["AZ_BATCHAI_SHARED_JOB_TEMP"], "go").exists():
    time.sleep(0.05)
hvd.allreduce(2.0)
"""


def require() -> None:
    if not installed() or not framework_version("torch"):
        pytest.skip(f"Horovod is not built for PyTorch; build it with: {COMMAND}")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Live]:
    require()
    with live(tmp_path / "wurzel ü") as world:
        yield world


def test_a_slow_rank_is_named_in_the_execution_log(world: Live) -> None:
    # Seen to fail with Horovod as it was published, which never names a rank over gloo: see install/source.py.
    script = world.root / "slow.py"
    script.write_text(SLOW)
    settings = {"KERAS_BACKEND": "torch", "HOROVOD_STALL_CHECK_TIME_SECONDS": "2"}  # 7 by default
    variables = [{"name": name, "value": value} for name, value in settings.items()]
    world.command("j", f"exec {sys.executable} '{script}'", nodes=2, environmentVariables=variables)
    until(lambda: world.tick() or "have waited for" in log(world), 60)
    assert "Z the other ranks have waited for rank 1 for more than 2 s, says Horovod" in log(world)
    (world.folder("j") / "shared" / "go").touch()
    assert world.ended("j", 60) == "succeeded", world.info("j")


def log(world: Live) -> str:
    return "".join(path.read_text(encoding="utf-8") for path in world.logs("j").glob("execution-*.log"))


KILLED = """
import os, signal
from batchhvd.trainer import hvd
hvd.init()
print("stall check", os.environ["HOROVOD_STALL_CHECK_TIME_SECONDS"], flush=True)
hvd.allreduce(1.0)
if hvd.rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
hvd.allreduce(2.0)
"""


def test_the_others_say_that_a_killed_rank_left_without_a_word() -> None:
    """Started one by one, because our own starters end the others at once."""
    require()
    with Rendezvous(ranks.LOOPBACK) as server:
        started = [start(rank, server.port) for rank in (0, 1)]
        outputs = [process.communicate(timeout=90)[0].decode() for process in started]
    assert started[1].returncode == -signal.SIGKILL
    assert "stall check 7" in outputs[0]  # named after two to four times this: within 30 s
    last = outputs[0].rstrip().splitlines()[-1]
    assert last == "batchhvd: before this, rank 1 ended without a word: it was killed, or its node is lost", outputs[0]


def start(rank: int, port: int) -> subprocess.Popen[bytes]:
    variables = {**os.environ, "KERAS_BACKEND": "torch", **ranks.environment(rank, 2, port)}
    command = prefork.python("torch", "-c", KILLED)
    return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
