"""Takes the pictures of the status page: idle, running, failed, and the running one as a phone shows it.

    python docs/screenshots.py [--chromium PROGRAM] [--to docs/images]

It starts a service in a temporary folder, lets it run two small jobs that print what a training prints, and ends it.
It needs Chromium and the package playwright.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

import batchhvd
from batchhvd import CustomToolkit, JobSpec
from batchhvd.resources.cluster import Cluster
from batchhvd.resources.experiment import Experiment
from batchhvd.resources.job import Job
from batchhvd.resources.share import FileShare
from batchhvd.wire import local_service
from batchhvd.wire.connection import Connection
from batchhvd.wire.facts.identity import SUBSCRIPTION
from batchhvd.wire.page_link import page_link

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 400, "height": 844}
TRAINING = """
import json, math, sys, time
print("Loading digits: 1437 training samples, 360 test samples", flush=True)
for epoch in range(1, 13):
    loss, val = 2.2 * math.exp(-epoch / 4) + 0.05, 2.1 * math.exp(-epoch / 4.4) + 0.14 + 0.02 * (epoch % 3)
    print(f"Epoch {epoch}/12  loss {loss:.4f}  accuracy {1 - loss / 3:.4f}  val_loss {val:.4f}  "
          f"val_accuracy {1 - val / 3:.4f}  {3900 + 17 * epoch} images/s  1.{epoch} s", flush=True)
    if epoch == 9 and "stay" in sys.argv:
        time.sleep(600)
    if epoch == 5 and "fail" in sys.argv:
        raise FileNotFoundError("no such checkpoint: /mnt/batch/tasks/shared/checkpoint-5.npz")
"""


def main() -> None:
    """Takes all pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chromium", default=shutil.which("chromium") or shutil.which("google-chrome"))
    parser.add_argument("--to", type=Path, default=Path(__file__).parent / "images")
    options = parser.parse_args()
    options.to.mkdir(parents=True, exist_ok=True)
    with world() as (root, experiment, cluster, share), browser(options.chromium) as chromium:
        take(chromium, root, options.to, experiment, cluster, share)


def take(chromium: Browser, root: Path, to: Path, experiment: Experiment, cluster: Cluster, share: FileShare) -> None:
    """Takes one picture after the other, as the world comes to each state."""
    page = opened(chromium, root, DESKTOP)
    page.wait_for_selector(".node.idle >> nth=3")
    page.screenshot(path=to / "status-idle.png", clip={"x": 0, "y": 0, "width": 1280, "height": 430})
    running = submit(experiment, cluster, share, "cifar_distributed", "stay", nodes=3)
    submit(experiment, cluster, share, "cifar_longer", "", nodes=4)
    page.wait_for_selector("text=Epoch 9/12")
    page.wait_for_selector("#queue .sheet")
    page.screenshot(path=to / "status-running.png")
    phone = opened(chromium, root, PHONE)
    phone.wait_for_selector("text=Epoch 9/12")
    phone.screenshot(path=to / "status-phone.png", full_page=True)
    phone.close()
    running.terminate().wait("ended")
    failed = submit(experiment, cluster, share, "cifar_resumed", "fail", nodes=2)
    failed.wait("ended")
    page.click(f"button:has-text('{failed.name}')")
    page.wait_for_selector("#why.failed")
    page.wait_for_selector("text=Epoch 5/12")
    page.screenshot(path=to / "status-failed.png")


@contextmanager
def world() -> Iterator[tuple[Path, Experiment, Cluster, FileShare]]:
    """A service of its own with a cluster of four nodes and a share with the script."""
    with tempfile.TemporaryDirectory(prefix="batchhvd-") as folder:
        session = batchhvd.local(folder)
        try:
            group = session.create_group("batchai.horovod", location="eastus")
            workspace = group.create_workspace("batchaidev")
            share = group.create_storage_account("mystorageaccount").create_share("myshare")
            Path(folder, "training.py").write_text(TRAINING, encoding="utf-8")
            share.upload(Path(folder, "training.py"))
            cluster = workspace.create_cluster("nc6cluster", vm_size="Standard_NC6", nodes=4)
            yield Path(folder), workspace.create_experiment("cifar"), cluster.wait(), share
            group.delete()
        finally:
            local_service.stop(folder)


def submit(experiment: Experiment, cluster: Cluster, share: FileShare, name: str, how: str, nodes: int) -> Job:
    """Starts a job that prints what a training prints."""
    mount = share.mount("myshare")
    task = CustomToolkit(f"python3 {mount / 'training.py'} {how}")
    spec = JobSpec(nodes=nodes, task=task, mounts=[mount], logs=mount / "logs")
    return experiment.create_job(name, spec, cluster=cluster)


@contextmanager
def browser(program: str | None) -> Iterator[Browser]:
    """A browser without a window."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield chromium
        chromium.close()


def opened(chromium: Browser, root: Path, size: Any) -> Page:
    """The status page as `batchhvd status --open` opens it."""
    page = chromium.new_page(viewport=size)
    page.set_default_timeout(180_000)  # of a busy machine
    page.goto(link(root))
    return page


def link(root: Path) -> str:
    """The link that `batchhvd status --open` prints."""
    return page_link(Connection(local_service.read_endpoint(root), SUBSCRIPTION, root=str(root)))


if __name__ == "__main__":
    main()
