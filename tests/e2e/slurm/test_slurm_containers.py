"""Images on nodes of Slurm: each node is a container there, and the ranks of several nodes meet."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchhvd.engines.base import ENDED, Status, Task
from batchhvd.engines.slurm import Slurm
from tests.support.images import podman
from tests.support.slurm import Bed
from tests.support.waiting import until

pytestmark = pytest.mark.slurm

ASK = """
exec 3<>/dev/tcp/$HOROVOD_GLOO_RENDEZVOUS_ADDR/$HOROVOD_GLOO_RENDEZVOUS_PORT && echo met
echo "rank $HOROVOD_RANK of $HOROVOD_SIZE in the $WHO"
[ ! -e /usr/bin ] && touch $AZ_BATCHAI_SHARED_JOB_TEMP/$HOROVOD_RANK
"""


def test_two_nodes_run_an_image_from_an_archive_and_their_ranks_meet(
    slurm: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each node has a storage of its own (in its own /tmp), which is empty before and after."""
    with podman(tmp_path / "podman") as made:
        for name, value in made.variables.items():
            monkeypatch.setenv(name, value)
        for path in made.folder.glob("*.conf"):
            path.write_text(path.read_text().replace(str(made.folder), "/tmp/of-the-node"))
        status = _run(slurm, tmp_path, f"oci-archive:{made.archive}")
        assert (status.state, status.error) == ("succeeded", "")
        lines = (tmp_path / "logs" / "stdout.txt").read_text().splitlines()
        assert sorted(lines) == ["met", "met", "rank 0 of 2 in the image", "rank 1 of 2 in the image"]
        hosts = [path.read_text() for path in sorted((tmp_path / "logs").glob("execution-*.log"))]
        assert ["on node" in text and "podman runs oci-archive:" in text for text in hosts] == [True, True]
        for node in slurm.nodes[:2]:
            left = slurm("on-node", node, "sh", "-c", "podman ps -aq; podman images -aq")
            assert left.strip() == "", node


def _run(slurm: Bed, place: Path, image: str) -> Status:
    folder = place / "task"
    folder.mkdir()
    engine = Slurm(bin=str(slurm.bin))
    box = {"engine": "podman", "image": image, "server": "", "username": "", "password": "", "shm": ""}
    task = Task(
        name="t",
        folder=str(folder),
        logs=str(place / "logs"),
        launch="horovod",
        command=ASK,
        nodes=("a", "b"),
        ranks=(1, 1),
        container=box,
        options={"nodelist": ",".join(slurm.nodes[:2])},
        environment={"AZ_BATCHAI_SHARED_JOB_TEMP": str(folder)},
    )
    handle = engine.submit(task)
    until(lambda: engine.status([handle])[handle].state in ENDED, 60, pause=0.2)
    return engine.status([handle])[handle]
