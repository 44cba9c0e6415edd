"""``fit``: the one call that trains any compiled Keras 3 model on all ranks.

It does what otherwise must be done by hand around ``model.fit``: wraps the optimizer so that gradients are averaged,
gives each rank its part of the data with equal steps, sends rank 0's weights and optimizer state to all before the
first step, averages metrics, keeps statistics such as those of batch normalization equal, and lets only rank 0 print.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from batchhvd.errors import SpecError
from batchhvd.trainer.feed import feed, share
from batchhvd.trainer.shard import Augment

if TYPE_CHECKING:
    import keras

    from batchhvd.trainer.feed import Array, Feed, Samples
    from batchhvd.trainer.stopwatch import Stopwatch
    from batchhvd.trainer.torch_cuda import RecordedStep

VALIDATION_BATCH = 500
FIRST_COMPILED = 5  # steps before a compiled step is replayed


@attrs.frozen
class Fit:
    """The result of a training; the same on every rank except for the times and ``images_per_second``.

    Attributes:
        history: the value of each metric after each epoch, averaged over the ranks; names with ``val_`` belong to the
            validation data.
        metrics: the last value of each metric.
        seconds: duration of the training steps, without validation and ``first_seconds``.
        first_seconds: duration of the first step, which traces the model; of the first five if the step is compiled.
        images_per_second: samples that this rank trained on per second of ``seconds``.
        ranks: how many ranks trained together.
        steps: number of optimizer steps.
    """

    history: Mapping[str, Sequence[float]] = attrs.field(repr=False)
    metrics: Mapping[str, float]
    seconds: float
    first_seconds: float
    images_per_second: float
    ranks: int
    steps: int


def fit(
    model: keras.Model,
    data: Samples,
    *,
    validation: Sequence[Array] | None = None,
    epochs: int = 1,
    batch_size: int = 32,
    steps_per_epoch: int | None = None,
    augment: Augment | None = None,
    pictures: bool = False,
    seed: int = 0,
    whole: bool = False,
    initial_epoch: int = 0,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    compiled: bool = False,
    progress: Callable[[str], None] | None = print,
    clock: Callable[[], float] = time.perf_counter,
) -> Fit:
    """Trains a compiled Keras 3 model on all ranks and returns the result.

    Call it on every rank with the same arguments. With one rank Horovod is not needed.

    Args:
        model: compiled; every optimizer that it holds is wrapped unless it is wrapped already.
        data: arrays ``(x, y)`` or ``(x, y, sample_weight)``, complete on every rank, as numpy arrays or as PyTorch
            tensors on a GPU; a ``tf.data.Dataset`` of batches; or a PyTorch DataLoader.
        validation: arrays ``(x, y)`` to evaluate after each epoch, shared among the ranks; None skips validation.
        epochs: the number of the last epoch, counted from 1.
        batch_size: samples of one rank per step, for arrays.
        steps_per_epoch: None passes over the data once.
        augment: moves and mirrors pictures given as arrays; None leaves them as they are.
        pictures: divides ``x`` of arrays by 255, in training and in validation; without it, the model gets the
            values as they are, whatever their type.
        seed: decides shuffles and augmentation; the same on all ranks.
        whole: lets every rank pass over all of the data, as the tutorial's script does.
        initial_epoch: the epoch to begin with, counted from 0, for resuming.
        callbacks: Keras callbacks, called on every rank; those of Keras that write files on rank 0 only.
        compiled: compiles the whole step and replays it as a CUDA graph; only for PyTorch on an NVIDIA GPU, and for
            models whose step is the same every time and never reads values back to the host.
        progress: called with one line per epoch on rank 0; None prints nothing.
        clock: monotonic time in seconds.

    Raises:
        SpecError: The data is not of a known kind, or its length is unknown and ``steps_per_epoch`` is None.
        HorovodMissingError: There are several ranks, and Horovod is not installed for this Keras backend.
    """
    from batchhvd.trainer import hvd
    from batchhvd.trainer.hvd.weight_check import LATER, check_weights
    from batchhvd.trainer.stopwatch import Stopwatch

    hvd.init()
    for optimizer in _optimizers(model, compiled):
        hvd.DistributedOptimizer(optimizer)
    feeding = functools.partial(
        feed,
        nearby(data),
        batch_size=batch_size,
        rank=hvd.rank(),
        ranks=hvd.size(),
        seed=seed,
        augment=augment,
        first_epoch=initial_epoch,
        whole=whole,
        pictures=pictures,
    )
    source = _even(feeding, steps_per_epoch, progress)
    tested = None if validation is None else share(nearby(validation), hvd.rank(), hvd.size(), pictures)
    model.train_function = _recorded(model) if compiled else None
    watch = Stopwatch(
        source, hvd.size(), progress if hvd.rank() == 0 else None, clock, FIRST_COMPILED if compiled else 1
    )
    history = model.fit(
        source.source,
        steps_per_epoch=source.steps,
        epochs=epochs,
        initial_epoch=initial_epoch,
        validation_data=tested,
        validation_batch_size=VALIDATION_BATCH,
        callbacks=[*_duties(callbacks, progress), watch],
        verbose=0,
        shuffle=False,
    )
    check_weights(model, "training", LATER)  # the end of training may have restored others
    return _result(history.history, watch, hvd.size())


def _even(feeding: Callable[..., Feed], steps: int | None, progress: Callable[[str], None] | None) -> Feed:
    """Returns the data of this rank, with as many steps as the rank that has most of them."""
    from batchhvd.trainer import hvd

    source = feeding(steps=steps)
    counts = hvd.allgather_object(source.steps, "steps")
    if len(set(counts)) == 1:
        return source
    if progress is not None and hvd.rank() == 0:
        had = ", ".join(f"rank {rank} {count}" for rank, count in enumerate(counts))
        progress(f"The ranks have data for different numbers of steps ({had}): all make {max(counts)}")
    return feeding(steps=max(counts))


def evaluate(model: keras.Model, data: Sequence[Array], *, pictures: bool = False) -> dict[str, float]:
    """Evaluates a compiled model on arrays that the ranks share, and returns the metrics, named ``val_…``.

    Args:
        model: compiled, the same on all ranks.
        data: arrays ``(x, y)`` or ``(x, y, sample_weight)``, complete on every rank.
        pictures: divides ``x`` by 255.
    """
    from batchhvd.trainer import hvd

    hvd.init()
    x, *others = share(nearby(data), hvd.rank(), hvd.size(), pictures)
    figures = model.evaluate(x, *others, batch_size=VALIDATION_BATCH, verbose=0, return_dict=True)
    everyone = hvd.allgather_object((len(x), {name: float(value) for name, value in figures.items()}))
    total = sum(count for count, _ in everyone)
    return {f"val_{name}": sum(count * part[name] for count, part in everyone) / total for name in figures}


def nearby(data: Samples) -> Samples:
    """Moves arrays to the GPU if PyTorch is the backend and uses one."""
    import keras

    if keras.config.backend() != "torch" or not isinstance(data, (tuple, list)):
        return data
    import torch

    if not torch.cuda.is_available():
        return data
    from batchhvd.trainer.torch_cuda import resident

    return resident(data)


def _optimizers(model: keras.Model, compiled: bool) -> list[keras.optimizers.Optimizer]:
    """Returns the optimizers to wrap: all that the model holds."""
    from batchhvd.trainer.hvd.optimizer_search import optimizers_of

    found = optimizers_of(model)
    if compiled and len(found) > 1:
        raise SpecError(
            f"a compiled step has one optimizer, and the model holds {', '.join(found)}",
            remedy="fit(..., compiled=False)",
        )
    return list(found.values())


def _recorded(model: keras.Model) -> RecordedStep:
    from batchhvd.trainer.torch_cuda import RecordedStep

    return RecordedStep(model)


def _duties(
    given: Sequence[keras.callbacks.Callback], say: Callable[[str], None] | None
) -> list[keras.callbacks.Callback]:
    """Returns what any training on several ranks needs, around the callbacks that were given.

    A model is restored before it is broadcast; metrics are averaged before callbacks read them.
    """
    from batchhvd.trainer.hvd import callbacks, files
    from batchhvd.trainer.hvd.agreement import StopTogether
    from batchhvd.trainer.hvd.weight_check import WeightCheck

    return [
        *files.restorers(given),
        files.RestoredEpoch(),
        callbacks.BroadcastGlobalVariablesCallback(0),
        WeightCheck(),
        callbacks.AverageMovingStatistics(),
        callbacks.MetricAverageCallback(),
        *files.others(given),
        StopTogether(say),
        files.WrittenFiles(),
    ]


def _result(history: Mapping[str, Sequence[float]], watch: Stopwatch, ranks: int) -> Fit:
    return Fit(
        history={name: tuple(map(float, values)) for name, values in history.items()},
        metrics={name: float(values[-1]) for name, values in history.items() if values},
        seconds=watch.seconds,
        first_seconds=watch.first_seconds,
        images_per_second=watch.samples / watch.seconds if watch.seconds else 0.0,
        ranks=ranks,
        steps=watch.steps,
    )
