"""The parity certificate for PyTorch: N ranks of a script do what one rank with the global batch does.

    python -m batchhvd.trainer parity --script train.py --ranks 2,4 [--steps 20] [--dir .] [-- ARGUMENT...]

The script runs unchanged, first on N ranks, then on one with batches N times larger, from the same weights. A
DistributedSampler gives the ranks together the same pictures in a step as it gives one rank with the larger batch. What
is compared are the gradients of the first step and the weights after the last.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypedDict

from attrs import asdict, frozen

from batchhvd.errors import EngineError, SpecError
from batchhvd.node.launch.ports import KeptPort
from batchhvd.trainer.measure import ranks as processes
from batchhvd.trainer.measure.machine_facts import installed_version

if TYPE_CHECKING:
    import torch

    from batchhvd.trainer.measure.ddp_recording import Options, Recorded

#: The largest relative difference of gradients and weights that rounding in float32 explains.
LIMIT = 1e-5
STEPS = 20
_SAME = 1e-6  # how much the norms of averaged gradients may differ from rank to rank


@frozen
class DdpParity:
    """The differences between so many ranks and one with the global batch.

    Attributes:
        ranks: how many ranks trained together.
        steps: how many steps are compared.
        gradient_error: |difference| / |gradients| of the first step, over all weights.
        weight_error: the same for the weights after the last step.
        moved: how far these steps moved the weights, in the same measure; without movement a comparison proves nothing.
        notes: what was changed for the comparison, and what explains a difference, a sentence each.
    """

    ranks: int
    steps: int
    gradient_error: float
    weight_error: float
    moved: float
    notes: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """True if all differences are within the limit, and the weights have moved."""
        return self.gradient_error <= LIMIT and self.weight_error <= LIMIT and self.moved >= 10 * LIMIT

    def __str__(self) -> str:
        said = "holds" if self.holds else "DOES NOT HOLD"
        line = (
            f"{self.ranks} ranks: gradients of the first step {self.gradient_error:.1e}, weights after {self.steps} "
            f"steps {self.weight_error:.1e} of {self.moved:.1e}: {said}"
        )
        return "\n".join([line, *(f"  {note}" for note in self.notes)])


class DdpCertificate(TypedDict):
    """The content of ``parity.json`` for a script of PyTorch."""

    holds: bool
    script: str
    arguments: list[str]
    limit: float
    ranks: list[dict[str, object]]
    versions: dict[str, str]


@frozen
class _Run:
    records: list[Recorded]
    tensors: dict[str, list[torch.Tensor]]


def certify(script: Path, arguments: Sequence[str], sizes: Sequence[int], steps: int = STEPS) -> DdpCertificate:
    """Compares a script on each number of ranks with one rank, prints what it finds, and returns the certificate.

    Args:
        script: the script.
        arguments: its command line arguments.
        sizes: numbers of ranks, each at least 2.
        steps: how many steps are compared at most.

    Raises:
        SpecError: The script cannot be compared; the message says why.
        EngineError: A rank failed.
    """
    if not script.is_file():
        raise SpecError(f"there is no script {script}", remedy="name the script that trains with DDP")
    if wrong := [size for size in sizes if size < 2]:
        raise SpecError(f"{wrong[0]} rank cannot be compared with one", remedy="take 2 ranks or more")
    found = []
    for size in sizes:
        parity = compare(script, arguments, size, steps)
        print(parity, flush=True)
        found.append(parity)
    return {
        "holds": all(parity.holds for parity in found),
        "script": str(script),
        "arguments": list(arguments),
        "limit": LIMIT,
        "ranks": [{**asdict(parity), "holds": parity.holds} for parity in found],
        "versions": {name: installed_version(name) or "unknown" for name in ("batchhvd", "torch", "numpy")},
    }


def compare(script: Path, arguments: Sequence[str], size: int, steps: int) -> DdpParity:
    """Runs a script on so many ranks and on one, and returns the differences.

    Raises:
        SpecError: The script cannot be compared; the message says why.
        EngineError: A rank failed.
    """
    with TemporaryDirectory(prefix="batchhvd-parity-") as folder:
        start = str(Path(folder, str(size), "start.pt"))
        together = _run(script, arguments, size, _options(folder, str(size), 1, steps, None))
        _check(together.records, size)
        done = together.records[0].done
        alone = _run(script, arguments, 1, _options(folder, "1", size, done, start))
    if alone.records[0].done != done:
        raise SpecError(
            f"one rank made {alone.records[0].done} steps where {size} ranks made {done}",
            remedy="let the number of steps depend on the data and the batch only",
        )
    gradients, weights = (_row(together, name) for name in ("gradients", "weights"))
    expected, trained, first = (_row(alone, name) for name in ("gradients", "weights", "start"))
    notes = tuple(_notes(together.records, size, float(gradients.norm() / expected.norm())))
    return DdpParity(
        size,
        done,
        _distance(gradients, expected),
        _distance(weights, trained),
        _distance(trained, first),
        notes,
    )


def _options(folder: str, name: str, factor: int, steps: int, start: str | None) -> Options:
    own = Path(folder, name)
    own.mkdir()
    return {"folder": str(own), "factor": factor, "steps": steps, "start": start}


def _run(script: Path, arguments: Sequence[str], size: int, options: Options) -> _Run:
    import torch

    from batchhvd.trainer.measure.ddp_recording import Recorded

    module = "batchhvd.trainer.measure.ddp_recording"
    command = processes.python("-m", module, json.dumps(options), str(script), *arguments)
    port = KeptPort()
    told = {"MASTER_ADDR": processes.LOOPBACK, "MASTER_PORT": str(port.port), "GLOO_SOCKET_IFNAME": "lo"}
    told["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS") or str(max(1, (os.cpu_count() or 1) // size))
    try:
        outcomes = processes.run(command, size, variables=told)
    finally:
        port.release()
    for outcome in outcomes:
        if outcome.exit_code:
            raise _failed(script, size, outcome)
    folder = Path(options["folder"])
    records = [Recorded(**json.loads((folder / f"rank-{rank}.json").read_text())) for rank in range(size)]
    return _Run(records, torch.load(folder / "tensors.pt", weights_only=True))


def _failed(script: Path, size: int, outcome: processes.RankOutcome) -> EngineError:
    return EngineError(
        f"rank {outcome.rank} of {size} of {script} failed with exit code {outcome.exit_code}: "
        f"{processes.tail(outcome.output)}",
        engine="ranks",
        command=str(script),
        exit_code=outcome.exit_code,
        output=outcome.output,
    )


def _check(records: Sequence[Recorded], size: int) -> None:
    """Says why a script cannot be compared, if it cannot."""
    first = records[0]
    for wrong, message, remedy in (
        (not first.wrapped, "the script never makes a DistributedDataParallel", "wrap the model in it"),
        (first.wrapped > 1, f"the script wraps {first.wrapped} models", "compare a script that trains one model"),
        (
            first.size not in (0, size),
            f"the script's process group has {first.size} ranks instead of {size}",
            "call init_process_group without rank and world_size, or with those of RANK and WORLD_SIZE",
        ),
        (
            not first.loaders,
            "no DataLoader of the script has a DistributedSampler, so that nobody knows how it divides a batch",
            "give the DataLoader sampler=DistributedSampler(dataset) and a batch_size",
        ),
        (
            bool(first.by_parts),
            f"{', '.join(first.by_parts[:3])}: batch normalization uses the part of the batch that a rank has",
            "convert the model with torch.nn.SyncBatchNorm.convert_sync_batchnorm (GPUs only), or leave it out",
        ),
        (
            first.full_batches == 0,
            "an epoch has not one full batch for each rank",
            "take more data, fewer ranks or a smaller batch",
        ),
        (not first.done, "the script made no step of an optimizer that has the model's parameters", "let it train"),
    ):
        if wrong:
            raise SpecError(message, remedy=remedy)


def _notes(records: Sequence[Recorded], size: int, ratio: float) -> list[str]:
    """Returns what was changed for the comparison, and what explains a difference.

    Args:
        records: those of the ranks together.
        size: how many ranks.
        ratio: |gradients| of the ranks together, divided by those of one rank.
    """
    found = []
    if records[0].dropout:
        found.append(f"dropout was off in {records[0].dropout} layers: its masks cannot be equal")
    norms = [record.gradient or 0.0 for record in records]
    if max(norms) - min(norms) > _SAME * max(norms):
        found.append("the ranks' gradients differ: call the DistributedDataParallel itself, not its .module")
    elif abs(ratio * size - 1) < 1e-3:
        found.append(f"the gradients are {size} times smaller: the loss is a sum over the batch, take its mean")
    return found


def _row(run: _Run, name: str) -> torch.Tensor:
    import torch

    return torch.cat([tensor.ravel() for tensor in run.tensors[name]])


def _distance(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


def write(path: Path, certificate: DdpCertificate) -> int:
    """Writes a certificate and returns the command's exit code: 0 if it holds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(certificate, indent=2) + "\n")
    print(f"written to {path}", file=sys.stderr if not certificate["holds"] else sys.stdout)
    return 0 if certificate["holds"] else 1
