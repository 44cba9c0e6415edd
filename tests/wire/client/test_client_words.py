"""One remedy, two renderings: the command line names commands, Python names calls."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

import batchhvd
from batchhvd import BatchHvdError, Horovod, JobSpec, Mount
from batchhvd.cli import main as cli

CALL = re.compile(r"\b[a-z_]+\([^)]*\)|=True|\bjob\.|\bshare\.|\bcluster\.")
COMMAND = re.compile(r"batchhvd [a-z]+|--[a-z]+|BATCHHVD_")


@pytest.fixture
def line(
    place: Any, service: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BATCHHVD_ROOT", str(service.root))
    for name in ("GROUP", "WORKSPACE", "EXPERIMENT", "CLUSTER"):
        monkeypatch.setenv(f"BATCHHVD_{name}", getattr(place, name.lower()).name)
    monkeypatch.setenv("AZURE_BATCHAI_STORAGE_ACCOUNT", place.share.account.name)

    def run(*words: str) -> tuple[int, str]:
        code = cli.run(words)
        found = capsys.readouterr()
        return code, found.out + found.err

    return run


def test_the_command_line_names_commands(line: Any, place: Any) -> None:
    name = f"w{os.urandom(4).hex()}"
    mount = place.share.mount("data")
    place.run("exit 3", name).wait("ended", timeout=60)
    place.spec("exit 3").write("same.json")
    missing = {"mounts": [Mount(place.share.account.name, "nosuchshare", "data")], "logs": mount / "logs"}
    place.spec("true", **missing).write("missing.json")
    place.spec("true", nodes=9, task=Horovod(mount / "none.py")).write("large.json")
    tried = [
        (1, "job", "submit", "same.json", "--name", name),
        (3, "share", "download", place.share.name, "no/such file"),
        (1, "plan", "same.json", "--name", name),
        (1, "plan", "missing.json"),
        (1, "plan", "large.json"),
        (1, "plan", "large.json", "--cluster", "none"),
        (3, "job", "wait", name, "--until", "succeeded"),
        (0, "job", "explain", name),
        (2, "--endpoint", "https://arm.example", "group", "list"),
        (1, "--endpoint", "https://management.azure.com", "--subscription", "s", "workspace", "list"),
        (5, "job", "wait", "sleeps", "--timeout", "0.1"),
    ]
    sleeps = place.run("sleep 60", "sleeps")
    for code, *words in tried:
        found, said = line(*words)
        assert found == code, (words, said)
        text = "\n".join(
            row for row in said.splitlines() if not row.startswith(("variable", "command", "logs", "mount "))
        )
        assert not CALL.search(text), (words, text)
        assert COMMAND.search(text) or "wait again" in text, (words, text)
    sleeps.terminate()


def test_both_renderings_say_the_same(place: Any) -> None:
    job = place.run("exit 3").wait("ended", timeout=60)
    errors: list[BatchHvdError] = [job._failure(), place.cluster.refresh()._failure()]
    for act in (
        lambda: place.share.download("nothing", to="x"),
        lambda: job.wait(timeout=10),
        lambda: place.experiment.create_job(job.name, place.spec("true"), cluster=place.cluster),
        lambda: place.experiment.create_job("x", lost(place), cluster=place.cluster),
        lambda: batchhvd.connect("https://arm.example", "token"),
        lambda: batchhvd.connect(subscription="s").group("g").workspace("w").refresh(),
        lambda: batchhvd.connect("http://127.0.0.1:9").group("g").refresh(),
        lambda: "".join(place.run("sleep 9").stream(timeout=0.2)),
    ):
        with pytest.raises(BatchHvdError) as caught:
            act()
        errors.append(caught.value)
    for error in errors:
        assert CALL.search(str(error)) or "subscription=" in str(error), error
        assert error.shell and not CALL.search(error.shell) and COMMAND.search(error.shell), error.shell
        assert os.path.commonprefix([str(error), error.shell]), error


def lost(place: Any) -> JobSpec:
    """A job that mounts a share of an account that does not exist."""
    found: JobSpec = place.spec("true", mounts=[Mount("nosuchaccount", "files", "data")])
    return found


def test_a_service_that_does_not_run(service: Any, tmp_path: Path) -> None:
    session = batchhvd.local(service.root)
    session._connection.root = str(tmp_path)
    (tmp_path / "endpoint").write_text("http://127.0.0.1:9")
    (tmp_path / "token").write_text("t")
    with pytest.raises(BatchHvdError, match="start it with batchhvd.local") as caught:
        session.group("g").refresh()
    assert f"start it with `batchhvd --root {tmp_path} serve --detach`" in caught.value.shell
