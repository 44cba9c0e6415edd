"""Random kills of the service, of node runners and of ranks: every job ends as it should, and nothing is left.

Ten kills by default; ``BATCHHVD_TEST_KILLS=200`` asks for more, ``BATCHHVD_TEST_SEED`` for a certain order.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import define, field

from batchhvd.errors import EngineError
from batchhvd.service import drills
from tests.support.faults import Live, processes
from tests.support.waiting import until

KILLS = int(os.environ.get("BATCHHVD_TEST_KILLS", "10"))
SEED = int(os.environ.get("BATCHHVD_TEST_SEED", str(time.time_ns() % 100_000)))
LINES = 40
COMMAND = f"for i in $(seq {LINES}); do echo rank $HOROVOD_RANK line $i; sleep 0.03; done"


@define
class Service:
    """The real service in a process of its own, which is killed and started again."""

    root: Path
    process: subprocess.Popen[bytes] = field(init=False)
    killed: int = 0

    def __attrs_post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "batchhvd.service", "--root", str(self.root), "--prepare", "skip"]
        with open(self.root / "out.txt", "ab") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.killed += 1
        self.start()

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(20) == 0


def active(world: Live) -> list[str]:
    return [job.document["name"] for job in world.store.active()]


DRILLS: dict[str, Callable[[Path, int], None]] = {
    "rank": drills.kill_rank,
    "runner": drills.kill_runner,
    "node": drills.evict,
}


def hit(world: Live, generator: random.Random, kind: str, allowed: dict[str, set[str]]) -> bool:
    """Kills something of a running job and notes what may come of it; False where nothing could be hit."""
    running = [job for job in world.store.active() if job.private.get("handle")]
    if not running:
        return False
    job = generator.choice(running)
    folder, node = Path(job.private["folder"]), generator.randrange(len(job.private["nodes"]))
    try:
        DRILLS[kind](folder, node)
    except EngineError:
        return False  # it had not begun, or was over
    # A rank that was killed with its node, or as its job was ending anyway, changes nothing more.
    allowed[job.document["name"]] |= {"RankFailed" if kind == "rank" else "NodeLost", "succeeded"}
    return True


@pytest.mark.timeout(60 + 12 * KILLS)
def test_random_kills(tmp_path: Path) -> None:
    print(f"seed {SEED}, {KILLS} kills")
    generator = random.Random(SEED)
    root = tmp_path / "wurzel ü"
    root.mkdir()
    world = Live(root)
    world.clock = time.time
    world.cluster(nodes=6)
    service = Service(root)
    allowed: dict[str, set[str]] = defaultdict(set)
    count, kills, kind = 0, 0, ""
    try:
        while kills < KILLS:
            if len(active(world)) < 5:
                count += 1
                world.command(f"j{count}", COMMAND, generator.randint(1, 3))
            time.sleep(generator.uniform(0.0, 0.3))
            kind = kind or generator.choice(["service", "rank", "runner", "node"])
            if kind == "service":
                service.kill()
            elif not hit(world, generator, kind, allowed):
                continue  # nothing to hit yet
            kills, kind = kills + 1, ""
        until(lambda: not active(world), 60)
        until(lambda: not processes(root), 10)
        check(world, count, allowed)
        until(lambda: sum(world.counts().values()) == world.counts()["idle"] == 6, 10)
        service.end()
    finally:
        service.process.kill()
        service.process.wait()
        for pid in processes(root):
            os.kill(pid, signal.SIGKILL)
    print(f"{count} jobs, {service.killed} kills of the service")


def check(world: Live, count: int, allowed: dict[str, set[str]]) -> None:
    for number in range(1, count + 1):
        name = f"j{number}"
        ended = world.state(name) if world.state(name) == "succeeded" else world.error(name)[0]
        assert ended in (allowed[name] or {"succeeded"}), (SEED, name, world.info(name))
        lines = defaultdict(list)
        for line in world.log(name).splitlines():
            number_of_rank, _, at = line.removeprefix("rank ").partition(" line ")
            lines[int(number_of_rank)].append(int(at))
        for rank, seen in lines.items():  # none twice, none missing in between
            assert seen == list(range(1, len(seen) + 1)), (SEED, name, rank, seen)
        if ended == "succeeded":
            nodes = world.of(name).document["properties"]["nodeCount"]
            assert {rank: len(seen) for rank, seen in lines.items()} == dict.fromkeys(range(nodes), LINES), (SEED, name)
            assert list(world.root.rglob(f"jobs/{name}/*/manifest.json")), (SEED, name)
