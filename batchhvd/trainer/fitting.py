"""``fit``: the one call that trains any compiled Keras 3 model on all ranks.

It does what otherwise must be done by hand around ``model.fit``: wraps the optimizer so that gradients are averaged,
gives each rank its part of the data with equal steps, sends rank 0's weights and optimizer state to all before the
first step, averages metrics, keeps statistics such as those of batch normalization equal, and lets only rank 0 print.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import attrs

from batchhvd.errors import SpecError
from batchhvd.trainer.combination import combination, require_divisible
from batchhvd.trainer.feed import feed, share, share_batches
from batchhvd.trainer.schedule import NONE, Scaling, rate_text, scaled_rates, scaling
from batchhvd.trainer.shard import Augment

if TYPE_CHECKING:
    import keras

    from batchhvd.trainer.feed import Array, Batches, Feed, Nested, Samples
    from batchhvd.trainer.hvd.binding import Op
    from batchhvd.trainer.schedule import ScaleRate
    from batchhvd.trainer.stopwatch import Stopwatch
    from batchhvd.trainer.torch_cuda import RecordedStep

VALIDATION_BATCH = 500


@attrs.frozen
class Fit:
    """The result of a training; the same on every rank except for the times and ``images_per_second``.

    Attributes:
        history: the value of each metric after each epoch, averaged over the ranks; names with ``val_`` belong to the
            validation data.
        metrics: the last value of each metric; one whose value is an array has a name for each, such as ``f1[0]``.
        seconds: duration of the training steps, without validation and ``first_seconds``.
        first_seconds: duration of the first step, which traces the model; of the first three if the step is compiled,
            and of five if it is compiled layer by layer.
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
    validation: Samples | None = None,
    validation_freq: int | Sequence[int] = 1,
    epochs: int = 1,
    batch_size: int = 32,
    steps_per_epoch: int | None = None,
    augment: Augment | None = None,
    pictures: bool = False,
    seed: int = 0,
    shuffle: bool = True,
    class_weight: Mapping[int, float] | None = None,
    whole: bool = False,
    scale_rate: ScaleRate | None = None,
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
            tensors on a GPU, each of which may be a list, tuple or dictionary; or batches, the same on every rank: a
            ``tf.data.Dataset``, a PyTorch DataLoader, a ``PyDataset``, or a generator with ``steps_per_epoch``.
        validation: arrays or batches, shared among the ranks, to evaluate after each epoch; None skips validation.
        validation_freq: epochs between two validations, or the epochs after which to validate.
        epochs: the number of the last epoch, counted from 1.
        batch_size: samples of one rank per step, for arrays.
        steps_per_epoch: None passes over the data once.
        augment: moves and mirrors pictures given as arrays; None leaves them as they are.
        pictures: divides ``x`` of arrays by 255, in training and in validation; without it, the model gets the
            values as they are, whatever their type.
        seed: decides shuffles and augmentation; the same on all ranks.
        shuffle: False takes arrays in their order.
        class_weight: the weight of each class in the loss; None weighs all alike.
        whole: lets every rank pass over all of the data, as the tutorial's script does.
        scale_rate: multiplies the learning rates by the number of ranks (``"linear"``) or its square root
            (``"sqrt"``) while this call trains; None keeps the rates as compiled. On several ranks a line says which.
        initial_epoch: the epoch to begin with, counted from 0, for resuming.
        callbacks: Keras callbacks, called on every rank; those of Keras that write files on rank 0 only.
        compiled: compiles the whole step and replays it as a CUDA graph; only for PyTorch on an NVIDIA GPU, and for
            models whose step is the same every time and never reads values back to the host.
        progress: called with one line per epoch on rank 0; None prints nothing.
        clock: monotonic time in seconds.

    Raises:
        SpecError: The data is not of a known kind, or its length is unknown and ``steps_per_epoch`` is None;
            or ``scale_rate`` is unknown, or a callback sets the rate by itself.
        HorovodMissingError: There are several ranks, and Horovod is not installed for this Keras backend.
    """
    from batchhvd.trainer import hvd
    from batchhvd.trainer.hvd.variable import as_array
    from batchhvd.trainer.hvd.weight_check import LATER, check_weights
    from batchhvd.trainer.reporting import training_record
    from batchhvd.trainer.stopwatch import Stopwatch

    hvd.init()
    training_record.note("order", seed)
    require_divisible(model, weighted=class_weight is not None or not _is_pair(data))
    optimizers = _optimizers(model, compiled)
    policy = _rate_policy(scale_rate, optimizers, callbacks)
    told = _rate_told(optimizers, policy, progress)
    _distribute(optimizers, combination(model))
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
        shuffle=shuffle,
    )
    source = _even(feeding, steps_per_epoch, model.steps_per_execution, progress)
    tested = None if validation is None else _part(validation, pictures)
    model.train_function = recorded = _recorded(model) if compiled else None
    say = progress if hvd.rank() == 0 else None
    _tell_unknown(recorded, say)
    watch = Stopwatch(source, hvd.size(), say, clock, recorded.warm_steps + 1 if recorded else 1)
    with scaled_rates(optimizers, policy.rate(1.0, hvd.size())):
        history = model.fit(
            source.source,
            steps_per_epoch=source.steps,
            epochs=epochs,
            initial_epoch=initial_epoch,
            validation_data=tested,
            validation_batch_size=VALIDATION_BATCH if isinstance(tested, tuple) else None,
            validation_freq=validation_freq,
            class_weight=class_weight,
            callbacks=[*_duties(callbacks, progress), *told, watch],
            verbose=0,
            shuffle=False,
        )
    check_weights(model, "training", LATER)  # the end of training may have restored others
    found = _result(history.history, watch, hvd.size())
    if hvd.rank() == 0:
        training_record.end(map(as_array, model.weights), found.metrics)
    return found


def _rate_policy(
    scale_rate: ScaleRate | None,
    optimizers: Sequence[keras.optimizers.Optimizer],
    callbacks: Sequence[keras.callbacks.Callback],
) -> Scaling:
    """Returns how the rate grows with the ranks, unless there are several, or a callback would overwrite it."""
    import keras

    from batchhvd.trainer.hvd.rate_callbacks import LearningRateScheduleCallback

    if scale_rate is None:
        return NONE
    policy = scaling(scale_rate)
    if any(isinstance(optimizer, keras.optimizers.MultiOptimizer) for optimizer in optimizers):
        raise SpecError(  # it may make them only when it sees the variables
            f"scale_rate={scale_rate!r} scales one rate, and a MultiOptimizer has one for each of its optimizers",
            remedy="multiply their rates by hvd.size() where you make them, and leave scale_rate out",
        )
    for callback in callbacks:
        if isinstance(callback, (keras.callbacks.LearningRateScheduler, LearningRateScheduleCallback)):
            raise SpecError(
                f"scale_rate={scale_rate!r} scales the rate, and {type(callback).__name__} sets it",
                remedy="scale the callback's rates by hvd.size() and leave scale_rate out",
            )
    return policy


def _rate_told(
    optimizers: Sequence[keras.optimizers.Optimizer], policy: Scaling, say: Callable[[str], None] | None
) -> list[keras.callbacks.Callback]:
    """Returns what tells the rate on rank 0, after a backup may have restored another one.

    A script that has wrapped its optimizers itself has made that choice: it gets no advice.
    """
    import keras

    from batchhvd.trainer import hvd
    from batchhvd.trainer.hvd.optimizer import is_distributed

    if say is None or hvd.rank() or hvd.size() == 1:
        return []
    text = functools.partial(rate_text, optimizers, hvd.size(), policy, advise=not any(map(is_distributed, optimizers)))
    return [keras.callbacks.LambdaCallback(on_train_begin=lambda _: say(text()))]


def _is_pair(data: Samples) -> bool:
    """Returns whether data is arrays without weights of samples."""
    return isinstance(data, (tuple, list)) and len(data) < 3


def _even(
    feeding: Callable[..., Feed], steps: int | None, execution: int, progress: Callable[[str], None] | None
) -> Feed:
    """Returns the data of this rank, with as many steps as the rank that has most of them.

    With ``steps_per_execution`` an epoch is a whole number of executions, since Keras does not end within one.
    """
    from batchhvd.trainer import hvd

    source = feeding(steps=steps)
    counts = hvd.allgather_object(source.steps, "steps")
    most = math.ceil(max(counts) / execution) * execution
    if set(counts) == {most}:
        return source
    if progress is not None and hvd.rank() == 0:
        had = ", ".join(f"rank {rank} {count}" for rank, count in enumerate(counts))
        whole = f", in executions of {execution}" if execution > 1 else ""
        progress(f"The ranks have data for different numbers of steps ({had}): all make {most}{whole}")
    return feeding(steps=most)


def _part(data: Samples, pictures: bool) -> Samples:
    """Returns what this rank evaluates."""
    from batchhvd.trainer import hvd

    if isinstance(data, (tuple, list)):
        return share(cast("Sequence[Nested]", nearby(data)), hvd.rank(), hvd.size(), pictures)
    return share_batches(cast("Batches", data), hvd.rank(), hvd.size())


def evaluate(model: keras.Model, data: Samples, *, pictures: bool = False) -> dict[str, float]:
    """Evaluates a compiled model on data that the ranks share, and returns the metrics, named ``val_…``.

    Args:
        model: compiled, the same on all ranks.
        data: arrays or batches as in `fit`, the same on every rank.
        pictures: divides ``x`` of arrays by 255.
    """
    from batchhvd.trainer import hvd
    from batchhvd.trainer.hvd.callbacks import counted, merged, numbers

    hvd.init()
    part = _part(data, pictures)
    if isinstance(part, tuple):
        figures = model.evaluate(*part[:2], VALIDATION_BATCH, 0, *part[2:], return_dict=True)
    else:
        figures = model.evaluate(part, verbose=0, return_dict=True)
    if hvd.size() > 1:
        figures |= merged(model, figures, hvd.allgather_object(counted(model, figures)))
    return {f"val_{name}": value for name, value in numbers(figures).items()}


def nearby(data: Samples) -> Samples:
    """Moves arrays to the GPU if PyTorch is the backend and uses one."""
    import keras

    flat = isinstance(data, (tuple, list)) and all(hasattr(part, "nbytes") for part in data)
    if keras.config.backend() != "torch" or not flat:
        return data
    import torch

    if not torch.cuda.is_available():
        return data
    from batchhvd.trainer.torch_cuda import resident

    return resident(cast("Sequence[Array]", data))


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


def _distribute(optimizers: Sequence[keras.optimizers.Optimizer], op: Op) -> None:
    """Wraps optimizers; one that the script has wrapped must combine gradients as the losses need it."""
    from batchhvd.trainer import hvd

    for optimizer in optimizers:
        inner = getattr(hvd.DistributedOptimizer(optimizer, op=op), "inner_optimizer", optimizer)
        if op is hvd.Sum and inner.reduction.op is not op:
            raise SpecError(
                "the losses are sums over a batch, and the optimizer averages the gradients of the ranks",
                remedy="hvd.DistributedOptimizer(optimizer, op=hvd.Sum), or leave the wrapping to fit",
            )


def _tell_unknown(step: RecordedStep | None, say: Callable[[str], None] | None) -> None:
    """Tells why a step is not compiled as a whole."""
    if step is not None and step.whole_reason and say is not None:
        say(f"The step is compiled layer by layer, which takes a minute or two, since {step.whole_reason}")


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
    from batchhvd.trainer.hvd.callbacks import numbers

    figures: dict[str, list[float]] = {}
    for name, values in history.items():
        for value in values:
            for label, number in numbers({name: value}).items():
                figures.setdefault(label, []).append(number)
    return Fit(
        history={name: tuple(values) for name, values in figures.items()},
        metrics={name: values[-1] for name, values in figures.items()},
        seconds=watch.seconds,
        first_seconds=watch.first_seconds,
        images_per_second=watch.samples / watch.seconds if watch.seconds else 0.0,
        ranks=ranks,
        steps=watch.steps,
    )
