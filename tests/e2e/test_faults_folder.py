"""Jobs that damage the files of their own task folder: they fail by name, and everything else goes on."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.drilled import examples
from tests.support.faults import live
from tests.support.waiting import until
from tests.support.world import EXPERIMENT

FILES = ["stop.json", "processes.json", "node-0.json", "task.json", "rendezvous.json", "slurm.json"]


@pytest.mark.parametrize("name", ["stop.json", "processes.json", "node-0.json"])
@pytest.mark.parametrize("how", ["printf '{' > {0}", ": > {0}", "rm -f {0}; mkfifo {0}", "rm -f {0}; mkdir {0}"])
def test_a_damaged_file_is_named_and_other_jobs_go_on(tmp_path: Path, name: str, how: str) -> None:
    with live(tmp_path / "wurzel ü", patience=1.0) as world:
        damage = how.replace("{0}", f'"$AZ_BATCHAI_JOB_TEMP/../../{name}"')
        world.command("bad", f"{damage}; sleep 1000")
        world.command("good", "sleep 0.5; echo fine")
        assert world.ended("good") == "succeeded"
        assert world.ended("bad") == "failed"
        code, message = world.error("bad")
        # A tick between rm and mkdir sees that nothing says what was started.
        gone = name == "processes.json" and how.startswith("rm") and code == "NodeLost"
        assert gone or (code == "EngineFailed" and f"record {name} in" in message), message
        world.delete(f"{EXPERIMENT}/jobs/bad")
        until(lambda: world.tick() or world.store.get(f"{EXPERIMENT}/jobs/bad") is None, 10)
        world.store.close()


BYTES = st.one_of(
    st.binary(max_size=200), st.sampled_from([b"", b'{"nodes": -1}', b"null", b"[" * 5000, b'{"pid": 1, "ticks": 1}'])
)


@given(contents=st.fixed_dictionaries(dict.fromkeys(FILES, BYTES)), restart=st.booleans())
@examples(2, 20)
def test_arbitrary_bytes_in_any_file_while_ten_other_jobs_run(contents: dict[str, bytes], restart: bool) -> None:
    with tempfile.TemporaryDirectory() as place, live(Path(place, "wurzel ü"), nodes=16, patience=1.0) as world:
        for number in range(10):
            world.command(f"good{number}", "sleep 2; echo fine")
        for name in FILES:
            world.command(f"bad-{name}", "sleep 1000")
        until(lambda: world.tick() or all(world.state(f"bad-{name}") == "running" for name in FILES))
        for name, data in contents.items():
            (world.folder(f"bad-{name}") / name).write_bytes(data)
        world.tick(2)
        if restart:
            world.restart()
        for name in FILES:
            world.terminate(f"bad-{name}")
        assert [world.ended(f"good{number}") for number in range(10)] == ["succeeded"] * 10
        assert [world.ended(f"bad-{name}") for name in FILES] == ["failed"] * len(FILES)
        world.store.close()
