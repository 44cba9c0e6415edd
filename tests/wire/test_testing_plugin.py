"""The pytest plugin, as a stranger's project meets it: by pytest itself, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError, ServiceResponseError

from batchhvd.testing import AzureFiles

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
QUICK = {"retry_total": 3, "initial_backoff": 0, "increment_base": 0, "random_jitter_range": 0}


def module() -> str:
    """Returns the test module that the page shows."""
    return (
        PAGE.read_text(encoding="utf-8")
        .partition("<!-- file: test_uploads.py -->\n```python\n")[2]
        .partition("\n```")[0]
    )


def command(*arguments: str) -> tuple[list[str], dict[str, str]]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments], environment


@pytest.fixture
def project(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs pytest on a module of a project."""

    def run(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "test_module.py").write_text(text, encoding="utf-8")
        line, environment = command("test_module.py", *arguments)
        return subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)

    return run


@pytest.mark.interpreter
def test_the_page_runs_on_several_workers(project: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = project(module(), "-n", "2", "--strict-markers")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout


@pytest.mark.interpreter
def test_what_cannot_work_is_said_in_a_line(project: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    text = """
import pytest
@pytest.mark.azure_fault("server_bsy")
def test_kind(azure_files): pass
@pytest.mark.azure_fault("cut", operation="Put Rang")
def test_operation(azure_files): pass
@pytest.mark.azure_fault("cut", times=0)
def test_times(azure_files): pass
@pytest.mark.azure_fault("cut")
def test_nothing(): pass
@pytest.mark.azure_fault("cut", often=2)
def test_word(azure_files): pass
"""
    told = project(text).stdout
    assert "did you mean 'server_busy'?" in told and "did you mean 'Put Range'?" in told
    assert "times must be at least 1" in told and "unexpected keyword argument 'often'" in told
    assert "no effect on a test without the fixture azure_files" in told
    assert "5 errors" in told and "Traceback" not in told


@pytest.mark.interpreter
def test_missing_packages_are_named(project: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    text = """
import sys
from importlib import util
def pytest_configure(): pass
find = util.find_spec
import batchhvd.testing.plugin as plugin
plugin.find_spec = lambda name: None if name in ("uvicorn", "httptools") else find(name)
def test_files(azure_files): pass
def test_jobs(batchai): pass
"""
    told = project(text).stdout
    assert "azure_files needs uvicorn, httptools: pip install 'batchhvd[service]'" in told
    assert "batchai needs uvicorn, httptools: pip install 'batchhvd[service]'" in told


@pytest.mark.interpreter
def test_nothing_is_left_when_pytest_is_killed(tmp_path: Path, poll: Callable[..., object]) -> None:
    text = """
import time
from pathlib import Path
from batchhvd import CustomToolkit, JobSpec
def test_hang(batchai, azure_files):
    data = batchai.share.mount("data")
    spec = JobSpec(nodes=2, task=CustomToolkit("sleep 600"), mounts=[data], logs=data / "logs")
    batchai.experiment.create_job("job", spec, cluster=batchai.cluster).wait("running", timeout=60)
    Path("ready").touch()
    time.sleep(600)
"""
    (tmp_path / "test_module.py").write_text(text)
    line, environment = command("test_module.py", "--basetemp", str(tmp_path / "base"))
    process = subprocess.Popen(line, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        poll(lambda: (tmp_path / "ready").exists() or process.poll() is not None, 60)
        assert process.poll() is None, process.communicate()
        assert len(below(tmp_path)) > 2  # the service, the nodes
    finally:
        process.kill()
        process.communicate()
    poll(lambda: not below(tmp_path), 60)


def below(folder: Path) -> list[str]:
    """Returns the command lines of the processes that name a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return [line for line in found if str(folder) in line]


def test_the_plugin_imports_nothing_heavy() -> None:
    program = (
        "import pytest, sys; before = set(sys.modules); import batchhvd.testing.plugin; "
        "print(*(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    roots = {name.partition(".")[0] for name in done.stdout.split()}
    assert not roots & {"azure", "starlette", "uvicorn", "anyio", "requests", "cryptography", "sqlite3"}
    assert len(done.stdout.split()) < 60, done.stdout


@pytest.mark.azure_fault("server_busy", times=2)
def test_azures_own_retry_meets_a_busy_server(azure_files: AzureFiles) -> None:
    file = azure_files.share_client("test", **QUICK).get_file_client("f")
    file.upload_file(b"data")
    assert (azure_files.folder / "test" / "f").read_bytes() == b"data"


@pytest.mark.azure_fault("throttle")
@pytest.mark.azure_fault("server_busy", operation="Get File")
def test_several_faults_each_count_for_themselves(azure_files: AzureFiles) -> None:
    file = azure_files.share.get_file_client("f")
    with pytest.raises(HttpResponseError) as refused:
        file.upload_file(b"data")
    answer: Any = refused.value.response
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "1")
    file.upload_file(b"data")
    with pytest.raises(HttpResponseError) as refused:
        file.download_file()
    assert (refused.value.status_code, getattr(refused.value, "error_code", "")) == (503, "ServerBusy")
    assert file.download_file().readall() == b"data"


def test_a_cut_answer_was_worked_for_and_a_cut_request_was_not(azure_files: AzureFiles) -> None:
    file = azure_files.share.get_file_client("f")
    file.upload_file(b"one.")
    with azure_files.fault("cut", point="request") as fault, pytest.raises(ServiceResponseError):
        file.upload_range(b"two.", 0, 4)
    assert fault.hits == 1
    assert file.download_file().readall() == b"one."
    with azure_files.fault("cut"), pytest.raises(ServiceResponseError):
        file.upload_range(b"two.", 0, 4)
    assert file.download_file().readall() == b"two."


def test_half_of_a_body_arrives(azure_files: AzureFiles) -> None:
    with azure_files.fault("server_busy"):
        pass  # it has ended, met or not
    path = azure_files.folder / "test" / "f"
    path.write_bytes(b"x" * 10_000)
    with azure_files.fault("cut", operation="Get File") as fault, pytest.raises(HttpResponseError):
        azure_files.share.get_file_client("f").download_file().readall()
    assert fault.hits == 1
    assert azure_files.share.get_file_client("f").download_file().readall() == b"x" * 10_000


def test_each_test_has_an_account_of_its_own(azure_files: AzureFiles) -> None:
    assert not list(azure_files.share.list_directories_and_files())
    assert azure_files.key not in repr(azure_files)
    assert len(list(azure_files.folder.parent.glob("test*"))) == 1
