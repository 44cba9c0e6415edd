"""A process of tests/support/prefork.py is in all that tests look at what a started interpreter is."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from batchhvd.trainer.install.installation import framework_version
from batchhvd.trainer.measure import ranks
from tests.support import prefork
from tests.support.waiting import until

BACKEND = "torch" if framework_version("torch") else "tensorflow"
pytestmark = pytest.mark.skipif(not framework_version(BACKEND), reason="no framework is installed")
SURROUNDINGS = """
import os, sys, tempfile
print(sys.argv[1:], os.getcwd(), os.environ["WORD"], sorted(set(os.environ) & {"HOME", "WORD"}), __name__)
print(tempfile.gettempdir(), sys.path[1], sys.stdin.read())
print("to stderr", file=sys.stderr)
"""


@pytest.mark.parametrize("form", ["-c", "script"])
def test_words_surroundings_and_streams_are_its_own(tmp_path: Path, form: str) -> None:
    folder, script = tmp_path / "ordner ä", tmp_path / "skript ü.py"
    folder.mkdir()
    script.write_text(SURROUNDINGS, encoding="utf-8")
    first = ["-c", SURROUNDINGS] if form == "-c" else [str(script)]
    surroundings = {"WORD": "ö \udc80", "TMPDIR": str(folder), "PYTHONPATH": str(tmp_path)}
    made = [
        subprocess.run([*command, "a b", "-x"], env=surroundings, cwd=folder, input=b"in", capture_output=True)
        for command in (prefork.python(BACKEND, *first), ranks.python(*first))
    ]
    assert made[0].stdout == made[1].stdout != b""
    assert made[0].stderr == made[1].stderr == b"to stderr\n"
    assert made[0].returncode == made[1].returncode == 0


@pytest.mark.parametrize(
    ("code", "end"),
    [
        ("import sys; sys.exit(3)", 3),
        ("raise SystemExit('why')", 1),
        ("1 / 0", 1),
        ("import os; os._exit(9)", 9),
        ("import os; os.kill(os.getpid(), 9)", -9),
        ("import os; os.kill(os.getpid(), 15)", -15),
    ],
)
def test_it_ends_as_its_code_does(code: str, end: int) -> None:
    done = subprocess.run(prefork.python(BACKEND, "-c", code), capture_output=True, text=True)
    assert done.returncode == end, done.stderr
    assert done.stderr.rstrip().rpartition("\n")[2] == {"1 / 0": "ZeroDivisionError: division by zero"}.get(
        code, "why" if "why" in code else ""
    )


def test_what_is_to_be_done_at_the_end_is_done() -> None:
    code = "import atexit, threading, time; atexit.register(print, 'last')\n"
    code += "threading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start(); print('first')"
    done = subprocess.run(prefork.python(BACKEND, "-c", code), capture_output=True, text=True)
    assert done.stdout.split() == ["first", "thread", "last"]


def test_two_of_them_draw_different_numbers() -> None:
    code = "import random, numpy as np; print(random.random(), np.random.rand())"
    drawn = [subprocess.run(prefork.python(BACKEND, "-c", code), capture_output=True).stdout.split() for _ in "ab"]
    assert len({*drawn[0], *drawn[1]}) == 4


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_ends_it_with_all_that_it_has_started(number: int) -> None:
    code = "import os, sys, time; child = os.fork(); sys.stdout.write(f'{os.getpid()}\\n'); sys.stdout.flush()\n"
    code += "time.sleep(60)"
    command = prefork.python(BACKEND, "-c", code)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True) as made:
        assert made.stdout
        pids = [int(made.stdout.readline()) for _ in "ab"]
        os.killpg(made.pid, number)
        assert made.wait(20) == -number
    until(lambda: not any(Path("/proc", str(pid)).exists() for pid in pids))
