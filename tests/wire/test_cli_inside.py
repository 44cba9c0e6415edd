"""Looking into running jobs from the command line, and verbs for several jobs at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import batchhvd
from batchhvd import ConflictError, NotFoundError, SpecError
from batchhvd.cli import main as cli

HERE = ("-g", "batchhvd", "-w", "runs", "-e", "inside")


def sleeper(seconds: float, code: int = 0) -> None:
    print("awake", flush=True)
    time.sleep(seconds)
    Path(os.environ["AZ_BATCHAI_OUTPUT_RESULT"], "made.txt").write_text("made")
    os._exit(code)


def busy(seconds: float) -> None:
    """Keeps one processor busy, and 200 MB of memory."""
    kept = bytearray(os.urandom(1 << 20) * 200)
    print("busy", flush=True)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        kept[0] = 1


@pytest.fixture(scope="module")
def experiment(service: Any) -> Iterator[Any]:
    group = batchhvd.local(service.root).create_group("batchhvd")
    group.create_workspace("runs").create_cluster("nodes", vm_size="Standard_D2", nodes=6)
    yield group.workspace("runs").create_experiment("inside")
    group.delete()


@pytest.fixture(scope="module")
def running(experiment: Any) -> Any:
    """A job of two nodes that runs as long as the module's tests."""
    job = experiment.submit(sleeper, 600, nodes=2, name="long").job.wait("running", timeout=60)
    next(job.stream())  # its ranks are there
    return job


@pytest.fixture
def line(service: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.setenv("BATCHHVD_ROOT", str(service.root))

    def run(*words: str, code: int = 0) -> tuple[str, str]:
        assert cli.run([*words]) == code, capfd.readouterr()
        return capfd.readouterr()

    return run


def entered(service: Any, *words: str, stdin: str = "", noun: str = "job") -> subprocess.CompletedProcess[str]:
    """Runs a command line as a program of its own: it becomes the command."""
    command = [sys.executable, "-m", "batchhvd", "--root", str(service.root), noun, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, input=stdin)


def test_a_command_in_a_node_has_the_ranks_variables_and_its_own_exit_code(service: Any, running: Any) -> None:
    shell = "echo $AZ_BATCHAI_TASK_INDEX $AZ_BATCHAI_JOB_NAME; cat; echo wrong >&2; exit 3"
    done = entered(service, "exec", "long", *HERE, "--node", "1", "--", "sh", "-c", shell, stdin="given\n")
    assert (done.returncode, done.stdout, done.stderr) == (3, "1 long\ngiven\n", "wrong\n")
    done = entered(service, "shell", "long", *HERE, stdin="echo in $AZ_BATCHAI_TASK_INDEX\nexit 4\n")
    assert done.returncode == 4 and "in 0\n" in done.stdout


def test_what_cannot_be_entered_is_named(
    service: Any, running: Any, experiment: Any, line: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, err = line("job", "exec", "long", *HERE, "--node", "2", "--", "true", code=3)
    assert "node 2 of job 'long' cannot be entered" in err and "has no node 2: it has 2" in err
    ended = experiment.submit(time.time).job.wait(timeout=60)
    with pytest.raises(ConflictError, match=r"has ended \(succeeded\); only what it has written is left"):
        ended.entrance()
    with pytest.raises(NotFoundError):
        experiment.job("missing").entrance()
    away = batchhvd.connect(service.url, service.token).group("batchhvd").workspace("runs").experiment("inside")
    away.workspace.group.session._connection = type(away._connection)(
        service.url, away._session.subscription, credential=away._connection.credential
    )
    with pytest.raises(SpecError, match="on the machine of its local service only"):
        away.job("long").entrance()


def test_what_each_rank_uses_is_measured(service: Any, running: Any, experiment: Any, line: Any) -> None:
    job = experiment.submit(busy, 600, name="busy").job.wait("running", timeout=60)
    next(job.stream())
    looks = job.usage(0.2)
    found = [next(looks) for _ in range(2)][1].ranks
    looks.close()
    assert [(one.rank, one.processes) for one in found] == [(0, 1)]
    assert found[0].cpu > 0.05 and 200e6 < found[0].memory < 600e6
    idle = next(running.usage()).ranks
    assert [one.rank for one in idle] == [0, 1] and len({one.node for one in idle}) == 2
    assert all(one.cpu < 0.05 and one.memory < 100e6 for one in idle), "a sleeping rank uses next to nothing"
    out, _ = line("job", "top", "busy", *HERE)
    assert out.split()[:7] == ["rank", "CPU", "%", "memory", "MB", "processes", "node"] and len(out.splitlines()) == 2
    out, _ = line("job", "top", "busy", *HERE, "--query", "ranks[].rank")
    assert json.loads(out) == [0]
    looks = job.usage(0.2)
    next(looks)
    job.terminate()
    assert len(list(looks)) < 20, "it ends with the job"
    _, err = line("job", "top", "busy", *HERE, code=1)
    assert "has ended (failed); only what it has written is left" in err and "Wait until" not in err
    assert "`batchhvd job logs busy` shows its output" in err
    _, err = line("job", "exec", "missing", *HERE, "--", "true", code=3)
    assert "`batchhvd job list` lists what there is" in err
    job.delete()


def test_a_command_runs_in_a_node_of_a_cluster_with_or_without_a_job(
    service: Any, running: Any, experiment: Any, line: Any
) -> None:
    where = ("-g", "batchhvd", "-w", "runs")
    shell = "echo index=$AZ_BATCHAI_TASK_INDEX job=$AZ_BATCHAI_JOB_NAME; exit 3"
    cluster = experiment.workspace.cluster("nodes").refresh()
    said = []
    for node in range(cluster.nodes.total):
        done = entered(service, "exec", "nodes", *where, "--node", str(node), "--", "sh", "-c", shell, noun="cluster")
        assert done.returncode == 3, done
        said.append(done.stdout)
    assert said.count("index= job=\n") == 4, said
    assert {"index=0 job=long\n", "index=1 job=long\n"} < set(said)
    _, err = line("cluster", "exec", "nodes", *where, "--node", "6", "--", "true", code=3)
    assert "node 6 of cluster 'nodes' cannot be entered" in err and "has no node 6: it has 6" in err
    line("cluster", "exec", "missing", *where, "--", "true", code=3)


def test_only_the_token_opens_the_entrance(service: Any, running: Any) -> None:
    body = {"job": running.id, "node": 0, "terminal": False}
    url = f"{service.url}/job.entrance"
    assert service.call("POST", url, body).status_code == 200
    assert service.call("POST", url, body, Authorization="Bearer wrong").status_code == 401
    assert service.call("GET", url).status_code == 404
    for wrong in (b"[]", {**body, "node": -1}, {**body, "node": True}, {**body, "job": 3}, {"job": running.id}):
        assert service.call("POST", url, wrong).status_code == 400


def test_waiting_for_several_jobs_ends_as_the_first_that_failed(experiment: Any, line: Any) -> None:
    for name, code in (("good", 0), ("bad", 5), ("worse", 6)):
        experiment.submit(sleeper, 0, code, name=name)
    out, err = line("job", "wait", "good", "bad", "worse", *HERE, code=5)
    assert "job 'bad' failed" in err and "job 'worse' failed" in err
    out, _ = line("job", "list", "--all", "--state", "failed", "-o", "json")
    places = [(row["place"], row["name"]) for row in json.loads(out)]  # other tests have failed jobs elsewhere
    here = "batchhvd/runs/inside"
    assert [place for place in places if place[0] == here] == [(here, "bad"), (here, "worse")]
    out, _ = line("job", "list", *HERE, "--state", "succeeded", "--query", "[].name", "-o", "json")
    assert "good" in json.loads(out) and "bad" not in out
    _, err = line("job", "list", "-g", "batchhvd", code=2)
    assert "give --workspace, or --all" in err


def test_results_are_downloaded_by_a_verb(
    experiment: Any, line: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = experiment.submit(sleeper, 0).job.wait(timeout=60).name
    assert line("job", "download", name, *HERE)[0] == f"batchhvd-results/{name}/made.txt\n"
    assert (tmp_path / "batchhvd-results" / name / "made.txt").read_text() == "made"
    line("job", "download", name, *HERE, "--output-directory", "stdouterr", "--to", "logs")
    assert "awake" in (tmp_path / "logs" / "stdout.txt").read_text()


def test_all_jobs_of_an_experiment_are_ended_by_one_verb(service: Any, line: Any) -> None:
    place = batchhvd.local(service.root).group("batchhvd").workspace("runs").create_experiment("many")
    for _ in range(2):
        place.submit(sleeper, 600)
    here = ("-g", "batchhvd", "-w", "runs", "-e", "many")
    _, err = line("job", "cancel", *here, code=2)
    assert "name the jobs, or give --all" in err
    out, _ = line("job", "cancel", "--all", "-y", *here, "-o", "json")
    assert len(json.loads(out)) == 2 and {one.state for one in place.jobs()} == {"failed"}
    assert line("job", "cancel", "--all", *here)[0] == ""  # nothing is left to ask about
