"""How fast training is on this machine, and what takes the time.

    python -m batchhvd.trainer bench --ranks 1,2,4 [--recipe tutorial] [--dataset digits] [--batch-size 32] [--dir .]

For each number of ranks the same training runs in three ways: as it is; with the same batch at every step, so that
nothing has to be prepared; and like that without exchanging gradients. The differences are the costs of input and
communication that do not overlap with computing; the rest is computing. Scaling efficiency compares images per second
and rank with those of the fewest ranks measured: on a machine with fewer cores than ranks it cannot reach 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from attrs import asdict, frozen

from batchhvd.errors import BatchHvdError
from batchhvd.trainer.measure import ranks as processes
from batchhvd.trainer.measure.machine_facts import machine

if TYPE_CHECKING:
    import keras

    from batchhvd.trainer.data import Data
    from batchhvd.trainer.train import TrainingPlan, TrainingSettings


FIRST = 3  # steps that trace, compile and record a model


@frozen
class Cost:
    """The cost of training on so many ranks.

    Attributes:
        ranks: how many ranks trained together.
        batch: pictures of one rank per step.
        images_per_second: of all ranks together.
        step: seconds of one step; the sum of the next three.
        input: seconds spent waiting for pictures.
        compute: seconds spent in the network and the optimizer.
        communication: seconds spent averaging gradients, including waiting for the slowest rank.
        first: seconds of the first three steps, which trace or compile the model.
    """

    ranks: int
    batch: int
    images_per_second: float
    step: float
    input: float
    compute: float
    communication: float
    first: float = 0.0


# --- on the ranks --------------------------------------------------------------------------------------------------


def measure(settings: TrainingSettings, steps: int) -> Cost:
    """Trains ``steps`` steps in each of the three ways; call it on all ranks.

    Args:
        settings: a :class:`batchhvd.trainer.train.TrainingSettings`.
        steps: of each measurement.
    """
    from batchhvd.trainer import data as datasets
    from batchhvd.trainer import hvd, train
    from batchhvd.trainer.feed import endless, feed
    from batchhvd.trainer.fitting import nearby

    data = datasets.load(settings.dataset, settings.data_dir)
    plan = train.planned(settings, data, hvd.size())
    arrays = nearby((data.x_train, train.one_hot(data.y_train, data.classes)))
    augment = train.augmentation(plan, data)
    real = feed(arrays, batch_size=plan.batch, rank=hvd.rank(), ranks=hvd.size(), augment=augment, pictures=True).source
    batch = cast("keras.utils.PyDataset", real)[0]
    same = endless(lambda step: batch)
    whole, first = _step_seconds(settings, plan, data, real, steps, together=True)
    without_input, _ = _step_seconds(settings, plan, data, same, steps, together=True)
    compute, _ = _step_seconds(settings, plan, data, same, steps, together=False)
    times = hvd.allreduce([whole, without_input, compute, first])
    return _cost(hvd.size(), plan.batch, *map(float, times))


def _cost(ranks: int, batch: int, whole: float, without_input: float, compute: float, first: float = 0.0) -> Cost:
    compute = min(compute, whole)
    communication = min(max(without_input - compute, 0.0), whole - compute) if ranks > 1 else 0.0
    rate, waited = ranks * batch / whole, whole - compute - communication
    return Cost(ranks, batch, rate, whole, waited, compute, communication, first)


def _step_seconds(
    settings: TrainingSettings,
    plan: TrainingPlan,
    data: Data,
    source: keras.utils.PyDataset,
    steps: int,
    together: bool,
) -> tuple[float, float]:
    """Returns the seconds of one step, after an epoch of the same steps that does not count; and of the first steps."""
    import keras

    from batchhvd.trainer import backend, hvd, train
    from batchhvd.trainer.feed import Feed
    from batchhvd.trainer.stopwatch import Stopwatch

    model = train.built(plan, data)
    optimizer = train.optimizer(plan)
    model.compile(
        optimizer=hvd.DistributedOptimizer(optimizer) if together else optimizer,
        loss=keras.losses.CategoricalCrossentropy(label_smoothing=plan.smoothing),
        metrics=["accuracy"],
        jit_compile=False,
    )
    if backend.compiled(settings.step):
        from batchhvd.trainer.torch_cuda import RecordedStep

        model.train_function = RecordedStep(model, alone=hvd.size() == 1 or not together)
    watch = Stopwatch(Feed(source, steps, plan.batch), hvd.size(), None, first=steps)
    begun = Stopwatch(Feed(source, steps, plan.batch), hvd.size(), None, first=FIRST)
    hvd.barrier()
    model.fit(source, steps_per_epoch=steps, epochs=2, verbose=0, shuffle=False, callbacks=[watch, begun])
    return float(watch.seconds / (watch.steps - steps)), begun.first_seconds


def _work(options: argparse.Namespace) -> None:
    """Runs one rank of a measurement."""
    from batchhvd.trainer import backend, train

    backend.prepare()
    import keras

    from batchhvd.trainer import hvd

    hvd.init()
    keras.mixed_precision.set_dtype_policy(backend.precision(options.precision))
    settings = train.TrainingSettings(
        dir="",
        dataset=options.dataset,
        data_dir=options.data_dir,
        batch_size=options.batch_size,
        recipe=options.recipe,
        precision=options.precision,
    )
    cost = measure(settings, options.steps)
    if hvd.rank() == 0:
        where = {"backend": keras.config.backend(), "precision": keras.mixed_precision.dtype_policy().name}
        where |= {"gpu": backend.gpu_name()} if backend.gpu() else {}
        options.answer.write_text(json.dumps({"cost": asdict(cost), **where}))


# --- around them ---------------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command, prints a table, and writes ``bench.json``."""
    options = _options(argv)
    if options.answer:
        _work(options)
        return 0
    try:
        answers = [_launch(size, _passed_on(options)) for size in options.ranks]
    except BatchHvdError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    costs = [cost for cost, _ in answers]
    print("\n".join(table(costs)))
    where = answers[0][1]
    document = {"command": " ".join(sys.argv[1:]), **where, "machine": machine(), "costs": [*map(asdict, costs)]}
    options.dir.mkdir(parents=True, exist_ok=True)
    path = options.dir / "bench.json"
    path.write_text(json.dumps(document, indent=2) + "\n")
    print(f"written to {path}")
    return 0


def _launch(size: int, options: Sequence[str]) -> tuple[Cost, dict[str, str]]:
    """Measures on so many ranks; returns the cost, and what was measured on (backend, precision, GPU)."""
    answer = json.loads(processes.answer("batchhvd.trainer.measure.bench", size, options))
    return Cost(**answer.pop("cost")), answer


def table(costs: Sequence[Cost]) -> list[str]:
    """Returns the lines of a table, with the scaling efficiency against the first row."""
    lines = ["ranks  batch  images/s  per rank  efficiency   step ms =  input + compute + communication"]
    for cost in costs:
        per_rank = cost.images_per_second / cost.ranks
        efficiency = per_rank / (costs[0].images_per_second / costs[0].ranks)
        parts = f"{1e3 * cost.input:6.1f} + {1e3 * cost.compute:7.1f} + {1e3 * cost.communication:7.1f}"
        lines.append(
            f"{cost.ranks:5}  {cost.batch:5}  {cost.images_per_second:8.0f}  {per_rank:8.0f}  {efficiency:10.2f}  "
            f"{1e3 * cost.step:8.1f} = {parts}"
        )
    return lines


def _passed_on(options: argparse.Namespace) -> list[str]:
    kept = ["--recipe", options.recipe, "--dataset", options.dataset, "--precision", options.precision]
    kept += ["--steps", str(options.steps)]
    kept += ["--data-dir", options.data_dir] if options.data_dir else []
    return kept + (["--batch-size", str(options.batch_size)] if options.batch_size else [])


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m batchhvd.trainer bench", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--ranks", type=processes.sizes, default=[1, 2], help="numbers of ranks, default 1,2")
    parser.add_argument("--recipe", default="tutorial", choices=("tutorial", "fast"))
    parser.add_argument("--dataset", default="digits", help="digits, cifar10 or an .npz file")
    parser.add_argument("--data-dir", help="folder with cifar-10-batches-py")
    parser.add_argument("--batch-size", type=int, help="samples of one rank per step")
    parser.add_argument("--precision", default="auto", choices=("auto", "float32", "bfloat16"))
    parser.add_argument("--steps", type=int, default=20, help="steps of each measurement")
    parser.add_argument("--dir", type=Path, default=Path("."), help="folder for bench.json")
    parser.add_argument("--answer", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


if __name__ == "__main__":
    raise SystemExit(main())
