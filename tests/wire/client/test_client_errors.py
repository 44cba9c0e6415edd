"""Every error class, raised by a real cause, with a message that says what happened, to what, and what to do next."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import batchhvd
from batchhvd import (
    AccessDeniedError,
    BadRequestError,
    ConflictError,
    EngineBusyError,
    EngineError,
    EngineMissingError,
    HorovodBrokenError,
    HorovodMissingError,
    JobFailedError,
    NotFoundError,
    RemoteError,
    ResourceFailedError,
    ServiceError,
    ServiceRetiredError,
    SpecError,
    UnavailableError,
    WaitTimeoutError,
)
from batchhvd.engines.base import Task, load
from batchhvd.errors import BatchHvdError
from batchhvd.resources.values.file_entry import output_entry
from batchhvd.service import drills

ROOT = Path(batchhvd.__file__).parents[1]


def not_found(place: Any) -> None:
    place.experiment.job("nosuchjob").refresh()


def parent_not_found(place: Any) -> None:
    place.group.workspace("nosuchworkspace").create_experiment("e")


def share_not_found(place: Any) -> None:
    place.share.account.share("nosuchshare").create_directory("a")


def account_not_found(place: Any) -> None:
    mount = batchhvd.Mount("nosuchaccount", "files", "data")
    place.run("true", mounts=[mount])


def conflict(place: Any) -> None:
    place.run("echo one", name="taken")
    place.run("echo two", name="taken")


def refused(place: Any) -> None:
    place.run("true", nodes=99)


def refused_name(place: Any) -> None:
    place.group.create_storage_account("No Such Name")


def not_allowed(place: Any) -> None:
    list(batchhvd.connect(place.group._connection.endpoint, "a wrong token").groups())


def link_expired(place: Any) -> None:
    job = place.run("echo x").wait(timeout=30)
    (found,) = [document for document in job._listed("stdouterr") if document["name"] == "stdout.txt"]
    expired = {**found, "downloadUrl": found["downloadUrl"].replace("se=2", "se=1")}
    output_entry(job._connection, expired, "").read()


def retired(place: Any) -> None:
    batchhvd.connect(credential="t", subscription="s").group("g").create_workspace("w", location="eastus")


def unavailable(place: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    batchhvd.connect(f"http://127.0.0.1:{port}", "t").group("thegroup").refresh()


def too_late(place: Any) -> None:
    job = place.run("sleep 30", name=f"slow{os.urandom(3).hex()}")
    try:
        job.wait(timeout=0.3)
    finally:
        job.terminate()


def delete_too_late(place: Any) -> None:
    job = place.run("trap '' TERM; sleep 30 & wait; wait", name="stubborn").wait("running", timeout=30)
    job.delete(timeout=0)


class Unreadable:
    """Can be pickled, and not be read."""

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return int, ("no number",)


def value_unreadable(place: Any) -> None:
    place.experiment.submit(Unreadable, cluster=place.cluster).result(timeout=60)


def resource_failed(place: Any) -> None:
    cluster = place.workspace.create_cluster("huge", vm_size="Standard_NC6", nodes=1000)
    try:
        cluster.wait(timeout=30)
    finally:
        cluster.delete(timeout=60)


def job_failed(place: Any) -> None:
    place.run("exit 3", name=f"bad{os.urandom(3).hex()}").wait(timeout=30)


def wrong_argument(place: Any) -> None:
    place.share.upload("nosuchfile.py")


def wrong_file(place: Any) -> None:
    batchhvd.JobSpec.read(ROOT / "tests/data/jobs/tutorial-4-nodes.json")


def engine_unknown(place: Any) -> None:
    load("slurp")


def drill_on_nothing(place: Any) -> None:
    drills.kill_rank(Path(place.group._connection.root), 7)


def engine_busy(place: Any) -> None:
    with TemporaryDirectory() as folder:
        refuses = "cat > /dev/null; echo 'sbatch: error: Slurm controller in standby mode' >&2; exit 1"
        for name in ("sbatch", "squeue"):
            Path(folder, name).write_text(f"#!/bin/sh\n{refuses}\n")
            Path(folder, name).chmod(0o755)
        own = {"folder": f"{folder}/task", "logs": f"{folder}/logs"}
        task = Task(name="x", launch="single", command="true", nodes=("a",), ranks=(1,), **own)  # type: ignore[arg-type]
        load("slurm", bin=folder, wait=30).submit(task)


def engine_missing(place: Any) -> None:
    load("slurm", bin="/nonexistent").nodes()


def horovod_missing(place: Any) -> None:
    _ranks("w.find_spec = lambda _: None")


def horovod_broken(place: Any) -> None:
    """Its package is there and its library is not, as after an upgrade of the framework that failed."""
    if find_spec("horovod") is None:
        pytest.skip("Horovod is not installed")
    _ranks("import types; sys.modules['horovod.torch'] = types.ModuleType('horovod.torch')")


def _ranks(before: str) -> None:
    """Runs a rank of two in a process of its own, and raises what it raised. Keras is not asked: it takes seconds."""
    code = f"""
import pickle, sys
try:
    import batchhvd.trainer.hvd.world as w
    w.keras_backend = lambda: "torch"
    {before}
    w.init()
except Exception as error:
    sys.stdout.buffer.write(pickle.dumps(error))
"""
    where = {**os.environ, "HOROVOD_RANK": "0", "HOROVOD_SIZE": "2"}
    raise pickle.loads(subprocess.run([sys.executable, "-c", code], env=where, capture_output=True, check=True).stdout)


# the cause, the class, what the message names, and a word of what to do next
CASES: list[tuple[Callable[[Any], None], type[BatchHvdError], str, str]] = [
    (not_found, NotFoundError, "job 'nosuchjob'", "Check the name, or create"),
    (parent_not_found, NotFoundError, "experiment 'e'", "create the resource first"),
    (share_not_found, NotFoundError, "share 'nosuchshare'", "create the resource first"),
    (account_not_found, NotFoundError, "'nosuchaccount'", "group.create_storage_account()"),
    (conflict, ConflictError, "job 'taken'", "another name"),
    (refused, BadRequestError, "nodeCount", "resize it first"),
    (refused_name, BadRequestError, "storage account 'No Such Name'", "Correct the request"),
    (not_allowed, AccessDeniedError, "resource groups", "Check the credential"),
    (link_expired, AccessDeniedError, "'stdout.txt'", "ask for a new one"),
    (retired, ServiceRetiredError, "workspace 'w'", "batchhvd.local()"),
    (unavailable, UnavailableError, "group 'thegroup'", "start the service"),
    (too_late, WaitTimeoutError, "job 'slow", "wait again"),
    (delete_too_late, WaitTimeoutError, "job 'stubborn'", "exists()"),
    (resource_failed, ResourceFailedError, "cluster 'huge'", "explain()"),
    (job_failed, JobFailedError, "job 'bad", "explain()"),
    (value_unreadable, RemoteError, "what rank 0 of job 'tries-", "cannot be read here: ValueError"),
    (wrong_argument, SpecError, "'nosuchfile.py'", "give a path"),
    (wrong_file, SpecError, "tutorial-4-nodes.json:", "AZURE_BATCHAI_STORAGE_ACCOUNT"),
    (engine_unknown, EngineError, "'slurp'", "processes"),
    (drill_on_nothing, EngineError, "rank 7", "job.explain()"),
    (engine_busy, EngineBusyError, "standby mode", "at the moment"),
    (engine_missing, EngineMissingError, "sbatch", "apt-get install"),
    (horovod_missing, HorovodMissingError, "2 ranks", "-m batchhvd.trainer.install"),
    (horovod_broken, HorovodBrokenError, "Keras backend torch", "-m batchhvd.trainer.install"),
]


@pytest.mark.parametrize(("cause", "kind", "which", "remedy"), CASES, ids=[case[0].__name__ for case in CASES])
def test_a_real_cause(
    cause: Callable[[Any], None], kind: type[BatchHvdError], which: str, remedy: str, place: Any
) -> None:
    with pytest.raises(BatchHvdError) as caught:
        cause(place)
    text = str(caught.value)
    assert type(caught.value) is kind, text
    assert which in text and remedy in text, text
    assert "Traceback" not in text and "sig=" not in text


def test_every_class_has_a_case() -> None:
    known = {kind.__name__ for kind in vars(batchhvd.errors).values() if _is_error(kind)}
    assert known == {"BatchHvdError", "ServiceError"} | {case[1].__name__ for case in CASES}


def _is_error(thing: object) -> bool:
    return isinstance(thing, type) and issubclass(thing, BatchHvdError)


def test_the_evidence_of_a_refusal(place: Any) -> None:
    with pytest.raises(ServiceError) as caught:
        refused(place)
    assert (caught.value.status, caught.value.target) == (400, "/properties/nodeCount")
    assert caught.value.code and caught.value.request_id
    assert caught.value.request_id in _log(place)


def _log(place: Any) -> str:
    return (Path(place.group._connection.root) / "service.log").read_text()


def test_the_page_about_errors_names_every_class() -> None:
    page = (ROOT / "docs" / "errors.md").read_text()
    for kind in vars(batchhvd.errors).values():
        assert not _is_error(kind) or f"`{kind.__name__}`" in page, kind
