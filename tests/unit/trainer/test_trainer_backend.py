"""What is decided before Keras is imported, and how a training tells of itself."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from batchhvd.trainer import backend
from batchhvd.trainer.__main__ import COMMANDS
from batchhvd.trainer.install import build_plan
from batchhvd.trainer.measure import bench

RANKED = {"HOROVOD_LOCAL_RANK": "1", "HOROVOD_LOCAL_SIZE": "4"}


def prepared(environ: dict[str, str], cores: int = 8) -> dict[str, str]:
    backend.prepare(environ, cores)
    return environ


def test_ranks_of_a_node_share_its_cores() -> None:
    assert prepared({"KERAS_BACKEND": "torch"})["OMP_NUM_THREADS"] == "8"
    assert prepared({"KERAS_BACKEND": "torch", **RANKED})["TF_NUM_INTRAOP_THREADS"] == "2"
    assert prepared({"KERAS_BACKEND": "torch", **RANKED}, cores=2)["OMP_NUM_THREADS"] == "1"


def test_what_the_user_set_stays() -> None:
    chosen = {"KERAS_BACKEND": "torch", "OMP_NUM_THREADS": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}
    assert {name: value for name, value in prepared(dict(chosen)).items() if name in chosen} == chosen


@pytest.mark.parametrize(
    ("variables", "device"),
    [
        (RANKED, "1"),
        ({**RANKED, "CUDA_VISIBLE_DEVICES": "4,6,7"}, "6"),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "3"}, "2"),
        ({}, None),
        ({"HOROVOD_LOCAL_RANK": "0", "HOROVOD_LOCAL_SIZE": "1"}, None),
    ],
)
def test_each_rank_of_a_node_gets_a_gpu_of_its_own(variables: dict[str, str], device: str | None) -> None:
    assert prepared({"KERAS_BACKEND": "torch", **variables}).get("CUDA_VISIBLE_DEVICES") == device


def test_a_gpu_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On two H200 the waiting cost 0.5 ms of 8: benchmarks/results/trainer_gpus_h200.json."""
    names = ("HOROVOD_CYCLE_TIME", "HOROVOD_ENABLE_ASYNC_COMPLETION")
    monkeypatch.setattr(backend, "GPU_DRIVER", tmp_path / "nvidiactl")
    assert not prepared({"KERAS_BACKEND": "torch"}).keys() & set(names)
    backend.GPU_DRIVER.touch()
    assert [prepared({"KERAS_BACKEND": "torch"})[name] for name in names] == ["0.1", "1"]
    assert prepared({"KERAS_BACKEND": "torch", names[1]: "0"})[names[1]] == "0"


def test_horovod_for_gpus_takes_the_nccl_of_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A static NCCL, which Horovod prefers where it finds one, made the wheel 189 MB instead of 1.5."""
    (tmp_path / "lib").mkdir()
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 9.0; echo 9.0; echo 8.0\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    plan = build_plan.BuildPlan({"torch": "2.11.0"}, "cpython", "g++ 13", nccl=f"{tmp_path} nvidia-nccl-cu13")
    found = build_plan.build_variables(plan, 4)
    assert found["HOROVOD_NCCL_LINK"] == "SHARED"
    assert (found["HOROVOD_NCCL_HOME"], found["HOROVOD_BUILD_CUDA_CC_LIST"]) == (str(tmp_path), "80,90")
    assert (tmp_path / "lib" / "libnccl.so").readlink().name == "libnccl.so.2"
    assert found["HOROVOD_SHARED_COMMON"] == "0"


def test_bfloat16_is_taken_where_the_processor_multiplies_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    cpuinfo = tmp_path / "cpu info"
    assert backend.precision("auto", cpuinfo) == "float32"
    cpuinfo.write_text("flags : avx2 avx512_bf16\n")
    assert backend.precision("auto", cpuinfo) == "float32"
    cpuinfo.write_text("flags : avx2 amx_bf16 amx_tile\n")
    assert backend.precision("auto", cpuinfo) == "mixed_bfloat16"
    assert backend.precision("float32", cpuinfo) == "float32"


def test_the_parts_of_a_step_add_up_and_are_never_negative() -> None:
    cost = bench._cost(2, 64, 0.5, 0.4, 0.3)
    assert (cost.input, cost.compute, cost.communication) == pytest.approx((0.1, 0.3, 0.1))
    assert cost.images_per_second == 256
    noisy = bench._cost(2, 64, 0.3, 0.2, 0.31)
    assert noisy.input + noisy.compute + noisy.communication == pytest.approx(noisy.step)
    assert min(noisy.input, noisy.compute, noisy.communication) >= 0


def test_the_table_shows_efficiency_against_the_first_row() -> None:
    rows = bench.table([bench._cost(1, 64, 0.1, 0.1, 0.1), bench._cost(2, 64, 0.125, 0.12, 0.1)])
    assert "0.80" in rows[2] and rows[2].split()[0] == "2"


def test_the_commands_are_all_there() -> None:
    assert tuple(COMMANDS) == ("train", "bench", "parity", "scale", "check")
    assert all(callable(import_module(module).main) for module in COMMANDS.values())


@pytest.mark.interpreter
def test_the_pages_show_the_results_that_the_benchmarks_left() -> None:
    report = Path(__file__).parents[3] / "benchmarks" / "report.py"
    done = subprocess.run([sys.executable, report, "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
