"""Plans: what would happen, and what would go wrong, said before anything is done."""

import json
from pathlib import Path

import pytest
from attrs import evolve, frozen

from batchhvd import CustomMpi, CustomToolkit, Horovod, InputDirectory, JobSpec, Mount, OutputDirectory, Plan, Volume
from batchhvd.advice.plan import make
from batchhvd.wire.facts.containers import Containers

DATA = Path(__file__).parents[2] / "data" / "jobs"
SHARE = Mount("store", "myshare", "ext")
SPEC = JobSpec(
    nodes=4,
    task=Horovod(SHARE / "cifar/train.py", f"--dir={SHARE / 'cifar'}"),
    mounts=[SHARE],
    logs=SHARE / "cifar",
    environment={"A": "b"},
    secrets={"TOKEN": "hidden"},
)


@frozen
class World:
    """A service with one cluster and some files, by share and path."""

    files: frozenset[str] = frozenset({"myshare/cifar", "myshare/cifar/train.py"})
    nodes: int | None = 4
    vm_size: str = "STANDARD_D2"
    local: bool = True
    rejects: tuple[str, ...] | None = ()
    containers: Containers = Containers()
    cluster_name: str = "nc6"

    def refusals(self, spec: JobSpec, name: str) -> tuple[str, ...] | None:
        return self.rejects

    def cluster(self) -> tuple[str, str, int] | None:
        return None if self.nodes is None else ("nc6", self.vm_size, self.nodes)

    def preparation(self) -> str:
        return "skipped: not root"

    def has_share(self, mount: Mount) -> bool:
        return any(file.startswith(f"{mount.share}/") for file in self.files)

    def has_file(self, mount: Mount, path: str) -> bool | None:
        return f"{mount.share}/{path}" in self.files if self.has_share(mount) else None


def plan(spec: JobSpec = SPEC, world: World = World()) -> Plan:  # noqa: B008  # frozen
    return make(spec, "try", world)


def test_a_job_that_is_fine() -> None:
    found = plan()
    assert found.good and found.warnings == ()
    assert (found.ranks, found.launch, len(found.nodes)) == (4, "horovod", 4)
    assert found.command == f"python {SHARE}/cifar/train.py --dir={SHARE}/cifar"
    assert [node.ranks for node in found.nodes] == [(0,), (1,), (2,), (3,)]
    assert found.nodes[3].variables["HOROVOD_SIZE"] == "4" and found.nodes[0].variables["A"] == "b"
    assert [(mount.path, mount.found) for mount in found.mounts] == [("ext", True)]


def test_three_forms_and_no_secret_in_any() -> None:
    found = plan()
    text, table, document = str(found), found.table(), json.dumps(found.to_document())
    assert "4: 1 on each node" in text and ("launch", "horovod") in table
    assert json.loads(document)["nodes"][1]["ranks"] == [1]
    assert "hidden" not in text + document + found._repr_html_()


@pytest.mark.parametrize(
    ("processes", "expected"),
    [(8, [2, 2, 2, 2]), (6, [2, 2, 1, 1]), (3, [1, 1, 1, 0]), (None, [1, 1, 1, 1])],
)
def test_ranks_are_spread_evenly(processes: int | None, expected: list[int]) -> None:
    found = plan(evolve(SPEC, task=Horovod("a.py", processes=processes)))
    assert [len(node.ranks) for node in found.nodes] == expected
    assert [rank for node in found.nodes for rank in node.ranks] == list(range(sum(expected)))


def test_other_ways_to_launch() -> None:
    assert plan(evolve(SPEC, task=CustomMpi("run $AZ_BATCHAI_INPUT_X"))).launch == "mpi"
    once = plan(evolve(SPEC, task=CustomToolkit("echo hi")))
    assert (once.launch, once.command, once.ranks) == ("single", "echo hi", 1)
    assert [len(node.ranks) for node in once.nodes] == [1, 0, 0, 0]


@pytest.mark.parametrize(
    ("spec", "world", "problem"),
    [
        (
            SPEC,
            World(nodes=None, rejects=("/properties/cluster/id names it.",)),
            "it: create it with workspace.create_",
        ),
        (SPEC, World(nodes=None, rejects=None), "workspace.create_cluster()"),
        (SPEC, World(nodes=2, rejects=("/properties/nodeCount must be at most 2.",)), "at most 2: cluster.resize(4)"),
        (SPEC, World(rejects=("/properties/nodeCount must be at least 1.",)), "at least 1."),
        (SPEC, World(frozenset({"myshare/other"})), "has no 'cifar/train.py': share.upload()"),
        (SPEC, World(frozenset(), rejects=None), "share 'myshare' of account 'store' does not exist"),
        (
            SPEC,
            World(frozenset(), rejects=("/properties/mountVolumes/azureFileShares/0/azureFileUrl names x.",)),
            "names x: create it with create_share()",
        ),
        (SPEC, World(rejects=("The job exists already.",)), "The job exists already."),
        (evolve(SPEC, inputs=[InputDirectory("X", SHARE / "none")]), World(), "input X"),
    ],
)
def test_what_would_go_wrong(spec: JobSpec, world: World, problem: str) -> None:
    found = plan(spec, world)
    assert not found.good
    assert any(problem in text for text in found.problems), found.problems
    assert f"problem      {found.problems[0]}" in str(found)


def test_a_service_that_does_not_check_is_said_to() -> None:
    found = plan(SPEC, World(rejects=None))
    assert found.good and not found.checked
    assert "cannot check a job without creating it" in found.warnings[0]
    assert plan().checked


def test_a_service_elsewhere_has_other_limits() -> None:
    spec = evolve(SPEC, volumes=[Volume("azureBlobFileSystems", "blob")], image="tensorflow/tensorflow:1.8.0")
    found = plan(spec, World(local=False))
    assert found.good and not any("container" in text for text in found.warnings)
    assert any("tensorflow/tensorflow:1.8.0 is not run here" in text for text in plan(spec).warnings)
    run = plan(spec, World(containers=Containers("podman"))).warnings
    assert not any("container image" in text for text in run)
    assert any("podman runs this job in the image" in text and "pulled from its registry first" in text for text in run)
    assert any("blobfuse" in text for text in run)
    without = plan(spec, World(containers=Containers(why="podman is not installed"))).warnings
    assert any("is not run here: the job runs on the machine itself (podman is not installed)" in t for t in without)


@pytest.mark.parametrize(
    ("vm_size", "successor"),
    [
        ("STANDARD_NC6", "NC4as_T4_v3"),
        ("standard_nc24rs_v3", "NC96ads_A100_v4"),
        ("Standard_NC24r", "NC64as_T4_v3"),
        ("Standard_ND24rs", "ND96amsr_A100_v4"),
        ("STANDARD_D2", ""),
        ("STANDARD_NC4AS_T4_V3", ""),
    ],
)
def test_retired_sizes(vm_size: str, successor: str) -> None:
    warnings = plan(SPEC, World(vm_size=vm_size)).warnings
    assert [successor in text for text in warnings] == ([True] if successor else [])


def test_a_learning_rate_for_many_ranks() -> None:
    assert "learning rate" in plan(evolve(SPEC, task=Horovod("a.py", "--lr 0.1"))).warnings[0]
    assert plan(evolve(SPEC, task=Horovod("a.py", "--lr 0.1"), nodes=1)).warnings == ()


def test_outputs_and_their_variables() -> None:
    found = plan(evolve(SPEC, outputs=[OutputDirectory("MODEL", SHARE, "models")]))
    assert found.nodes[0].variables["AZ_BATCHAI_OUTPUT_MODEL"] == f"{SHARE}/…/outputs/models"


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_published_job_can_be_planned() -> None:
    for path in sorted(DATA.glob("*.json")):
        found = plan(JobSpec.read(path, account="store"), World(nodes=64))
        assert found.nodes and str(found)
