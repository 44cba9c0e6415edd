"""What a short measured run says about one number of ranks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import cast

from attrs import asdict, fields_dict, frozen

from batchhvd.errors import SpecError


@frozen
class ScaleRun:
    """A measured run on so many ranks; times are seconds of one step, means over its steps.

    Attributes:
        ranks: how many ranks trained together.
        machines: how many machines they were on.
        cores: cores of each machine that the ranks may use.
        threads: threads of each rank for one operation, 0 if nobody has set them.
        batch: samples of one rank per step.
        step: seconds of a step; the sum of input, compute and exchange.
        input: seconds in which a rank waits for its batch.
        compute: seconds in the model and the optimizer, until the last rank has its gradients.
        exchange: seconds in which the gradients of all ranks are combined, once all are there.
        waiting: seconds that a rank waits for the slowest one, on average; they are part of ``compute``.
        spread: half the width of the 95 % interval of ``step``, divided by it.
        steps: how many steps were counted.
        reductions: how many exchanges a step has.
        dense_bytes: bytes of one rank's gradients that are added up.
        sparse_bytes: bytes of one rank's rows of sparse gradients, which all ranks get.
        latency: seconds of an exchange of one number.
        double: seconds of a step, without input, with twice the batch; None if it was not measured.
        backend: the Keras backend.
        seconds: how long was measured.
    """

    ranks: int
    machines: int
    cores: int
    threads: int
    batch: int
    step: float
    input: float
    compute: float
    exchange: float
    waiting: float = 0.0
    spread: float = 0.0
    steps: int = 0
    reductions: int = 1
    dense_bytes: float = 0.0
    sparse_bytes: float = 0.0
    latency: float = 0.0
    double: float | None = None
    backend: str = ""
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Samples per second of all ranks together."""
        return self.ranks * self.batch / self.step

    @property
    def local(self) -> int:
        """Ranks of one machine."""
        return -(-self.ranks // self.machines)

    @property
    def shared(self) -> bool:
        """Whether ranks share the cores of a machine, so that they take them from one another."""
        return self.local > 1

    def to_document(self) -> dict[str, object]:
        """Returns it as a dictionary for JSON."""
        return asdict(self)


def read_run(text: str) -> ScaleRun:
    """Reads what a measured run has written.

    Raises:
        SpecError: it is something else.
    """
    try:
        document = cast("Mapping[str, object]", json.loads(text))
        known = {name: document[name] for name in fields_dict(ScaleRun) if name in document}
        found = ScaleRun(**known)  # type: ignore[arg-type]
        if not (found.step > 0 and found.compute > 0 and found.ranks > 0 and found.batch > 0):
            raise ValueError("a step takes time, and has ranks and samples")
        return found
    except (ValueError, TypeError) as error:
        raise SpecError(f"this is not the result of a measured run: {error}", remedy="measure again") from error


def in_order(runs: Sequence[ScaleRun]) -> list[ScaleRun]:
    """Returns runs by their number of ranks.

    Raises:
        SpecError: there are none, or none on one rank, with which the others are compared.
    """
    ordered = sorted(runs, key=lambda run: run.ranks)
    if not ordered or ordered[0].ranks != 1:
        raise SpecError(
            "one rank was not measured, and the others are compared with it", remedy="measure ranks 1, 2, 4"
        )
    return ordered
