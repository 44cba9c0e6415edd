"""What an editor knows: pyright, strict, on a user's script and on what the pages show; mistyped words are found."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("tutorial", "concepts", "own-model", "sweeps")
SCRIPT = """
import batchhvd
from batchhvd import Horovod, JobSpec

with batchhvd.local() as session:
    workspace = session.group("g").workspace("w")
    experiment = workspace.experiment("e")
    jobs = experiment.jobs()
    print(len(jobs), jobs[0].name, [job.state for job in jobs[:2]])
    job = session.run("train.py", nodes=4)
    for text in job.stream():
        print(text, end="")
    if job.wait("ended").state == "succeeded":
        print(job.metrics()[-1]["accuracy"], job.download("results"), job.explain().why)
    spec = JobSpec(nodes=1, task=Horovod(script="x.py"), logs="$AZ_BATCHAI_JOB_MOUNT_ROOT/s", priority="low")
    print(experiment.plan_job("x", spec, cluster=workspace.cluster("c")).problems)
"""
MISTYPED = """
import batchhvd

job = batchhvd.local().group("g").workspace("w").experiment("e").job("j")
job.wait("runing")
job.waitt()
if job.state == "finished" or job.provisioning == "creatng":
    print(job.state)
cluster = job.workspace.cluster("c")
if cluster.state == "stedy" or cluster.priority == "dedicatd":
    print(cluster.state)
sweep = job.experiment.open_sweep("s")
if [*sweep][0].state == "givenup":
    print(sweep)
"""
_BLOCK = re.compile(r"^(?:<!-- (?P<mark>\w+)[^\n]* -->\n)?```python\n(?P<body>.*?)^```$", re.M | re.S)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What pyright says of each file."""
    if find_spec("pyright") is None:
        pytest.skip("pyright is not installed")
    folder = tmp_path_factory.mktemp("editor")
    for page in PAGES:
        found = _BLOCK.finditer((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"))
        blocks = [one["body"] for one in found if one["mark"] != "sample"]  # a part of something that is not shown
        shown = [block for block in blocks if "keras" not in block and "def train" not in block]  # Keras has no types
        (folder / f"{page.replace('-', '_')}.py").write_text("\n".join(shown), encoding="utf-8")
    (folder / "script.py").write_text(SCRIPT)
    (folder / "mistyped.py").write_text(MISTYPED)
    settings: dict[str, object] = {
        "typeCheckingMode": "strict",
        "reportMissingTypeStubs": False,
        "reportUnusedExpression": False,
    }
    settings["extraPaths"] = [
        str(ROOT)
    ]  # an installation by a finder hook, which pip makes unless it is told, hides it
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=folder)
    if not done.stdout.startswith("{"):
        pytest.skip(f"pyright does not run here: {(done.stdout + done.stderr).strip()[-200:]}")
    answer: dict[str, Any] = json.loads(done.stdout)
    said: dict[str, list[str]] = {path.stem: [] for path in folder.glob("*.py")}
    for one in answer["generalDiagnostics"]:
        said[Path(one["file"]).stem].append(f"{one['range']['start']['line'] + 1}: {one['message']}")
    return said


@pytest.mark.timeout(300)
def test_a_users_script_and_the_pages_have_no_error_and_nothing_unknown(found: dict[str, list[str]]) -> None:
    assert {name: said for name, said in found.items() if said and name != "mistyped"} == {}


@pytest.mark.timeout(300)
def test_mistyped_words_are_found(found: dict[str, list[str]]) -> None:
    text = "\n".join(found["mistyped"])
    for word in ("runing", "waitt", "finished", "creatng", "stedy", "dedicatd", "givenup"):
        assert re.search(rf"\b{word}['\"]", text), f"{word} is not found in\n{text}"
