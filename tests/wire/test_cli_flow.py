"""The tutorial, command by command, against a running service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import define

from batchhvd.cli import main as cli

SCRIPT = """
import os, pathlib, sys, time
rank = int(os.environ["HOROVOD_RANK"])
print("bytes ä of rank", rank, "of", os.environ["HOROVOD_SIZE"], flush=True)
place = pathlib.Path([a for a in sys.argv if a.startswith("--dir=")][0][6:])
if rank == 0:
    (place / "saved_models").mkdir(exist_ok=True)
    (place / "saved_models" / "model.h5").write_bytes(b"weights")
    print("Epoch 1/1  accuracy 0.7500  loss 0.5000  100 images/s  2.0 s", flush=True)
if "--sleep" in sys.argv:
    time.sleep(60)
sys.exit(3 if rank == 1 and "--fail" in sys.argv else 0)
"""


@define
class Line:
    """Runs command lines in this process."""

    capture: pytest.CaptureFixture[str]
    err: str = ""

    def __call__(self, *arguments: str, code: int = 0) -> str:
        assert cli.run(arguments) == code, self.capture.readouterr()
        captured = self.capture.readouterr()
        self.err = captured.err
        return captured.out

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "-o", "json"))


@pytest.fixture
def line(
    service: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Line]:
    where = {"ROOT": str(service.root), "GROUP": "gruppe.cli", "WORKSPACE": "batchaidev", "EXPERIMENT": "cifar"}
    for name, value in {**where, "CLUSTER": "nc6cluster"}.items():
        monkeypatch.setenv(f"BATCHHVD_{name}", value)
    monkeypatch.setenv("AZURE_BATCHAI_STORAGE_ACCOUNT", "clistore")
    folder = tmp_path / "mit blänk"
    folder.mkdir()
    monkeypatch.chdir(folder)
    run = Line(capsys)
    yield run
    run("group", "delete", "gruppe.cli", "--yes")


def prepared(line: Line, *options: str) -> None:
    """Makes all that a job needs, and the tutorial's job.json less what takes long."""
    line("group", "create", "gruppe.cli", "--location", "eastus")
    line("workspace", "create", "batchaidev")
    line("experiment", "create", "cifar")
    line("cluster", "create", "nc6cluster", "--vm-size", "Standard_NC6", "--target", "2", *options)
    line("storage", "create", "clistore")
    line("share", "create", "myshare")
    line("share", "mkdir", "myshare", "cifar")
    Path("cifar_cnn_distributed.py").write_text(SCRIPT, encoding="utf-8")
    line("share", "upload", "myshare", "cifar_cnn_distributed.py", "--to", "cifar")
    job = json.loads((Path(__file__).parents[1] / "data/jobs/tutorial-4-nodes.json").read_text(encoding="utf-8"))
    properties = {k: v for k, v in job["properties"].items() if k not in ("jobPreparation", "containerSettings")}
    Path("jöb.json").write_text(json.dumps({"properties": {**properties, "nodeCount": 2}}), encoding="utf-8")


def test_the_tutorial_command_by_command(line: Line) -> None:
    prepared(line, "--vm-priority", "dedicated", "--wait")
    shown = dict(row.split(maxsplit=1) for row in line("cluster", "show", "nc6cluster").splitlines())
    assert (shown["name"], shown["state"], shown["nodes"], shown["target"]) == ("nc6cluster", "steady", "2 idle", "2")
    out = line("job", "submit", "jöb.json", "--name", "cifar_distributed", "--follow")
    assert sorted(out.splitlines())[1:] == ["bytes ä of rank 0 of 2", "bytes ä of rank 1 of 2"]
    assert line("job", "show", "cifar_distributed", "--query", "executionState") == '"succeeded"\n'
    assert line.json("cluster", "show", "nc6cluster", "--query", "nodeStateCounts")["unusableNodeCount"] == 0
    names = [file["path"] for file in line.json("job", "files", "cifar_distributed")]
    assert {"stdout.txt", "stderr.txt"} < set(names)
    assert line("job", "logs", "cifar_distributed") == out
    assert line("job", "logs", "cifar_distributed", "--no-follow", "--cursor", "5") == out.encode()[5:].decode()
    assert line("job", "metrics", "cifar_distributed").split()[-1] == "2.0"
    assert line.json("job", "metrics", "cifar_distributed") == [
        {"epoch": 1, "accuracy": 0.75, "loss": 0.5, "seconds": 2.0, "images_per_second": 100.0}
    ]
    line("share", "download", "myshare", "cifar/saved_models/model.h5")
    assert Path("model.h5").read_bytes() == b"weights"
    assert "nc6cluster" in line("cluster", "resize", "nc6cluster", "--target", "0", "--wait")
    assert line.json("status", "--query", "[?contains(name, 'gruppe.cli') && kind=='job'].state") == ["succeeded"]


def test_a_job_that_fails_ends_the_program_with_its_code(line: Line) -> None:
    prepared(line, "--wait")
    text = Path("jöb.json").read_text(encoding="utf-8")
    Path("fail.json").write_text(text.replace("--dir=", "--fail --dir="), encoding="utf-8")
    line("job", "submit", "fail.json", "--follow", code=3)
    assert "Rank 1 ended with exit code 3" in line.err
    line("job", "wait", "fail", code=3)
    assert line("job", "wait", "fail", "--until", "ended").splitlines()[1].split() == ["fail", "failed", "3"]
    listed = line("job", "list", "-o", "table", "--query", "[].{name: name, code: executionInfo.exitCode}")
    assert listed == "name  code\nfail     3\n"


def test_what_would_happen_and_why_it_happened(line: Line) -> None:
    prepared(line, "--wait")
    assert "jöb" in line("plan", "jöb.json", code=1)  # a file may have such a name, and a job may not
    text = line("plan", "jöb.json", "--name", "job")
    assert [row.split()[1] for row in text.splitlines() if row.startswith(("nodes", "ranks"))] == ["2", "2:"]
    assert line.json("plan", "jöb.json", "-n", "job", "--query", "length(nodes)") == 2
    missing = Path("jöb.json").read_text(encoding="utf-8").replace("cifar_cnn_distributed", "nöt_there")
    Path("missing.json").write_text(missing, encoding="utf-8")
    assert "nöt_there.py" in line("plan", "missing.json", code=1)
    line("job", "submit", "missing.json", "--follow", code=1)  # nothing ran, so there is no code of its own
    said = line("job", "explain", "missing")
    assert said.startswith("script missing: ")
    assert "Next: " in said
    assert line.json("job", "explain", "missing")["cause"] == "script missing"
    assert line("cluster", "explain", "nc6cluster").startswith("ready: ")


def test_a_job_comes_back_as_the_file_it_was_made_from(line: Line) -> None:
    prepared(line)
    line("job", "create", "jöb.json", "-n", "again")
    line("job", "export", "again", "back.json")
    back = json.loads(Path("back.json").read_text(encoding="utf-8"))["properties"]
    there = json.loads(Path("jöb.json").read_text(encoding="utf-8"))["properties"]
    assert back["horovodSettings"] == there["horovodSettings"]
    assert back["mountVolumes"]["azureFileShares"][0]["relativeMountPath"] == "myshare"
    assert "credentials" not in json.dumps(back)
    line("job", "submit", "back.json", "-n", "once-more", "--follow")


def test_what_is_not_there_ends_with_3_and_waiting_too_long_with_5(line: Line) -> None:
    prepared(line)
    line("job", "show", "nope", code=3)
    assert line.err.startswith("batchhvd: job 'nope' cannot be read")
    holds = Path("jöb.json").read_text(encoding="utf-8").replace("--dir=", "--sleep --dir=")
    Path("holds.json").write_text(holds, encoding="utf-8")
    line("job", "submit", "holds.json")  # takes both nodes
    line("job", "submit", "jöb.json", "-n", "waits")
    line("job", "wait", "waits", "--timeout", "0.3", code=5)
    assert "queued" in line.err
    assert line("job", "terminate", "waits").splitlines()[1].split()[:2] == ["waits", "failed"]
    line("job", "terminate", "holds")
    line("job", "submit", "jöb.json", "-n", "waits", "-c", "other-cluster", code=1)
    assert "waits" in line.err


def test_deleting_says_what_goes_with_it_and_asks(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared(line)
    answers: list[str] = []

    def confirm(text: str, **_: Any) -> None:
        answers.append(text)

    monkeypatch.setattr("click.confirm", confirm)
    line("workspace", "delete", "batchaidev")
    assert answers == ["Delete workspace batchaidev and the 2 above?"]
    assert line.err.splitlines()[:2] == ["  cluster nc6cluster", "  experiment cifar"]
    assert line.json("workspace", "list") == []
    line("workspace", "delete", "batchaidev")
    assert "nothing to delete" in line.err


def test_warnings_of_a_file_are_said_once(line: Line) -> None:
    prepared(line)
    document = json.loads(Path("jöb.json").read_text(encoding="utf-8"))
    document["properties"]["toolType"] = "horovod"
    Path("old.json").write_text(json.dumps(document), encoding="utf-8")
    line("job", "submit", "old.json")
    assert line.err.count("warning:") == 1
    assert '"toolType" belongs to an older API version' in line.err


def test_files_and_folders_of_a_share_are_removed(line: Line) -> None:
    prepared(line)
    Path("a.txt").write_text("x", encoding="utf-8")
    line("share", "upload", "myshare", "a.txt", "--to", "deep")
    line("share", "rm", "myshare", "deep", code=2)
    line("share", "rm", "myshare", "deep/a.txt")
    line("share", "rm", "myshare", "deep/a.txt", code=3)
    assert "has no deep/a.txt" in line.err
    line("share", "rm", "myshare", "deep", "-r")
    assert "deep" not in line("share", "files", "myshare")
    assert "jobs wrote" not in line.err
    line("share", "mkdir", "myshare", "00000000-0000-0000-0000-000000000001")
    line("share", "files", "myshare")
    assert "has what jobs wrote whose prefix is the share itself" in line.err


def test_blobs_of_a_container_are_copied_listed_and_removed(line: Line) -> None:
    prepared(line)
    Path("a.txt").write_text("x", encoding="utf-8")
    assert "mycontainer" in line("container", "create", "mycontainer")
    line("container", "upload", "mycontainer", "a.txt", "--to", "deep")
    line("container", "download", "mycontainer", "deep/a.txt", "--to", "b.txt")
    assert Path("b.txt").read_text(encoding="utf-8") == "x"
    assert "deep/a.txt" in line("container", "files", "mycontainer", "de")
    line("container", "rm", "mycontainer", "deep", code=2)
    line("container", "rm", "mycontainer", "deep", "-r")
    line("container", "rm", "mycontainer", "deep", code=3)
    assert "has no deep" in line.err and "container files mycontainer" in line.err
    line("container", "files", "nothere", code=3)
    assert "mycontainer" in line("container", "list")
    line("container", "delete", "mycontainer", "--yes")
    assert "mycontainer" not in line("container", "list")
