"""A share that is slow: ranks wait for their data, lose none of it, and go on at once when it is fast again."""

from __future__ import annotations

from pathlib import Path

from batchhvd.service import drills
from tests.support.faults import live
from tests.support.stage import PYTHON
from tests.support.waiting import until

# Writes a mebibyte in pieces, which takes a fifth of a second, and says how long it took.
WRITES = """
import os, sys, time
begun, place = time.monotonic(), sys.argv[1]
print("up", flush=True)
while not os.path.exists(os.environ["AZ_BATCHAI_SHARED_JOB_TEMP"] + "/go"):
    time.sleep(0.02)
begun = time.monotonic()
with open(place, "wb", buffering=0) as file:
    for number in range(16):
        file.write(bytes([number]) * 65536)
        time.sleep(0.01)
print("took", time.monotonic() - begun, flush=True)
"""


def test_a_slow_mount(tmp_path: Path) -> None:
    with live(tmp_path / "wurzel ü", nodes=2) as world:
        share = world.root / "shares/acc/share"
        (share / "writes.py").write_text(WRITES)
        place = '"$AZ_BATCHAI_JOB_MOUNT_ROOT/ablage ü'
        world.command("j", f'exec {PYTHON} -S {place}/writes.py" {place}/data-$HOROVOD_RANK"', 2)
        world.up("j", 2)
        with drills.slow_mount(world.folder("j"), rate=400_000):
            (world.folder("j") / "shared" / "go").touch()
            until(lambda: world.log("j").count("took") == 2)
        assert world.ended("j") == "succeeded"
        took = [float(line.split()[1]) for line in world.log("j").splitlines() if line.startswith("took")]
        assert min(took) > 1.5  # 2.6 s, less the last piece or two
        expected = b"".join(bytes([number]) * 65536 for number in range(16))
        assert all((share / f"data-{rank}").read_bytes() == expected for rank in (0, 1))


def test_ranks_go_on_when_the_slowness_ends(tmp_path: Path) -> None:
    with live(tmp_path / "wurzel ü", nodes=1) as world:
        go = '"$AZ_BATCHAI_SHARED_JOB_TEMP/go"'
        world.command("j", f"echo up; until [ -e {go} ]; do echo more > /dev/null; sleep 0.01; done; echo done")
        world.up("j", 1)
        rank = Path("/proc", str(world.node("j", 0)["ranks"][0]["pid"]), "stat")
        with drills.slow_mount(world.folder("j"), rate=1):
            until(lambda: ") T" in rank.read_text())
            (world.folder("j") / "shared" / "go").touch()
        assert world.ended("j") == "succeeded"
        assert world.log("j") == "up\ndone\n"
