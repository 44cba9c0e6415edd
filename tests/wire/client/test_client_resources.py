"""The resources: made, found again, listed, shown, pickled, deleted."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
import time
from typing import Any

import pytest

from batchhvd import (
    AutoScale,
    BadRequestError,
    ConflictError,
    JobFailedError,
    NotFoundError,
    Resource,
    ResourceGroup,
    SpecError,
)
from batchhvd.resources.session import Session
from tests.support.proxy import Cutter, through


def test_create_may_be_repeated(place: Any) -> None:
    again = place.group.create_workspace("work").create_cluster("nodes", vm_size="STANDARD_NC6", nodes=2)
    assert again == place.cluster
    assert place.workspace.create_experiment("tries") == place.experiment
    assert place.group.create_storage_account(place.share.account.name).create_share("files") == place.share
    place.share.create_directory("logs")


def test_a_premium_account_is_of_the_kind_that_is_asked_for(place: Any) -> None:
    account = place.group.create_storage_account("premiumfiles", sku="Premium_LRS", kind="FileStorage")
    assert account.document["kind"] == "FileStorage" and account.document["sku"]["name"] == "Premium_LRS"
    with pytest.raises(BadRequestError, match="FileStorage"):
        place.group.create_storage_account("mixedfiles", sku="Standard_LRS", kind="FileStorage")


def test_the_same_name_with_other_content_is_a_conflict(place: Any) -> None:
    with pytest.raises(ConflictError, match="cluster 'nodes' cannot be created"):
        place.workspace.create_cluster("nodes", vm_size="Standard_D2", nodes=2)


def test_a_handle_asks_nobody_and_finds_what_is_there(session: Session, place: Any) -> None:
    handle = session.group(place.group.name).workspace("work").cluster("nodes")
    assert repr(handle) == "Cluster('nodes', not read yet)" and "not read yet" in handle._repr_html_()
    assert handle == place.cluster and handle.id == place.cluster.id
    handle.refresh()
    assert (handle.state, handle.vm_size, handle.target, handle.nodes.total) == ("steady", "STANDARD_NC6", 2, 2)
    assert handle.priority == "dedicated"


def test_a_handle_that_was_never_read_is_read_once(
    session: Session, place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = place.run("true").wait(timeout=60)
    handles: list[tuple[Any, str, object]] = [
        (session.group(place.group.name), "location", "eastus"),
        (place.group.workspace("work"), "tags", {}),
        (place.workspace.experiment("tries"), "provisioning", "succeeded"),
        (place.workspace.cluster("nodes"), "nodes", place.cluster.refresh().nodes),
        (place.experiment.job(job.name), "exit_code", 0),
        (place.experiment.job(job.name), "spec", job.spec),
        (place.experiment.job(job.name), "document", job.document),
        (place.group.storage_account(place.share.account.name), "endpoint", place.share.account.endpoint),
        (place.share.account.share(place.share.name), "quota", place.share.refresh().quota),
    ]
    reads: list[Any] = []

    def counting(read: Any) -> Any:
        def count(handle: Any) -> Any:
            reads.append(handle)
            return read(handle)

        return count

    for kind in {type(handle) for handle, *_ in handles}:
        monkeypatch.setattr(kind, "_read", counting(kind._read))
    for handle, field, expected in handles:
        text = f"{handle!r} {handle._repr_html_()} {handle.id} {handle == place.group}"
        assert reads == [] and f"{type(handle).__name__}({handle.name!r}, not read yet)" in text
        assert not re.search("no nodes|=0|=None|state", text)
        assert getattr(handle, field) == getattr(handle, field) == expected
        assert reads == [handle] and handle.provisioning is not None and "not read" not in repr(handle)
        reads.clear()
    with pytest.raises(AttributeError, match="no attribute 'stat'"):
        handles[0][0].stat  # noqa: B018
    with pytest.raises(NotFoundError, match="job 'never' cannot be read"):
        place.experiment.job("never").state  # noqa: B018
    assert reads == [place.experiment.job("never")]


def test_what_is_not_there(session: Session, place: Any) -> None:
    for missing in (
        session.group("no.such.group"),
        place.group.workspace("w"),
        place.workspace.experiment("e"),
        place.workspace.cluster("c"),
        place.experiment.job("j"),
        place.group.storage_account("nosuchaccount"),
        place.share.account.share("nosuchshare"),
    ):
        assert not missing.exists()
        with pytest.raises(NotFoundError, match=f"{missing.kind} '{missing.name}' cannot be read"):
            missing.refresh()
        missing.delete()


def test_listings(session: Session, make_place: Any) -> None:
    place = make_place(session, "listed")
    assert place.group in list(session.groups())
    assert list(place.group.workspaces()) == [place.workspace]
    assert list(place.group.storage_accounts()) == [place.share.account]
    assert list(place.workspace.experiments()) == [place.experiment]
    clusters = place.workspace.clusters()
    assert [cluster.state for cluster in clusters] == ["steady"] == [cluster.state for cluster in clusters]
    assert list(place.share.account.shares()) == [place.share]
    assert "nodes" in clusters._repr_html_()
    place.group.delete()


def test_what_is_shown_has_no_secret(place: Any) -> None:
    key = place.share.account.read_key()
    for resource in (place.group, place.workspace, place.experiment, place.cluster, place.share, place.share.account):
        assert repr(resource).startswith(f"{type(resource).__name__}('{resource.name}'")
        assert "\n" not in repr(resource)
        assert key not in repr(resource) + resource._repr_html_() + str(resource.document)


def test_a_handle_goes_into_another_process(session: Session, place: Any, tmp_path: Any) -> None:
    job = place.run("echo from the first; exit 3").wait("ended", timeout=30)
    handles = [session, place.group, place.cluster, place.share, job]
    data = pickle.dumps(handles)
    assert place.share.account.read_key().encode() not in data
    path = tmp_path / "händles of mine"
    path.write_bytes(data)
    code = (
        "import pickle, sys\n"
        "session, group, cluster, share, job = pickle.load(open(sys.argv[1], 'rb'))\n"
        "print(session.group(group.name) == group, cluster.refresh().state, share.exists(), job.refresh().exit_code)\n"
        "print(''.join(job.stream()), end='')"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["True steady True 3", "from the first"], done.stderr


def test_equal_by_id_and_service(place: Any) -> None:
    other = Resource(place.workspace, "x")
    assert {place.cluster, place.workspace.cluster("NODES")} == {place.cluster}
    assert place.cluster != other and place.cluster != "nodes"


@pytest.mark.parametrize("name", ["", "   ", "a/b", None])
def test_a_name_that_cannot_be_one(session: Session, name: Any) -> None:
    with pytest.raises(SpecError, match="is not the name of a group"):
        session.group(name)


def test_a_cluster_is_resized(group: ResourceGroup) -> None:
    cluster = group.create_workspace("w").create_cluster("c", vm_size="Standard_NC6", nodes=1)
    assert cluster.state == "resizing"
    assert cluster.wait(timeout=30).nodes.idle == 1
    assert cluster.resize(3).target == 3
    assert cluster.wait(timeout=30).nodes.total == 3
    assert cluster.resize(AutoScale(0, 4)).target == AutoScale(0, 4)
    cluster.resize(0).wait(timeout=30)
    assert (cluster.nodes.total, str(cluster.nodes)) == (0, "no nodes")
    with pytest.raises(SpecError):
        cluster.resize(-1)


def test_a_cluster_needs_one_way_of_saying_what_it_is(place: Any) -> None:
    with pytest.raises(SpecError, match="either a spec or a vm_size"):
        place.workspace.create_cluster("x")


def test_a_group_goes_with_all_that_is_in_it(session: Session, make_place: Any) -> None:
    made = make_place(session, "doomed")
    job = made.run("sleep 600", name="sleeper").wait("running", timeout=30)
    inside = made.group.contents()
    kinds = ["workspace", "cluster", "experiment", "job", "storage account", "share"]
    assert [resource.kind for resource in inside] == kinds
    assert job in inside
    made.group.delete(timeout=30)
    assert not made.group.exists() and not job.exists()
    assert made.group.name not in [group.name for group in session.groups()]


def test_jobs(place: Any) -> None:
    job = place.run("echo hello; echo there >&2", environment={"A": "ä b"}, secrets={"TOKEN": "s3cret"})
    assert job.state in ("queued", "running")
    job.wait(timeout=30)
    assert (job.state, job.exit_code, job.errors) == ("succeeded", 0, ())
    assert job.started is not None and job.ended is not None and job.ended >= job.started
    files = {file.name: file for file in job.files()}
    assert files["stdout.txt"].size == 6 and files["stdout.txt"].text() == "hello\n"
    assert files["stderr.txt"].read() == b"there\n"
    assert "execution.log" in files
    assert "s3cret" not in str(job.document) + repr(job) + repr(job.spec)
    assert job.spec is not None and job.spec.environment == {"A": "ä b"}
    assert [found.state for found in place.experiment.jobs() if found == job] == ["succeeded"]
    assert place.experiment.job(job.name).spec == job.spec


def test_output_directories(place: Any, tmp_path: Any) -> None:
    from batchhvd import OutputDirectory

    mount = place.share.mount("data")
    outputs = [OutputDirectory("MODEL", mount, "models")]
    command = 'mkdir -p "$AZ_BATCHAI_OUTPUT_MODEL/deep"; printf 123 > "$AZ_BATCHAI_OUTPUT_MODEL/m.h5"'
    job = place.run(command, outputs=outputs).wait(timeout=30)
    found = {file.name: file for file in job.files("MODEL")}
    assert (found["m.h5"].size, found["deep"].is_directory) == (3, True)
    assert found["m.h5"].download(tmp_path).read_bytes() == b"123"
    assert list(job.files("MODEL", "deep")) == []
    with pytest.raises(NotFoundError):
        found["deep"].read()
    with pytest.raises((BadRequestError, NotFoundError)):
        list(job.files("NONE"))


def test_a_failed_job_says_who_failed_first(place: Any) -> None:
    job = place.run("for i in $(seq 30); do echo line $i; done; echo 'the reason' >&2; exit 3")
    with pytest.raises(JobFailedError) as caught:
        job.wait(timeout=30)
    error = caught.value
    assert (error.exit_code, error.rank) == (3, 0)
    assert error.node.startswith("tvm-") and error.resource == job.id
    assert "the reason" in error.tail and len(error.tail) == 20
    assert {"stdout.txt", "stderr.txt"} <= set(error.files)
    assert "the reason" in str(error) and job.name in str(error) and "explain()" in str(error)
    assert job.wait("ended", timeout=5).state == "failed"


def test_a_job_is_terminated(place: Any) -> None:
    job = place.run("echo begun; sleep 600").wait("running", timeout=30)
    assert job.terminate().state == "failed"
    assert job.terminate().state == "failed"
    with pytest.raises(JobFailedError, match="(?i)terminated"):
        job.wait(timeout=5)
    with pytest.raises(JobFailedError):
        job.wait("running", timeout=5)


def test_waiting_for_something_unknown(place: Any) -> None:
    with pytest.raises(SpecError, match="running, succeeded, ended"):
        place.experiment.job("j").wait("done")


def test_ctrl_c_leaves_the_job_alone(place: Any) -> None:
    class Impatient:
        def monotonic(self) -> float:
            return 0.0

        def sleep(self, seconds: float) -> None:
            raise KeyboardInterrupt

    job = place.run("sleep 60").wait("running", timeout=30)
    impatient = Session(place.group.session._connection, clock=Impatient())
    with pytest.raises(KeyboardInterrupt):
        impatient.group(place.group.name).workspace("work").experiment("tries").job(job.name).wait()
    assert job.refresh().state == "running"
    job.terminate()


def test_what_may_be_repeated_survives_a_lost_connection(service: Any, place: Any, tmp_path: Any) -> None:
    proxy = Cutter(lambda: service.url, most=2000)  # an answer has 600 bytes: every second or third is cut
    far = through(proxy, service.root, tmp_path / "far")
    account = far.group(place.group.name).storage_account(place.share.account.name)
    keys = set()
    for _ in range(6):
        account.key = ""
        keys.add(account.read_key())
    assert keys == {place.share.account.read_key()} and proxy.cuts
    proxy.close()


def test_pages(session: Session, group: ResourceGroup, service: Any) -> None:
    workspace = group.create_workspace("w")
    names = [f"e{number:02}" for number in range(7)]
    for name in names:
        workspace.create_experiment(name)
    assert [experiment.name for experiment in workspace.experiments()] == names
    pages = session._connection.batchai.experiments.list_by_workspace(group.name, "w", _two_a_page()).by_page()
    assert [[model.name for model in page] for page in pages] == [names[:2], names[2:4], names[4:6], names[6:]]


def _two_a_page() -> Any:
    from azure.mgmt.batchai.models import ExperimentsListByWorkspaceOptions

    return ExperimentsListByWorkspaceOptions(max_results=2)


def test_many_jobs(group: ResourceGroup, place: Any) -> None:
    workspace = group.create_workspace("w")
    one = workspace.create_cluster("c", vm_size="Standard_NC6", nodes=1)
    experiment, spec = workspace.create_experiment("e"), place.spec("sleep 600")
    started = time.monotonic()
    jobs = [experiment.create_job(f"j{number}", spec, cluster=one) for number in range(20)]
    assert time.monotonic() - started < 10
    assert [job.name for job in experiment.jobs()] == [job.name for job in jobs]
    assert [job.state for job in experiment.jobs()].count("queued") >= 19
    assert "queued, " in jobs[-1].refresh().describe()
