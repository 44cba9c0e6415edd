"""Building, keeping and proving Horovod, the starter of ranks, and checkpoints under the worst of conditions."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from batchhvd.errors import EngineError, HorovodBrokenError
from batchhvd.node.rendezvous import Rendezvous
from batchhvd.trainer.checkpoint import Checkpoints
from batchhvd.trainer.install import COMMAND, installed
from batchhvd.trainer.install.installation import cache, framework_version
from batchhvd.trainer.install.source import EDITS, VERSION, change, unpack
from batchhvd.trainer.measure import ranks
from tests.support.waiting import until

INSTALL = ranks.python("-m", "batchhvd.trainer.install")


def command(arguments: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, env={**os.environ, **variables}, capture_output=True, text=True, timeout=120)


def needs_horovod() -> None:
    if not installed():
        pytest.skip(f"Horovod is not built; build it with: {COMMAND}")


@pytest.mark.horovod
def test_a_second_run_has_nothing_to_do() -> None:
    needs_horovod()
    started = time.monotonic()
    done = command(INSTALL)
    assert (done.returncode, "nothing to do" in done.stdout) == (0, True), done.stdout + done.stderr
    assert time.monotonic() - started < 20


@pytest.mark.horovod
def test_the_wheel_is_kept_and_small() -> None:
    needs_horovod()
    kept = [path for path in cache().glob("*/*.whl") if installed() in path.name]
    assert len(kept) == 1
    assert kept[0].stat().st_size < 10e6  # unstripped, or with an NCCL of its own, it is ten times as large


def test_a_missing_compiler_is_named_with_the_command(tmp_path: Path) -> None:
    """As another user than root nothing is installed; the message says what to install."""
    tools = tmp_path / "leerer pfad ä"
    tools.mkdir()
    code = (
        "import os; os.geteuid = lambda: 1000\n"
        "from batchhvd.trainer.install.__main__ import main; raise SystemExit(main(['--no-nccl']))"
    )
    done = command([sys.executable, "-c", code], PATH=str(tools), XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert done.returncode == 1
    if "is not installed in" in done.stderr:
        pytest.skip("no framework is installed")
    assert "a C++ compiler" in done.stderr
    assert re.search(r"sudo sh -c 'apt-get update && apt-get install -y .*g\+\+.* cmake", done.stderr)


def test_an_unknown_backend_is_refused() -> None:
    done = command([*INSTALL, "--backend", "nosuchframework"])
    assert done.returncode == 1
    assert "pip install nosuchframework" in done.stderr + done.stdout or "nosuchframework" in done.stderr


def test_another_source_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / f"horovod-{VERSION}.tar.gz"
    archive.write_bytes(b"not it")
    with pytest.raises(HorovodBrokenError, match="SHA-256"):
        unpack(archive, tmp_path)


def test_an_unexpected_text_is_refused(tmp_path: Path) -> None:
    for edit in EDITS:
        file = tmp_path / edit.file
        file.parent.mkdir(parents=True, exist_ok=True)
        for text, count in (("", 0), (edit.old * 2, 2)):
            file.write_text(text)
            with pytest.raises(HorovodBrokenError, match=f"{count} times"):
                change(tmp_path, edit)
        file.write_text(f"before {edit.old} after")
        change(tmp_path, edit)
        assert file.read_text() == f"before {edit.new} after"


def test_two_builds_wait_for_one_another(tmp_path: Path) -> None:
    """The second one says that it waits, and goes on when the first is gone."""
    import fcntl

    folder = tmp_path / "batchhvd" / "horovod"
    folder.mkdir(parents=True)
    code = (
        "from batchhvd.trainer.install.installation import cache\n"
        "from batchhvd.trainer.install.installer import StepLog, lock\n"
        "with lock(cache() / 'lock', StepLog()): print('mine', flush=True)"
    )
    with (folder / "lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        waiting = subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert waiting.stdout and "waiting" in waiting.stdout.readline()
    assert waiting.communicate(timeout=60)[0] == "mine\n"


# --- the starter of ranks -------------------------------------------------------------------------------------------


def test_one_failing_rank_ends_the_others() -> None:
    code = "import os, time; raise SystemExit(3) if os.environ['HOROVOD_RANK'] == '1' else time.sleep(60)"
    started = time.monotonic()
    outcomes = ranks.run([sys.executable, "-c", code], 3, timeout=60)
    assert [outcome.exit_code for outcome in outcomes] == [143, 3, 143]
    assert time.monotonic() - started < 30


@pytest.mark.parametrize(("size", "expected"), [(1, "None 5"), (2, "1 5")])
def test_ranks_keep_what_the_user_tunes_and_get_a_place_of_their_own(
    monkeypatch: pytest.MonkeyPatch, size: int, expected: str
) -> None:
    monkeypatch.setenv("HOROVOD_CYCLE_TIME", "5")
    monkeypatch.setenv("HOROVOD_RANK", "7")
    code = "import os; print(os.environ.get('HOROVOD_RANK'), os.environ['HOROVOD_CYCLE_TIME'])"
    assert ranks.run([sys.executable, "-c", code], size)[-1].output.strip() == expected


def test_ranks_end_with_the_one_who_started_them(tmp_path: Path) -> None:
    """With the handler of SIGTERM taken out, both ranks slept on."""
    rank = f"import os, time; open({str(tmp_path)!r} + f'/{{os.getpid()}}', 'w').close(); time.sleep(60)"
    code = f"import sys; from batchhvd.trainer.measure import ranks; ranks.run([sys.executable, '-c', {rank!r}], 2)"
    with subprocess.Popen([sys.executable, "-c", code]) as starter:
        until(lambda: len(list(tmp_path.iterdir())) == 2)
        starter.terminate()
        assert starter.wait(20) == 128 + signal.SIGTERM
    assert not [path.name for path in tmp_path.iterdir() if Path("/proc", path.name).exists()]


def test_ranks_that_take_too_long_are_ended_with_their_last_words() -> None:
    code = "import time; print('my last words', flush=True); time.sleep(60)"
    with pytest.raises(EngineError, match="my last words"):
        ranks.run([sys.executable, "-c", code], 2, timeout=3)


def test_the_rendezvous_keeps_a_scope_until_all_have_left() -> None:
    from http.client import HTTPConnection

    def ask(method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        connection = HTTPConnection("127.0.0.1", server.port, timeout=10)
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()

    with Rendezvous(ranks.LOOPBACK) as server:
        assert ask("GET", "/global/0") == (404, b"")
        for key in ("0", "1"):
            assert ask("PUT", f"/global/{key}", b"\x00address") == (200, b"")
        assert ask("DELETE", "/global/0") == (200, b"")
        assert ask("GET", "/global/0") == (200, b"\x00address")
        assert ask("DELETE", "/global/1") == (200, b"")
        assert ask("GET", "/global/1") == (404, b"")


MISSING = """
import sys
import importlib.util as util
real = util.find_spec
util.find_spec = lambda name, *rest: None if name.startswith("horovod") else real(name, *rest)
from batchhvd.errors import HorovodMissingError
from batchhvd.trainer.hvd import world
world.find_spec = util.find_spec
world.keras_backend = lambda: sys.argv[1]
try:
    world.init()
except HorovodMissingError as error:
    print(type(error).__name__, error)
"""


def test_several_ranks_without_horovod_are_told_the_command() -> None:
    done = command([sys.executable, "-c", MISSING, "torch"], HOROVOD_SIZE="2")
    assert done.stdout.startswith("HorovodMissingError 2 ranks were started"), done.stderr
    assert "-m batchhvd.trainer.install" in done.stdout
    done = command([sys.executable, "-c", MISSING, "jax"], HOROVOD_SIZE="2")
    assert done.stdout.startswith("HorovodBrokenError Horovod cannot train on the Keras backend jax"), done.stderr


BROKEN = """
import sys
from batchhvd.errors import HorovodBrokenError
import batchhvd.trainer.hvd.world as world
world.keras_backend = lambda: sys.argv[1]
try:
    world.init()
except HorovodBrokenError as error:
    print(error)
"""


@pytest.mark.horovod
def test_a_horovod_without_this_backend_is_named_as_broken(tmp_path: Path) -> None:
    """A copy of the installed package that has lost its library for PyTorch."""
    needs_horovod()
    where = find_spec("horovod")
    assert where and where.submodule_search_locations
    source = Path(where.submodule_search_locations[0])
    shutil.copytree(source, tmp_path / "horovod", ignore=shutil.ignore_patterns("mpi_lib*", "__pycache__", "spark"))
    done = command([sys.executable, "-c", BROKEN, "torch"], HOROVOD_SIZE="2", PYTHONPATH=str(tmp_path))
    assert "does not work with the Keras backend torch" in done.stdout, done.stdout + done.stderr
    assert "-m batchhvd.trainer.install" in done.stdout


@pytest.mark.horovod
def test_a_horovod_without_mpi_says_so_under_mpi() -> None:
    needs_horovod()
    backend = next((name for name in ("torch", "tensorflow") if framework_version(name)), "")
    done = command([sys.executable, "-c", BROKEN, backend], OMPI_COMM_WORLD_SIZE="2")
    if not done.stdout and not done.stderr:
        pytest.skip("this Horovod is built for MPI")
    assert "the launcher started 2 ranks, but Horovod sees 1" in done.stdout, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("--mpi")


# --- checkpoints -----------------------------------------------------------------------------------------------------

WRITER = """
import sys
import numpy as np
from batchhvd.trainer.checkpoint import Checkpoints, Snapshot
kept = Checkpoints(sys.argv[1], keep=3)
first = kept.latest()
epoch = first.epoch if first else 0
print("go", flush=True)
while True:
    epoch += 1
    weights = [np.full((300, 300), epoch, "float32"), np.arange(epoch % 7)]
    kept.write(Snapshot(epoch, 10 * epoch, 1, weights, [np.int64(epoch)], [{"python": "[]"}]))
"""


def test_a_checkpoint_is_loadable_however_often_writing_is_killed(tmp_path: Path) -> None:
    """Twenty times. Seen to fail when the file is written in its place instead of being renamed into it."""
    folder = tmp_path / "kontroll punkte ä"
    seen = 0
    pause = random.Random(5)
    for _ in range(20):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE)
        assert writer.stdout and writer.stdout.readline() == b"go\n"
        time.sleep(pause.uniform(0.0, 0.05))  # the moment of death is what is varied
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        snapshot = Checkpoints(folder).latest()
        epoch = snapshot.epoch if snapshot else 0
        assert epoch >= seen
        seen = epoch
        if snapshot:
            assert (snapshot.weights[0] == epoch).all()
            assert (snapshot.step, int(snapshot.optimizer[0])) == (10 * epoch, epoch)
        assert len(Checkpoints(folder).paths()) <= 4  # one more than are kept, where it died before removing
    assert seen > 0


def test_a_spoilt_checkpoint_is_passed_over(tmp_path: Path) -> None:
    writer = WRITER.replace("while True:", "for _ in range(5):")
    subprocess.run([sys.executable, "-c", writer, str(tmp_path)], check=True, stdout=subprocess.DEVNULL)
    paths = Checkpoints(tmp_path).paths()
    assert [path.name for path in paths] == [f"checkpoint-{epoch:05d}.npz" for epoch in (3, 4, 5)]
    shutil.copyfile(paths[-1], tmp_path / "whole")
    paths[-1].write_bytes((tmp_path / "whole").read_bytes()[:-200])
    with pytest.warns(UserWarning, match="taking the previous checkpoint"):
        snapshot = Checkpoints(tmp_path).latest()
    assert snapshot is not None and snapshot.epoch == 4
    assert isinstance(snapshot.weights[0], np.ndarray)
