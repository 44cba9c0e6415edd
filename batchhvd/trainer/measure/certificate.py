"""The parity certificate: N ranks do what one rank with an N times larger batch does.

    python -m batchhvd.trainer parity --ranks 1,2,4 [--network tutorial] [--dataset digits] [--dir .]
    python -m batchhvd.trainer parity --script ddp.py --ranks 2,4 [-- ARGUMENT...]

See `parity` for what is compared, and why; `ddp_certificate` for a script of PyTorch's.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from attrs import asdict

from batchhvd.errors import BatchHvdError, SpecError
from batchhvd.trainer.measure import ddp_certificate
from batchhvd.trainer.measure import ranks as processes
from batchhvd.trainer.measure.machine_facts import installed_version
from batchhvd.trainer.measure.parity import ACCURACY, GRADIENT, STEPS, WEIGHT, Parity, measure, network
from batchhvd.trainer.measure.parity_cases import CaseParity, cases, measure_case


class Certificate(TypedDict):
    """The content of ``parity.json``: the differences for each number of ranks, their limits, and the versions used."""

    holds: bool
    network: str
    dataset: str
    steps: int
    limits: dict[str, float]
    ranks: list[dict[str, float | bool]]
    cases: list[dict[str, object]]
    versions: dict[str, str]


def versions() -> dict[str, str]:
    """Returns the versions of everything involved."""
    import keras

    backend = str(keras.config.backend())
    names = {"batchhvd": "batchhvd", "keras": "keras", "numpy": "numpy", "horovod": "horovod", backend: backend}
    return {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores{_gpu()}",
        "backend": backend,
        **{name: installed_version(package) or "unknown" for name, package in names.items()},
    }


def _gpu() -> str:
    from batchhvd.trainer import backend, hvd

    if not backend.gpu():
        return ""
    way = "" if hvd.size() == 1 else ", NCCL" if hvd.nccl_built() else ", gloo"
    return f", {backend.gpu_name()}{way}"


def _exactly() -> None:
    """Makes GPUs compute the gradients of a batch as the sum of those of its parts, except for rounding of float32.

    TensorFloat32 rounds the factors, and cuDNN uses other algorithms for other batch sizes: on an H200, in one process,
    one bias gradient of the tutorial's network differed by 6 % between 64 pictures and twice 32 pictures. PyTorch's own
    kernels agree within 2e-7.
    """
    from batchhvd.trainer import backend

    if backend.gpu():
        import torch

        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.enabled = False


def certify(sizes: Sequence[int], *, name: str, dataset: str, data_dir: str | None, batch: int) -> Certificate:
    """Runs the comparison for each number of ranks and returns the certificate.

    Args:
        sizes: numbers of ranks.
        name: "tutorial" or "small".
        dataset, data_dir: as for training.
        batch: pictures of one step of all ranks together.

    Raises:
        EngineError: A rank failed.
    """
    found: list[dict[str, float | bool]] = []
    kinds: list[CaseParity] = []
    noted: dict[str, str] = {}
    for size in sizes:
        options = ["--network", name, "--dataset", dataset, "--batch", str(batch)]
        options += ["--data-dir", data_dir] if data_dir else []
        noted, parity, more = _launch(size, options)
        kinds += more
        found.append({**asdict(parity), "holds": parity.holds})
        print(_line(parity), *more, sep="\n", flush=True)
    limits = {"gradient_error": GRADIENT, "weight_error": WEIGHT, "accuracy": ACCURACY}
    return {
        "holds": all(part["holds"] for part in found) and all(kind.holds for kind in kinds),
        "network": name,
        "dataset": dataset,
        "steps": STEPS,
        "limits": limits,
        "ranks": found,
        "cases": [{**asdict(kind), "holds": kind.holds} for kind in kinds],
        "versions": noted,
    }


def _launch(size: int, options: Sequence[str]) -> tuple[dict[str, str], Parity, list[CaseParity]]:
    facts = json.loads(processes.answer("batchhvd.trainer.measure.certificate", size, options))
    return facts["versions"], Parity(**facts["parity"]), [CaseParity(**kind) for kind in facts["cases"]]


def _line(parity: Parity) -> str:
    return (
        f"{parity.ranks} rank{'s' if parity.ranks > 1 else ''}, the network: gradients of the first step "
        f"{parity.gradient_error:.1e}, weights after {STEPS} steps {parity.weight_error:.1e} of {parity.moved:.1e}, "
        f"accuracy {parity.accuracy:.4f} (alone {parity.alone:.4f}): {'holds' if parity.holds else 'DOES NOT HOLD'}"
    )


def _work(options: argparse.Namespace) -> None:
    """Runs one rank of a comparison."""
    from batchhvd.trainer import backend

    backend.prepare()
    import keras

    from batchhvd.trainer import hvd
    from batchhvd.trainer.data import load

    hvd.init()
    _exactly()
    keras.utils.set_random_seed(hvd.rank())
    data = load(options.dataset, options.data_dir)
    train = (data.x_train.astype("float32") / 255, data.y_train)
    test = (data.x_test.astype("float32") / 255, data.y_test)
    parity = measure(lambda: network(options.network, train[0].shape[1:], data.classes), train, test, options.batch)
    kinds = [measure_case(name) for name in cases()] if hvd.size() > 1 else []
    if parity is not None:
        found = [asdict(kind) for kind in kinds if kind is not None]
        options.answer.write_text(json.dumps({"parity": asdict(parity), "cases": found, "versions": versions()}))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command: returns 0 if parity holds for all numbers of ranks, otherwise 1."""
    options = _options(argv)
    if options.answer:
        _work(options)
        return 0
    path = options.dir / "parity.json"
    try:
        if options.script:
            return ddp_certificate.write(path, ddp_certificate.certify(*_of_script(options)))
        certificate = certify(
            options.ranks or [1, 2, 4],
            name=options.network,
            dataset=options.dataset,
            data_dir=options.data_dir,
            batch=options.batch,
        )
    except BatchHvdError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    options.dir.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(certificate, indent=2) + "\n")
    print(f"written to {path}")
    return 0 if certificate["holds"] else 1


def _of_script(options: argparse.Namespace) -> tuple[Path, list[str], list[int], int]:
    if importlib.util.find_spec("torch") is None:
        raise SpecError("there is no PyTorch here", remedy="pip install 'batchhvd[torch]'")
    return options.script, options.arguments, options.ranks or [2, 4], options.steps


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m batchhvd.trainer parity", description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=processes.sizes, help="numbers of ranks, default 1,2,4, for a script 2,4")
    parser.add_argument("--network", default="tutorial", choices=("tutorial", "small"))
    parser.add_argument("--dataset", default="digits", help="digits, cifar10 or an .npz file")
    parser.add_argument("--data-dir", help="folder with cifar-10-batches-py")
    parser.add_argument("--batch", type=int, default=64, help="pictures of one step of all ranks together")
    parser.add_argument("--script", type=Path, help="compare this script with DistributedDataParallel instead")
    parser.add_argument("--steps", type=int, default=ddp_certificate.STEPS, help="steps of the script to compare")
    parser.add_argument("arguments", nargs="*", help="those of the script, after --")
    parser.add_argument("--dir", type=Path, default=Path("."), help="folder for parity.json")
    parser.add_argument("--answer", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


if __name__ == "__main__":
    raise SystemExit(main())
