"""Starting, finding and losing the service of this machine."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import batchhvd
from batchhvd import AccessDeniedError, ConflictError, SpecError, UnavailableError
from batchhvd.cli import main as cli


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A root for a service that nobody started yet; what runs there is ended after the test."""
    folder = tmp_path / "my röot"
    yield folder
    stop(folder)


def stop(folder: Path) -> None:
    if not (folder / "endpoint").exists():
        return
    pid = json.loads((folder / "service.json").read_text())["pid"]
    os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists() and time.monotonic() < end:
        time.sleep(0.02)


def test_starts_one_service_and_finds_it_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = batchhvd.local(root)
    group = first.create_group("g")
    monkeypatch.setenv("BATCHHVD_ROOT", str(root))
    second = batchhvd.local()
    assert first == second and first.endpoint == second.endpoint
    assert second._connection.root == str(root)
    # Any endpoint of this machine is looked for there, so that its token is found.
    assert [found.name for found in batchhvd.connect(first.endpoint).groups()] == ["g"]
    first.close()
    assert group.exists()  # closing closes connections, not the session
    with second:
        second.group("g").delete()


def test_two_programs_at_once_get_one_service_that_outlives_them(root: Path) -> None:
    code = f"import batchhvd; s = batchhvd.local({str(root)!r}); s.create_group('kept'); print(s.endpoint)"
    command = [sys.executable, "-W", "error", "-c", code]
    programs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = {program.communicate(timeout=60)[0] for program in programs}
    assert [program.returncode for program in programs] == [0, 0]
    assert len(said) == 1
    assert said.pop().strip() == (root / "endpoint").read_text().strip()
    assert batchhvd.local(root).group("kept").exists()


def test_a_token_is_needed(service: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BATCHHVD_ROOT", str(tmp_path))
    monkeypatch.delenv("BATCHHVD_TOKEN", raising=False)
    with pytest.raises(AccessDeniedError, match="no token is known for http.*BATCHHVD_TOKEN"):
        list(batchhvd.connect(service.url).groups())
    monkeypatch.setenv("BATCHHVD_TOKEN", "wrong")
    with pytest.raises(AccessDeniedError, match=r"\(AuthenticationFailed\)\. .* that of \$BATCHHVD_TOKEN: set it"):
        list(batchhvd.connect(service.url).groups())
    assert list(batchhvd.connect(service.url, service.token).groups()) is not None
    monkeypatch.setenv("BATCHHVD_TOKEN", service.token)
    assert list(batchhvd.connect(service.url).groups()) is not None
    assert service.token not in repr(batchhvd.connect(service.url, service.token)._connection.credential)


def test_a_wrong_token_of_the_environment_is_never_replaced_by_the_roots_in_silence(
    service: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BATCHHVD_ROOT", str(service.root))
    monkeypatch.setenv("BATCHHVD_TOKEN", "wrong")
    with pytest.raises(AccessDeniedError, match=r"that of \$BATCHHVD_TOKEN"):
        list(batchhvd.connect(service.url).groups())
    with pytest.warns(UserWarning, match=r"\$BATCHHVD_TOKEN is not used: .*token\. Unset it"):
        assert batchhvd.local().group("-").exists() is False
    assert cli.run(["group", "list", "-o", "json"]) == 0
    assert capsys.readouterr().err.startswith("warning: $BATCHHVD_TOKEN is not used")
    monkeypatch.setenv("BATCHHVD_TOKEN", service.token)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert batchhvd.local() == batchhvd.connect(service.url)


def test_a_service_that_does_not_run_says_how_to_start_it(root: Path) -> None:
    session = batchhvd.local(root)
    cluster = session.group("g").workspace("w").cluster("c")
    stop(root)
    for ask in (
        cluster.refresh,
        lambda: list(session.groups()),
        lambda: cluster.wait(timeout=60),
        lambda: session.create_group("h"),
        lambda: next(session.group("g").workspace("w").experiment("e").job("j").stream()),
    ):
        started = time.monotonic()
        with pytest.raises(UnavailableError) as caught:
            ask()
        assert time.monotonic() - started < 5
        assert f"start it with batchhvd.local({str(root)!r})" in str(caught.value)
    batchhvd.local(root)
    assert list(session.groups()) == []  # the old handles go on


def test_nothing_listens_at_an_endpoint() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    started = time.monotonic()
    with pytest.raises(UnavailableError, match=f"Nothing answers at http://127.0.0.1:{port}: start the service there"):
        list(batchhvd.connect(f"http://127.0.0.1:{port}", "token").groups())
    assert time.monotonic() - started < 5


def test_an_endpoint_file_of_the_dead_is_not_believed(root: Path) -> None:
    session = batchhvd.local(root)
    pid = json.loads((root / "service.json").read_text())["pid"]
    os.kill(pid, signal.SIGKILL)
    assert (root / "endpoint").exists()
    again = batchhvd.local(root)
    assert list(again.groups()) == list(session.groups()) == []


def test_a_service_that_cannot_start_says_why(root: Path) -> None:
    with pytest.raises(UnavailableError, match=r"(?s)ended with exit code \d+: .*no engine 'abacus'.*service\.log"):
        batchhvd.local(root, engine="abacus")


def test_another_engine_than_the_one_that_runs(service: Any) -> None:
    with pytest.raises(ConflictError, match="engine 'processes', not with 'slurm'"):
        batchhvd.local(service.root, engine="slurm")


def test_a_proxy_of_the_environment_is_not_asked(service: Any, place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    session = batchhvd.local(service.root)
    share = session.group(place.group.name).storage_account(place.share.account.name).share(place.share.name)
    assert share.exists() and list(share.files()) != []
    job = place.run("echo hi").wait(timeout=20)
    same = session.group(place.group.name).workspace("work").experiment("tries").job(job.name)
    assert "".join(same.stream()) == "hi\n"


def test_a_service_is_asked_and_stopped_by_its_session(root: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"prepare": "skip", "idle": 60, "allow_directory": [tmp_path]}
    session = batchhvd.local(root, **options)
    assert session.service is not None and session.service.engine == "processes"
    assert batchhvd.local(root, **options) == batchhvd.local(root) == session
    with pytest.raises(ConflictError, match="prepare 'skip', not with 'host'"):
        batchhvd.local(root, prepare="host")
    with pytest.raises(ConflictError, match="allow_directory"):
        batchhvd.local(root, allow_directory=[])
    assert session.stop_service()
    assert session.service is None and not session.stop_service()
    with pytest.raises(SpecError, match="is not a local service"):
        batchhvd.connect("http://127.0.0.1:1", "token").stop_service()


def test_runs_and_verbs_take_the_settings(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "pyproject.toml").write_text(
        f"[tool.batchhvd]\nroot = {str(root)!r}\nprepare = 'skip'\ngroup = 'mine'\nworkspace = 'w'\ncluster = 'c'\n"
        "account = 'mineruns'\nshare = 'code'\n"
    )
    (work / "hello.py").write_text("print('hello')")
    monkeypatch.chdir(work)
    assert cli.run(["run", "hello.py", "--detach"]) == 0
    about = json.loads((root / "service.json").read_text())
    assert about["options"]["prepare"] == "skip"
    group = batchhvd.local().group("mine")
    assert [one.name for one in group.storage_accounts()] == ["mineruns"]
    assert [one.name for one in group.workspace("w").clusters()] == ["c"]
    assert cli.run(["job", "wait", "hello-0001", "-e", "hello"]) == 0  # group and workspace are the settings'
    with pytest.raises(SpecError, match=r"cluster 'c' has at most 1 nodes.*pyproject\.toml:6 names"):
        batchhvd.local().run("hello.py", nodes=2)
