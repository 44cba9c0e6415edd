"""One command, one call: from a script to its result, run after run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import batchhvd
from batchhvd import SpecError
from batchhvd.cli import main as cli
from batchhvd.cli import script as run_verb
from batchhvd.transfer import code
from batchhvd.transfer.code import read_folder

SCRIPT = """
import os, pathlib, sys
import helper
rank = os.environ["HOROVOD_RANK"]
print(rank, os.environ["HOROVOD_SIZE"], sys.argv[1:], helper.VERSION, flush=True)
if rank == "0":
    folder = pathlib.Path(os.environ["AZ_BATCHAI_OUTPUT_RESULT"], "deep er")
    folder.mkdir()
    (folder / "model.txt").write_text(helper.VERSION)
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, service: Any) -> Iterator[Path]:
    folder = tmp_path / "my project"
    (folder / "data").mkdir(parents=True)
    (folder / "train it.py").write_text(SCRIPT)
    (folder / "helper.py").write_text("VERSION = 'v1'")
    (folder / "data" / "large.bin").write_text("not code")
    (folder / "notes.log").write_text("not code")
    (folder / ".gitignore").write_text("data/\n")
    (folder / ".batchhvdignore").write_text("*.log\n")
    (folder / "batchhvd-results").mkdir()
    (folder / "batchhvd-results" / "old.txt").write_text("not code")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("BATCHHVD_ROOT", str(service.root))
    yield folder
    batchhvd.local(service.root).group("batchhvd").delete()


@pytest.fixture
def line(project: Path, capfd: pytest.CaptureFixture[str]) -> Any:
    def run(*words: str, code: int = 0) -> tuple[str, str]:
        assert cli.run(["run", *words]) == code, capfd.readouterr()
        found = capfd.readouterr()
        return found.out, found.err

    return run


def test_from_a_script_to_its_result_and_again(line: Any, project: Path, service: Any) -> None:
    out, err = line("train it.py", "--nodes", "2", "--", "0", "--rate=0.1", "a b")
    assert sorted(out.splitlines()) == [f"{rank} 2 ['0', '--rate=0.1', 'a b'] v1" for rank in range(2)]
    assert "job train-it-0001 on 2 nodes" in err
    assert (project / "batchhvd-results/train-it-0001/deep er/model.txt").read_text() == "v1"
    share = batchhvd.local(service.root).group("batchhvd").storage_account("batchhvdruns").share("runs")
    sent = {file.path.split("/", 2)[2] for file in share.files("code", recursive=True) if not file.is_directory}
    sent = {name for name in sent if not name.startswith("__pycache__/")}  # what the job's Python wrote
    assert sent == {"train it.py", "helper.py", ".gitignore", ".batchhvdignore"}

    (project / "helper.py").write_text("VERSION = 'v2'")  # the new code runs, under a new name
    out, err = line("train it.py", "--to", "here", "3", code=3)
    assert out == "0 1 ['3'] v2\n" and "job train-it-0002 on 1 node" in err
    failed = (
        batchhvd.local(service.root).group("batchhvd").workspace("runs").experiment("train-it").job("train-it-0002")
    )
    why = failed.explain()
    assert "run it again with session.run('train it.py', …)" in str(why) and "rerun" not in str(why)
    assert "run it again (batchhvd run 'train it.py' …)" in str(why.for_shell())
    assert "`batchhvd job explain train-it-0002 -g batchhvd -w runs -e train-it` says why" in err
    assert (project / "here/deep er/model.txt").read_text() == "v2"

    out, err = line("train it.py", "--detach")
    assert out == "" and "follow it with: batchhvd job logs train-it-0003 -g batchhvd -w runs -e train-it" in err


@pytest.mark.interpreter
def test_a_run_loads_no_package_that_it_does_not_need(project: Path, service: Any) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "batchhvd", "run", "train it.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time")}
    assert {"azure.storage.fileshare", "rich.console"} <= loaded
    needless = {"aiohttp.client", "cloudpickle", "batchhvd.advice.explain", "batchhvd.functions.packing"}
    assert loaded & needless == set()


def test_a_call_in_python_and_unchanged_code(project: Path, service: Any) -> None:
    session = batchhvd.local(service.root)
    first = session.run("train it.py", nodes=1, args=["0", "$HOME 'x'"])
    assert "".join(first.stream()) == """0 1 ['0', "$HOME 'x'"] v1\n"""
    second = session.run(project / "train it.py", code=project)
    assert (first.name, second.name) == ("train-it-0001", "train-it-0002")
    assert first.spec.task.script == second.spec.task.script  # type: ignore[union-attr]  # of the same content
    assert [path.read_text() for path in second.wait(timeout=60).download("results")] == ["v1"]
    (project / "helper.py").write_text("VERSION = 'v2'")
    grown = session.run("train it.py", nodes=3).wait(timeout=60)
    assert grown.spec.task.script != first.spec.task.script  # type: ignore[union-attr]  # a run keeps its own files
    share = grown.group.storage_account("batchhvdruns").share("runs")
    kept = [file.text() for file in share.files("code", recursive=True) if file.name == "helper.py"]
    assert sorted(kept) == ["VERSION = 'v1'", "VERSION = 'v2'"]
    assert grown.workspace.cluster("nodes").target == 3


def test_what_is_refused(project: Path, service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    session = batchhvd.local(service.root)
    (project / "no.log").write_text("")
    for script, folder, said in (
        ("none.py", None, "there is no file 'none.py' here"),
        ("train it.py", "data", "is not below data"),
        ("train it.py", "nowhere", "is not below nowhere"),
        ("no.log", None, "is excluded by"),
    ):
        with pytest.raises(SpecError, match=said):
            session.run(script, code=folder)
    (project / "latest").symlink_to("/nonexistent")
    (project / "linked").symlink_to("data")
    with pytest.warns(UserWarning, match=r"latest \(a link that leads nowhere\); .*linked \(a link to a folder"):
        assert set(read_folder(project).files) == {"train it.py", "helper.py", ".gitignore", ".batchhvdignore"}
    for link in ("latest", "linked"):
        (project / link).unlink()
    Path(os.fsdecode(b"\xff.py")).write_text("")
    with pytest.raises(SpecError, match="is not UTF-8"):
        session.run("train it.py")
    os.unlink(b"\xff.py")
    monkeypatch.setattr(code, "_MOST_FILES", 3)
    with pytest.raises(SpecError, match=r"holds 4 files of 0 MB, which is more than a program"):
        session.run("train it.py")


def test_without_git_everything_is_taken_and_said(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_git(*_: object, **__: object) -> None:
        raise FileNotFoundError("git")

    with_git = read_folder(project)
    monkeypatch.setattr(subprocess, "run", no_git)
    with pytest.warns(UserWarning, match="git is not there to read .gitignore"):
        without = read_folder(project)
    assert set(without.files) - set(with_git.files) == {"data/large.bin", "notes.log"}
    assert without.digest != with_git.digest


def test_repositories_and_hooks_of_git(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = read_folder(project)
    for folder in (project, project / "vendored"):
        subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    (project / "vendored" / "lib.py").write_text("x = 1")
    (project / "vendored" / "made.log").write_text("")
    (project / "vendored" / ".gitignore").write_text("*.log\n")
    subprocess.run(["git", "add", "helper.py"], check=True)
    monkeypatch.setenv("GIT_INDEX_FILE", str(project / ".git" / "index"))
    monkeypatch.setenv("GIT_DIR", str(project / ".git"))
    found = read_folder(project)
    assert set(found.files) == {*before.files, "vendored/lib.py", "vendored/.gitignore"}


@pytest.mark.parametrize(("answer", "state"), [("y\n", "failed"), ("\n", "running"), (None, "running")])
def test_ctrl_c_asks(
    project: Path, service: Any, monkeypatch: pytest.MonkeyPatch, answer: str | None, state: str, capfd: Any
) -> None:
    Path("long.py").write_text("import time\ntime.sleep(120)\n")

    def interrupted(context: Any, job: Any, *_: object, **__: object) -> None:
        job.wait("running", timeout=60)
        raise KeyboardInterrupt

    monkeypatch.setattr(run_verb, "follow_log", interrupted)
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: (answer or "").strip())
    words = ["run", "long.py", *(["--no-input"] if answer is None else [])]
    assert cli.run(words) == cli.INTERRUPTED
    (job,) = batchhvd.local(service.root).group("batchhvd").workspace("runs").experiment("long").jobs()
    assert job.state == state
    assert ("follow it with" in capfd.readouterr().err) == (state == "running")


def test_a_second_ctrl_c_ends_it(project: Path, service: Any) -> None:
    Path("long.py").write_text("import time\nprint('begun', flush=True)\ntime.sleep(120)\n")
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "batchhvd", "run", "long.py"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.PIPE, env=environment
    ) as done:
        assert done.stdout and done.stderr and done.stdout.readline() == b"begun\n"
        done.send_signal(2)
        seen = b""
        while b"Otherwise it continues" not in seen:
            seen += done.stderr.read(1)
        time.sleep(0.5)  # until it reads the answer: where Python ignores exceptions, it would ignore this one too
        done.send_signal(2)
        assert done.wait(60) == cli.INTERRUPTED
    (job,) = batchhvd.local(service.root).group("batchhvd").workspace("runs").experiment("long").jobs()
    assert job.state == "failed" and job.errors[0].code == "JobTerminated"


def test_the_root_of_a_service_is_not_part_of_a_program(project: Path) -> None:
    before = read_folder(project)
    (project / "my root" / "tasks").mkdir(parents=True)
    for name in ("state.sqlite", "token", "tasks/task.json"):
        (project / "my root" / name).write_text("secret")
    assert read_folder(project) == before
    (project / "my root" / "token").unlink()  # somebody's own database
    assert "my root/state.sqlite" in read_folder(project).files


def wheel(folder: Path, version: str) -> None:
    """Writes the smallest wheel that there is."""
    facts = f"tiny_thing-{version}.dist-info"
    with zipfile.ZipFile(folder / f"tiny_thing-{version}-py3-none-any.whl", "w") as file:
        file.writestr("tiny_thing.py", f"VERSION = {version!r}\n")
        file.writestr(f"{facts}/METADATA", f"Metadata-Version: 2.1\nName: tiny-thing\nVersion: {version}\n")
        file.writestr(
            f"{facts}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{facts}/RECORD", "")


def with_uv(folder: Path) -> str:
    """Returns a search path that has uv; skips where it cannot be installed."""
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), "uv"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    if done.returncode or not (folder / "bin" / "uv").exists():
        pytest.skip(f"uv cannot be installed here: {done.stderr.strip()[-200:]}")
    return os.pathsep.join([str(folder / "bin"), os.environ["PATH"]])


def without_uv() -> str:
    """Returns the search path less what has uv."""
    folders = os.environ["PATH"].split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if not Path(folder, "uv").exists())


@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_a_run_has_an_environment_that_is_made_once(tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", with_uv(tmp_path / "uv") if tool == "uv" else without_uv())
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "program").mkdir()
    script = tmp_path / "program" / "look.py"
    script.write_text("import attrs, sys, tiny_thing\nprint(tiny_thing.VERSION, sys.prefix, sys.argv[1:])\n")
    (tmp_path / "program" / "wheels").mkdir()  # where nodes without a network find packages
    wheel(tmp_path / "program" / "wheels", "1.5")
    (tmp_path / "mine.txt").write_text("--no-index\ntiny-thing==1.5\n")
    session = batchhvd.local(tmp_path / "root", prepare="skip")
    try:
        first = session.run(script, nodes=2, args=["a b"], environment=tmp_path / "mine.txt")
        lines = "".join(first.stream()).splitlines()
        place = tmp_path / "home/.cache/batchhvd/environments"
        [folder] = [one for one in place.iterdir() if one.is_dir()]
        assert lines == [f"1.5 {folder} ['a b']"] * 2  # and the node's attrs is there too
        assert [one.read_text().strip() for one in folder.rglob("tiny_thing-1.5.dist-info/INSTALLER")] == [tool]
        installed = first._log("stderr.txt").decode()
        assert installed.count("batchhvd: installing") == 1  # the other rank waited
        second = session.run(script, environment=tmp_path / "mine.txt").wait(timeout=120)
        assert "installing" not in second._log("stderr.txt").decode()
        (tmp_path / "mine.txt").write_text("--no-index\ntiny-thing==9\n")
        with pytest.raises(batchhvd.JobFailedError) as caught:
            session.run(script, environment=tmp_path / "mine.txt").wait(timeout=120)
        assert "requirements.txt cannot be installed, see above" in "\n".join(caught.value.tail)
        assert [one for one in place.iterdir() if (one / "complete").exists()] == [folder]
    finally:
        session.stop_service()


def test_requirements_that_the_nodes_cannot_have_are_refused(project: Path, service: Any) -> None:
    session = batchhvd.local(service.root)
    with pytest.raises(SpecError, match=r"no file 'missing\.txt'"):
        session.run("train it.py", environment="missing.txt")
    for line in ("-r other.txt", "-e .", "./here.whl"):
        (project / "mine.txt").write_text(f"numpy\n{line}\n")
        with pytest.raises(SpecError, match=r"mine\.txt: .* is a file of this machine"):
            session.run("train it.py", environment="mine.txt")
    assert not session.group("batchhvd").exists()


def test_a_spec_names_code_outputs_and_requirements_of_this_machine(
    project: Path, service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "look.py").write_text(
        "import os, pathlib, helper\n"
        "code = pathlib.Path(os.environ['AZ_BATCHAI_INPUT_CODE'])\n"
        "print(helper.VERSION, 'VIRTUAL_ENV' in os.environ, code.is_dir())\n"
        "pathlib.Path(os.environ['AZ_BATCHAI_OUTPUT_model'], 'm.txt').write_text(helper.VERSION)\n"
    )
    (project / "mine.txt").write_text("# nothing\n")
    task = batchhvd.Horovod(script="look.py")
    spec = batchhvd.JobSpec(nodes=1, task=task, code=project, outputs=["model"], environment="mine.txt")
    assert spec == batchhvd.JobSpec(nodes=1, task=task, code=project, outputs=["model"], requirements="mine.txt")
    assert spec.environment == {}
    workspace = batchhvd.local(service.root).create_group("batchhvd").create_workspace("w")
    cluster = workspace.create_cluster("c", vm_size="Standard_D2", nodes=1)
    place = workspace.create_experiment("specs")
    job = place.create_job("first", spec, cluster=cluster)
    assert "".join(job.stream()) == "v1 True True\n"
    assert [file.read_text() for file in job.wait().download(project.parent / "out", output="model")] == ["v1"]
    assert not place.plan_job("next", spec, cluster=cluster).problems
    with pytest.raises(batchhvd.ConflictError, match="with the same specification"):
        place.create_job("first", spec, cluster=cluster)
    (project / "helper.py").write_text("VERSION = 'v2'")
    assert "".join(place.create_job("first", spec, cluster=cluster, rerun=True).stream()) == "v2 True True\n"


def test_what_a_spec_cannot_upload_is_refused(project: Path, service: Any) -> None:
    group = batchhvd.local(service.root).create_group("batchhvd")
    workspace = group.create_workspace("w")
    place, cluster = workspace.create_experiment("specs"), workspace.cluster("c")
    script, command = batchhvd.Horovod(script="missing.py"), batchhvd.CustomToolkit(command="true")
    with pytest.raises(SpecError, match=r"has no file 'missing\.py'"):
        place.create_job("a", batchhvd.JobSpec(nodes=1, task=script, code=project), cluster=cluster)
    (project / "mine.txt").write_text("")
    spec = batchhvd.JobSpec(nodes=1, task=command, code=project, requirements="mine.txt")
    with pytest.raises(SpecError, match="a CustomToolkit does not run in an environment"):
        place.create_job("a", spec, cluster=cluster)
    with pytest.raises(SpecError, match="no job.json can name"):
        spec.to_document()
    with pytest.raises(SpecError, match="the directory for the logs is missing"):
        batchhvd.JobSpec(nodes=1, task=command)
    assert not [*group.storage_accounts()]
