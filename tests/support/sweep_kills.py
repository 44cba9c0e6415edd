"""A sweep whose client and service are killed at random: it ends with the table of an undisturbed one."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from attrs import define, field

import batchhvd
from batchhvd import sweeps
from batchhvd.errors import NotFoundError
from batchhvd.resources.sweep import Sweep
from batchhvd.wire import local_service

EPOCHS = 5
_PATIENCE = 300.0  # seconds for the sweep after the last kill
_DRIVER = """
import sys
import batchhvd
from batchhvd import sweeps
from tests.support.sweep_kills import sweep
root, name, points, rule = sys.argv[1:]
with batchhvd.local(root) as session:
    sweep(session, name, int(points), rule).run(timeout=200)
"""
_TRAINING = """
echo begun >> $AZ_BATCHAI_JOB_MOUNT_ROOT/data/begun/{name}-$AZ_BATCHAI_JOB_NAME
for epoch in $(seq 5)
do
    echo '{{"epoch": '$epoch', "score": '$(( {{x}} * 10 + epoch ))'}}' >> $AZ_BATCHAI_STDOUTERR_DIR/metrics.jsonl
    sleep {{pause}}
done
"""


@define
class Storm:
    """A root whose service and clients die.

    Attributes:
        root: the service's folder, which must not exist yet.
        points: how many points a sweep has.
        seed: decides who dies and when.
    """

    root: Path
    points: int = 12
    seed: int = 0
    killed: Counter[str] = field(factory=Counter)
    again: int = 0
    _drivers: int = 0

    def calm(self, name: str, rule: str = "") -> list[dict[str, object]]:
        """Runs a sweep that nobody disturbs, and returns its table."""
        with batchhvd.local(self.root) as session:
            place(session)
            return table(sweep(session, name, self.points, rule).run(timeout=_PATIENCE))

    def blow(self, name: str, kills: int, rule: str = "") -> list[dict[str, object]]:
        """Runs a sweep, kills its client or the service some times, and returns its table."""
        generator = random.Random(f"{self.seed}{name}")
        driver = self._driver(name, rule)
        try:
            for _ in range(kills):
                time.sleep(generator.uniform(0.05, 1.2))
                if driver.poll() is not None and self._is_over(name):
                    break
                who = generator.choice(["client", "service"])
                self._kill_service() if who == "service" else driver.kill()
                self.killed[who] += 1
                driver = self._lives(driver, name, rule)
            end = time.monotonic() + _PATIENCE
            while driver.wait(_PATIENCE) and time.monotonic() < end:
                driver = self._lives(driver, name, rule)
        finally:
            driver.kill()
            driver.wait()
        with batchhvd.local(self.root) as session:
            return table(place(session)[0].open_sweep(name).refresh())

    def started(self, name: str) -> dict[str, int]:
        """Returns how often each job of a sweep has begun, by its name."""
        folder = next((self.root / "shares").glob("*/files/begun"))
        files = [path for path in folder.iterdir() if path.name.startswith(f"{name}-")]
        return {path.name.partition("-")[2]: len(path.read_text().split()) for path in files}

    def end(self) -> None:
        """Ends the service."""
        with batchhvd.local(self.root) as session:
            session.stop_service()

    def _driver(self, name: str, rule: str) -> subprocess.Popen[bytes]:
        self._drivers += 1
        command = [sys.executable, "-c", _DRIVER, str(self.root), name, str(self.points), rule]
        with open(f"{self.root}-driver-{name}.log", "ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, cwd=Path(__file__).parents[2])

    def _lives(self, driver: subprocess.Popen[bytes], name: str, rule: str) -> subprocess.Popen[bytes]:
        """Returns the client, or the next one if it has died: by a kill, or because the service did not answer."""
        try:
            code = driver.wait(0.05)
        except subprocess.TimeoutExpired:
            return driver
        self.again += code > 0
        return self._driver(name, rule) if code else driver

    def _kill_service(self) -> None:
        found = local_service.find(self.root)
        if found is not None:
            os.kill(found.pid, signal.SIGKILL)
            while Path(f"/proc/{found.pid}/stat").exists() and local_service.find(self.root) is not None:
                time.sleep(0.01)
        batchhvd.local(self.root).close()  # somebody starts it again

    def _is_over(self, name: str) -> bool:
        with batchhvd.local(self.root) as session:
            try:
                return bool(place(session)[0].open_sweep(name).refresh()._is_over())
            except NotFoundError:  # the client died before it had submitted anything
                return False


def place(session: Any) -> tuple[Any, Any, Any]:
    """Returns the experiment, the cluster and the share of the drill, made if they are missing."""
    group = session.create_group("storm")
    workspace = group.create_workspace("work")
    cluster = workspace.create_cluster("nodes", vm_size="Standard_D2s_v3", nodes=4).wait(timeout=60)
    share = group.create_storage_account("stormfiles").create_share("files")
    share.create_directory("begun")
    return workspace.create_experiment("tries"), cluster, share


def sweep(session: Any, name: str, points: int, rule: str) -> Sweep:
    """Returns the drill's sweep: the score grows with the point's number; with a rule, those behind are given up."""
    experiment, cluster, share = place(session)
    mount = share.mount("data")
    task = batchhvd.CustomToolkit(_TRAINING.format(name=name))
    spec = batchhvd.JobSpec(nodes=1, task=task, mounts=[mount], logs=mount / "logs")
    space = sweeps.grid(x=list(range(points)), pause=[0.5 if rule else 0.1])
    stop = sweeps.asha("score", first=1, factor=3) if rule else None
    found: Sweep = experiment.sweep(name, spec, space, cluster=cluster, at_once=4, stop=stop)
    return found


def table(found: Sweep) -> list[dict[str, object]]:
    """Returns a sweep's table without what no two runs have in common: how long each took."""
    return [{name: value for name, value in row.items() if name != "seconds"} for row in found.table()]


def trials(found: list[dict[str, object]]) -> list[object]:
    """Returns the states of the trials."""
    return [row["state"] for row in found]
