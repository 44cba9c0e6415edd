"""The training script: read it from top to bottom.

    python -m batchhvd.trainer --dir out                                      # digits, one process
    python -m batchhvd.trainer --dir out --dataset cifar10 --data-dir data    # CIFAR-10 from a folder
    horovodrun -np 4 python -m batchhvd.trainer --dir out                     # four ranks

Every rank runs this same file. What makes it parallel: Horovod starts, the learning rate is scaled,
the optimizer averages gradients, rank 0's weights are sent to all, and only rank 0 writes and prints.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import numpy as np

from batchhvd.errors import BatchHvdError
from batchhvd.trainer import backend
from batchhvd.trainer import data as datasets
from batchhvd.trainer import recipe as recipes
from batchhvd.trainer.schedule import TUTORIAL_RATE, one_cycle_schedule, scaling, tutorial_epochs, tutorial_schedule
from batchhvd.trainer.shard import Augment, Shard

if TYPE_CHECKING:
    import keras
    from numpy.typing import NDArray

    from batchhvd.trainer.checkpoint import Checkpoints
    from batchhvd.trainer.fitting import Fit

TUTORIAL_BATCH = 32
TUTORIAL_SHIFT = 3  # a tenth of the picture's side
GREY = 120  # near the mean of photographs
MODEL_NAME = "keras_cifar10_trained_model.h5"  # the tutorial's

# --- settings ------------------------------------------------------------------------------------------------------


@attrs.frozen
class TrainingSettings:
    """What to train and how; None leaves the choice to the recipe.

    Attributes:
        dir: the folder for the model and the records.
        dataset: ``"digits"``, ``"cifar10"`` or an .npz file.
        data_dir: a folder with CIFAR-10's python batches; None downloads them.
        epochs: passes over the data.
        batch_size: samples of one rank per step.
        recipe: ``"tutorial"``, ``"fast"`` or ``"best"``.
        schedule: ``"onecycle"``, or ``"tutorial"`` for the printed script's arithmetic.
        rate: the learning rate of one rank.
        scaling: how it grows with the ranks: ``"linear"``, ``"sqrt"`` or ``"none"``; None is the recipe's choice.
        precision: ``"auto"``, ``"float32"`` or ``"bfloat16"``.
        step: ``"plain"`` or ``"compiled"``, see :func:`batchhvd.trainer.fitting.fit`; ``"auto"`` compiles on PyTorch
            with a GPU.
        seed: decides shuffles, augmentation and first weights.
        checkpoints: how many of the newest checkpoints are kept in ``dir``; 0 writes none.
        resume: continues from the last checkpoint in ``dir``.
    """

    dir: str
    dataset: str = "digits"
    data_dir: str | None = None
    epochs: int | None = None
    batch_size: int | None = None
    recipe: str = "tutorial"
    schedule: str = "onecycle"
    rate: float | None = None
    scaling: str | None = None
    precision: str = "auto"
    step: str = "auto"
    seed: int = 0
    checkpoints: int = 1
    resume: bool = False


def parse(argv: Sequence[str]) -> TrainingSettings:
    """Reads the command line."""
    parser = argparse.ArgumentParser(prog="batchhvd.trainer", description="Trains on all ranks that were started.")
    parser.add_argument("-d", "--dir", required=True, help="directory to save the model to")
    parser.add_argument("--dataset", default="digits", help="digits, cifar10 or an .npz file (default: digits)")
    parser.add_argument("--data-dir", help="folder with cifar-10-batches-py; without it Keras downloads CIFAR-10")
    parser.add_argument("--epochs", type=_positive, help="passes over the data")
    parser.add_argument("--batch-size", type=_positive, help="samples of one rank per step")
    parser.add_argument("--recipe", default="tutorial", choices=list(recipes.RECIPES))
    parser.add_argument("--schedule", default="onecycle", choices=["onecycle", "tutorial"])
    parser.add_argument("--rate", type=float, help="learning rate of one rank")
    parser.add_argument("--scaling", choices=["linear", "sqrt", "none"], help="of the rate with ranks")
    parser.add_argument("--precision", default="auto", choices=["auto", "float32", "bfloat16"])
    parser.add_argument("--step", default="auto", choices=["auto", "plain", "compiled"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoints", type=int, default=1, help="how many of the newest to keep (0: write none)")
    parser.add_argument("--resume", action="store_true", help="continue from the last checkpoint in --dir")
    return TrainingSettings(**vars(parser.parse_args(argv)))


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not a positive number")
    return number


# --- the training --------------------------------------------------------------------------------------------------


def main(argv: Sequence[str]) -> int:
    """Trains, saves and evaluates a model; returns the exit code."""
    try:
        train(parse(argv))
    except BatchHvdError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


def train(settings: TrainingSettings) -> Fit:
    """Trains, saves and evaluates a model on all ranks, and returns the result of the training."""
    backend.prepare()  # before Keras is imported
    import keras

    from batchhvd.trainer import hvd
    from batchhvd.trainer.fitting import evaluate, fit

    hvd.init()
    say = print if hvd.rank() == 0 else _silent
    backend.seed(settings.seed + 1000 * hvd.rank())  # dropout differs; all get the weights of rank 0
    keras.mixed_precision.set_dtype_policy(backend.precision(settings.precision))

    data = datasets.load(settings.dataset, settings.data_dir)
    announce(data, say)
    train_data = data.x_train, one_hot(data.y_train, data.classes)
    test_data = data.x_test, one_hot(data.y_test, data.classes)

    plan = planned(settings, data, hvd.size())
    model = built(plan, data)
    model.compile(
        optimizer=hvd.DistributedOptimizer(optimizer(plan)),
        loss=keras.losses.CategoricalCrossentropy(label_smoothing=plan.smoothing),
        metrics=["accuracy"],
        jit_compile=False,
    )
    result = fit(
        model,
        train_data,
        validation=test_data,
        epochs=plan.epochs,
        batch_size=plan.batch,
        augment=augmentation(plan, data),
        pictures=True,
        seed=settings.seed,
        whole=plan.faithful,
        initial_epoch=resumed(settings, model),
        callbacks=writers(settings),
        compiled=backend.compiled(settings.step),
        progress=say,
    )
    scores = result.metrics or evaluate(
        model, test_data, pictures=True
    )  # after --resume there may be nothing left to train

    if hvd.rank() == 0:
        say(f"Saved trained model at {save(model, plan, place(settings))} ")
        note(settings, plan, result)
    say(f"Test loss: {scores['val_loss']}")
    say(f"Test accuracy: {scores['val_accuracy']}")
    return result


def _silent(line: str) -> None:
    """Prints nothing: the other ranks use it instead of ``print``."""


def announce(data: datasets.Data, say: Callable[[str], None]) -> None:
    """Prints a summary of the data, in the tutorial's words."""
    say(f"x_train shape: {data.x_train.shape}")
    say(f"{len(data.x_train)} train samples")
    say(f"{len(data.x_test)} test samples")
    say("Using real-time data augmentation.")


def one_hot(labels: NDArray[np.int64], classes: int) -> NDArray[np.float32]:
    """Returns labels (n,) as rows of zeros and ones: float32 (n, classes)."""
    return np.eye(classes, dtype=np.float32)[labels]


# --- what follows from the settings, the recipe and the ranks ------------------------------------------------------


@attrs.frozen
class TrainingPlan:
    """The numbers of one training.

    Attributes:
        recipe: network and optimizer.
        shape, classes: shape of a picture, and number of labels.
        epochs, batch, steps: passes over the data, samples of one rank per step, steps of the whole training.
        rate: the peak learning rate, already scaled for the ranks.
        smoothing: label smoothing.
        faithful: whether to use the arithmetic of the printed script.
    """

    recipe: recipes.Recipe
    shape: tuple[int, ...]
    classes: int
    epochs: int
    batch: int
    steps: int
    rate: float
    smoothing: float
    faithful: bool


def planned(
    settings: TrainingSettings, data: datasets.Data, ranks: int, recipe: recipes.Recipe | None = None
) -> TrainingPlan:
    """Returns the numbers of a training on so many ranks; without a recipe, those of the one in the settings."""
    recipe = recipe or recipes.named(settings.recipe)
    faithful = settings.schedule == "tutorial"
    epochs = settings.epochs or (tutorial_epochs(ranks) if faithful else recipe.epochs_for(data.name))
    batch = settings.batch_size or (TUTORIAL_BATCH if faithful else recipe.batch_for(ranks, backend.gpu()))
    rate = settings.rate or (TUTORIAL_RATE if faithful else recipe.rate_for(batch))
    return TrainingPlan(
        recipe=recipe,
        shape=data.x_train.shape[1:],
        classes=data.classes,
        epochs=epochs,
        batch=batch,
        steps=epochs * Shard(len(data.x_train), batch, ranks=ranks, whole=faithful).steps,
        rate=scaling(settings.scaling or ("linear" if faithful else recipe.scaling)).rate(rate, ranks),
        smoothing=0.0 if faithful else recipe.smoothing,
        faithful=faithful,
    )


def built(plan: TrainingPlan, data: datasets.Data) -> keras.Model:
    """Builds the recipe's network for the data."""
    model = plan.recipe.build(plan.shape, plan.classes)
    if plan.recipe.adapt is not None:
        plan.recipe.adapt(model, data.x_train)
    return model


def augmentation(plan: TrainingPlan, data: datasets.Data) -> Augment:
    """Returns how training pictures are changed: as in the tutorial, or as measured to be best for few passes."""
    shift = TUTORIAL_SHIFT if plan.faithful else min(data.shift, plan.recipe.shift)
    hole = 0 if plan.faithful or not data.flip else plan.recipe.hole
    return Augment(shift, data.flip, hole, GREY if hole else 0)


def optimizer(
    plan: TrainingPlan, rate: float | keras.optimizers.schedules.LearningRateSchedule | None = None
) -> keras.optimizers.Optimizer:
    """Returns the optimizer: the tutorial's RMSprop with decay, or that of the recipe.

    Args:
        plan: the numbers of the training.
        rate: a number or a schedule; None is one cycle up to the rate of the plan.
    """
    import keras

    recipe = plan.recipe
    if plan.faithful:
        return keras.optimizers.RMSprop(tutorial_schedule(plan.rate))
    rate = rate or one_cycle_schedule(steps=plan.steps, peak=plan.rate, warmup=recipe.warmup)
    if recipe.momentum is None:
        return keras.optimizers.AdamW(rate, weight_decay=recipe.decay)
    if recipe.filters is not None:
        return _muon(plan, recipe.filters, rate)
    from batchhvd.trainer.optimizers.nesterov import Nesterov

    return Nesterov(rate, momentum=recipe.momentum, decay=recipe.decay, bias_rate=recipe.bias_rate)


def _muon(
    plan: TrainingPlan, momentum: float, rate: float | keras.optimizers.schedules.LearningRateSchedule
) -> keras.optimizers.Optimizer:
    from batchhvd.trainer.optimizers.muon import Muon

    recipe = plan.recipe
    return Muon(
        rate,
        momentum=momentum,
        plain=("head",),
        plain_rate=recipe.head_rate,
        bias_rate=recipe.bias_rate,
        plain_momentum=recipe.momentum or 0.0,
        decay=recipe.decay,
        brief=("whitening",),
        brief_steps=max(1, round(recipe.first_layer * plan.steps / plan.epochs)),
    )


# --- what is written during training -------------------------------------------------------------------------------


def writers(settings: TrainingSettings) -> list[keras.callbacks.Callback]:
    """Returns the callbacks that write one record per epoch, and checkpoints."""
    from batchhvd.trainer.checkpoint_callback import SaveCheckpoints
    from batchhvd.trainer.epoch_records import EpochRecords

    records: list[keras.callbacks.Callback] = [EpochRecords(Path(settings.dir, "epochs.jsonl"))]
    return [*records, SaveCheckpoints(_checkpoints(settings))] if settings.checkpoints else records


def resumed(settings: TrainingSettings, model: keras.Model) -> int:
    """Restores the last checkpoint if the settings say so, and returns the epoch to continue with."""
    from batchhvd.trainer.checkpoint import restore

    return restore(model, _checkpoints(settings)).epoch if settings.resume else 0


def _checkpoints(settings: TrainingSettings) -> Checkpoints:
    from batchhvd.trainer.checkpoint import Checkpoints

    return Checkpoints(Path(settings.dir, "checkpoints"), max(settings.checkpoints, 1))


def note(settings: TrainingSettings, plan: TrainingPlan, result: Fit) -> None:
    """Writes the result to ``training.json``; if nothing was left to train, the previous result stays."""
    if not result.steps:
        return
    figures = attrs.asdict(result) | {"recipe": plan.recipe.name, "dataset": settings.dataset}
    figures |= {"batch": plan.batch, "epochs": plan.epochs, "rate": plan.rate}
    Path(settings.dir, "training.json").write_text(json.dumps(figures, indent=2) + "\n")


# --- the result ----------------------------------------------------------------------------------------------------


def place(settings: TrainingSettings) -> Path:
    """Returns the path of the model."""
    return Path(settings.dir, "saved_models", MODEL_NAME)


def save(model: keras.Model, plan: TrainingPlan, path: Path) -> Path:
    """Saves the trained network so that plain Keras can load it: in float32, with an optimizer that Keras knows.

    Returns where it is, in a job as ``backend.as_shown`` puts it.

    It is written under a temporary name first, so a reader never sees an incomplete file.
    """
    import keras

    keras.mixed_precision.set_dtype_policy("float32")
    plain = plan.recipe.build(plan.shape, plan.classes)
    plain.set_weights(model.get_weights())
    plain.compile(optimizer="rmsprop", loss="categorical_crossentropy", metrics=["accuracy"])
    path.parent.mkdir(parents=True, exist_ok=True)
    for target in (path.with_suffix(".keras"), path):
        beside = target.with_stem(f".{target.stem}")
        plain.save(beside)
        beside.replace(target)
    return backend.as_shown(path)
