"""A stranger's first hour, from the wheel in a fresh environment, with the commands of the pages: ``make first-hour``.

Builds the wheel, installs it, writes a project, runs it on four ranks, changes it and runs it again, runs a function as
a job, uses the pytest plugin, and uninstalls; each step must do what its page says, and its seconds are written to
``benchmarks/results/first_hour.json``. Nothing of the checkout is in reach of the steps.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs"
RESULTS = HERE / "results" / "first_hour.json"
WHEEL = "install the wheel"
HELLO = 'print("hello", flush=True)\n'
WARM = """
import sys, time
import batchhvd

session = batchhvd.local()
session.run("hello.py").wait()
for _ in range(5):
    begun, computed = time.perf_counter(), time.process_time()
    job = session.run("hello.py")
    assert "hello" in next(iter(job.stream()))
    print("took", time.perf_counter() - begun, time.process_time() - computed)
    job.wait()
"""


class Hour:
    """A folder with an environment of its own, and what each step took.

    Attributes:
        work: the folder.
        steps: the steps with their seconds, in order.
        failed: what was not as the pages say.
    """

    def __init__(self, work: Path) -> None:
        self.work, self.home = work, work / "home"
        self.steps: dict[str, float] = {}
        self.failed: list[str] = []
        self.home.mkdir()
        kept = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CONFIG_FILE", "SSL_CERT_FILE", "LANG", "PIP_CERT")
        self.variables = {name: os.environ[name] for name in kept if name in os.environ}
        self.variables |= {"HOME": str(self.home), "PATH": f"{work}/env/bin:/usr/local/bin:/usr/bin:/bin"}
        cache, built = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"), Path("batchhvd", "horovod")
        self.variables["PIP_CACHE_DIR"] = str(cache / "pip")
        if (cache / built).is_dir():  # Horovod is built once for a machine and its frameworks
            shutil.copytree(cache / built, self.home / ".cache" / built)

    def step(self, name: str, *commands: str, folder: str = "", check: Callable[[str], bool] = bool) -> str:
        """Runs shell commands as one step, and returns what they printed."""
        begun, said = time.perf_counter(), ""
        for command in commands:
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=self.work / folder,
                env=self.variables,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            said += done.stdout
            if done.returncode:
                self.failed.append(f"{name}: `{command}` ended with {done.returncode}:\n{done.stdout[-2000:]}")
        self.steps[name] = round(time.perf_counter() - begun, 2)
        if not check(said):
            self.failed.append(f"{name}: it printed\n{said[-2000:]}")
        print(f"{self.steps[name]:8.2f} s  {name}", flush=True)
        return said

    def first_line(self, command: str, folder: str) -> float:
        """Returns the seconds from the start of a command to the line ``hello`` that it passes on."""
        begun = time.perf_counter()
        with subprocess.Popen(
            ["bash", "-c", command],
            cwd=self.work / folder,
            env=self.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if b"hello" in line:
                    break
            taken = time.perf_counter() - begun
            process.stdout.read()
        return taken


def shown(page: str, before: str = "") -> str:
    """Returns the first Python block of a page that follows a text."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    return text[text.index(before) :].split("```python\n", 1)[1].split("```", 1)[0]


def always(_said: str) -> bool:
    """Accepts any output."""
    return True


def trains(one: Hour) -> None:
    """Runs the project on four ranks, changes it and runs it again."""
    run = "batchhvd run train.py --nodes 4"
    one.step("run on four ranks", run, folder="digits", check=lambda said: "accuracy on 4 rank(s)" in said)
    script = one.work / "digits" / "train.py"
    script.write_text(script.read_text().replace("accuracy on", "changed: accuracy on"))
    one.step("change the script, run again", run, folder="digits", check=lambda said: "changed: accuracy on 4" in said)
    models = sorted((one.work / "digits").glob("batchhvd-results/*/model.keras"))
    if [model.parent.name for model in models] != ["train-0001", "train-0002"]:
        one.failed.append(f"the results are {models}")


def hour(work: Path, wheel: Path, *, training: bool) -> dict[str, Any]:
    """Does all steps in a folder, and returns the results."""
    one, extras = Hour(work), "service,trainer" if training else "service"
    wheel = Path(shutil.copy(wheel, work))
    one.step("environment", f"{sys.executable} -m venv env", check=always)
    one.step(WHEEL, f"pip install -q '{wheel.name}[{extras}]' pytest", check=always)
    if training:
        one.step("Horovod (built, or a wheel from the cache)", "python -m batchhvd.trainer.install")
        one.step("doctor --quick", "batchhvd doctor --quick")
    one.step("init", "batchhvd init digits", check=lambda said: "train.py" in said)
    if training:
        trains(one)
    (work / "hello").mkdir()
    (work / "hello" / "hello.py").write_text(HELLO)
    (work / "hello" / "warm.py").write_text(WARM)
    lines = [one.first_line("batchhvd run hello.py", "hello") for _ in range(6)][1:]
    warm = one.step("the same from a running program, six times", "python warm.py", folder="hello")
    own = [list(map(float, line.split()[1:])) for line in warm.splitlines() if line.startswith("took ")]
    (work / "function.py").write_text(shown("functions"))
    one.step("a function as a job on two ranks", "python function.py", check=always)
    (work / "tests").mkdir()
    (work / "tests" / "test_uploads.py").write_text(shown("testing", "<!-- file: test_uploads.py -->"))
    one.step("pytest plugin", "python -m pytest -q tests", check=lambda said: "5 passed" in said)
    horovod = " horovod" if training else ""
    uninstall = (
        "batchhvd serve --stop",
        f"pip uninstall -q -y batchhvd{horovod}",
        "rm -rf ~/.local/state/batchhvd ~/.cache/batchhvd",
    )
    one.step("uninstall", *uninstall, check=always)
    one.failed += left(one)
    median = [statistics.median(column) for column in zip(*own, strict=True)] or [None, None]
    figures = {"first_line_seconds": statistics.median(lines), "own_seconds": median[0], "own_cpu_seconds": median[1]}
    return {"steps": one.steps, **figures, "failed": one.failed}


def left(one: Hour) -> list[str]:
    """Returns what is left on the machine after uninstalling."""
    files = [path for path in one.home.rglob("*") if path.is_file() and "batchhvd" in str(path.relative_to(one.home))]
    package = (one.work / "env").glob("lib/python*/site-packages/*batchhvd*")
    within = [path for top in package for path in (top.rglob("*") if top.is_dir() else [top]) if path.is_file()]
    files += [path for path in within if "-pytest-" not in path.name]  # what pytest has compiled of a plugin is its own
    found = [f"left: {path}" for path in files]
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(one.work) in command and entry.parent.name != str(os.getpid()):
            found.append(f"still running: {command}")
    return found


def main() -> int:
    """Builds the wheel, does the hour and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel", type=Path, help="a wheel (default: build one)")
    parser.add_argument(
        "--no-training", action="store_true", help="leave out the trainer, and keep its steps of the last results"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="batchhvd first hour ") as folder:
        wheel = options.wheel
        if wheel is None:
            build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", f"{folder}/dist", str(HERE.parent)]
            subprocess.run(build, check=True)
            (wheel,) = Path(folder, "dist").glob("*.whl")
        work = Path(folder, "work")
        work.mkdir()
        found = hour(work, wheel, training=not options.no_training)
    for text in found["failed"]:
        print(f"NOT AS THE PAGES SAY: {text}", file=sys.stderr)
    print(f"{found['first_line_seconds']:8.2f} s  `batchhvd run hello.py` to its first line, warm service")
    print(f"{found['own_seconds'] or 0:8.2f} s  the same in a running program")
    if options.no_training and RESULTS.exists():
        before = json.loads(RESULTS.read_text(encoding="utf-8"))["steps"]
        found["steps"] = {
            **found["steps"],
            **before,
            **{name: found["steps"][name] for name in found["steps"] if name != WHEEL},
        }
    RESULTS.write_text(json.dumps(found, indent=2) + "\n")
    return 1 if found["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
