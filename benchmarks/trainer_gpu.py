"""Measures the trainer on one NVIDIA GPU through ``batchhvd.trainer.fit``, and writes what it found as JSON lines.

    export KERAS_BACKEND=torch
    python benchmarks/trainer_gpu.py check throughput tutorial fast --data-dir DATA --out FILE
    python benchmarks/trainer_gpu.py search-tutorial --data-dir DATA --out FILE --part 0/8 --limit 240

    python benchmarks/trainer_gpu.py together --ranks 2 --data-dir DATA --out FILE

``together`` trains compiled on several ranks, one GPU each, with the exchange of gradients and with it taken out;
``check`` compares the recorded step with Keras's own; ``throughput`` counts images per second; ``tutorial`` and
``fast`` train to an accuracy and report the time; ``search-…`` tries recipes at random until the limit, one part of
them; ``ceiling`` and ``copied`` show what the pictures themselves allow.
"""

from __future__ import annotations

import argparse
import functools
import io
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import attrs

from batchhvd.trainer import backend

backend.prepare()

import keras  # noqa: E402  after the preparation on purpose
import numpy as np  # noqa: E402
import torch  # noqa: E402

from batchhvd.trainer import data as datasets  # noqa: E402
from batchhvd.trainer import (  # noqa: E402
    hvd,
    network,  # noqa: E402
    recipe,
    torch_cuda,
    train,
)
from batchhvd.trainer.feed import feed  # noqa: E402
from batchhvd.trainer.fitting import fit  # noqa: E402
from batchhvd.trainer.measure import ranks  # noqa: E402
from batchhvd.trainer.schedule import one_cycle  # noqa: E402
from batchhvd.trainer.shard import Augment  # noqa: E402

Row = dict[str, Any]
RECORDED_STEP: Any = torch_cuda.RecordedStep


def main() -> None:
    """Runs the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=list(PARTS))
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--part", default="0/1", help="which of how many parts of a search this process does")
    parser.add_argument("--limit", type=float, default=1e9, help="seconds after which no new try begins")
    parser.add_argument("--found", type=Path, help="rows of a search, for best")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=1, help="processes, one GPU each")
    options = parser.parse_args()
    if options.ranks > 1 and "HOROVOD_RANK" not in os.environ:
        raise SystemExit(launched(options.ranks))
    hvd.init()
    data = datasets.load("cifar10", options.data_dir)
    end = time.monotonic() + options.limit
    for part in options.parts:
        for row in PARTS[part](data, options):
            if hvd.rank() == 0:
                write(options.out, {"part": part, **row})
            if time.monotonic() > end:
                return


def launched(size: int) -> int:
    """Runs this script once per rank and shows what rank 0 says."""
    outcomes = ranks.run(ranks.python(*sys.argv), size, timeout=560)
    print(outcomes[0].output)
    return max(outcome.exit_code for outcome in outcomes)


def write(path: Path, row: Row) -> None:
    """Appends a row, with where it was measured."""
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor()
    where = {"machine": name, "torch": torch.__version__, "keras": keras.__version__}
    line = json.dumps({**row, **where}, default=str)
    with path.open("a") as file:
        file.write(line + "\n")
    print(json.dumps(row, default=str), flush=True)


def trained(
    chosen: recipe.Recipe,
    data: datasets.Data,
    *,
    epochs: int,
    batch: int,
    seed: int = 0,
    compiled: bool = True,
    augment: Augment | None = Augment(4, True),  # noqa: B008  a frozen value
    validate: bool = True,
) -> tuple[Any, Row]:
    """Trains a recipe and returns the model and the figures."""
    keras.utils.set_random_seed(seed)
    settings = train.TrainingSettings(dir="", dataset="cifar10", epochs=epochs, batch_size=batch, seed=seed)
    plan = attrs.evolve(train.planned(settings, data, 1), recipe=chosen, rate=chosen.rate, smoothing=chosen.smoothing)
    keras.mixed_precision.set_dtype_policy(backend.precision())
    model = train.built(plan, data)
    loss = keras.losses.CategoricalCrossentropy(label_smoothing=plan.smoothing)
    model.compile(optimizer=train.optimizer(plan), loss=loss, metrics=["accuracy"], jit_compile=False)
    began = time.perf_counter()
    result = fit(
        model,
        (data.x_train, train.one_hot(data.y_train, data.classes)),
        epochs=epochs,
        batch_size=batch,
        augment=augment,
        pictures=True,
        seed=seed,
        compiled=compiled,
        progress=None,
    )
    row: Row = {
        "recipe": chosen.name,
        "compiled": compiled,
        "first_seconds": round(result.first_seconds, 1),
        "batch": batch,
        "epochs": epochs,
        "seed": seed,
        "images_per_second": round(result.images_per_second),
        "seconds": round(result.seconds, 3),
        "seconds_in_all": round(time.perf_counter() - began, 1),
        "train_accuracy": round(result.metrics["accuracy"], 4),
    }
    if validate:
        plain, mirrored = scores(model, data)
        row |= {"accuracy": plain, "accuracy_tta": mirrored}
    return model, row


def scores(model: Any, data: datasets.Data) -> tuple[float, float]:
    """Returns the test accuracy, and the one with the predictions for each picture and its mirror image added."""
    x = torch.as_tensor(data.x_test).cuda().float() / 255  # (10000, 32, 32, 3)
    y = torch.as_tensor(data.y_test).cuda()  # (10000,)
    with torch.no_grad():
        straight = torch.cat([model(part, training=False) for part in x.split(2000)])  # (10000, 10)
        mirrored = torch.cat([model(part, training=False) for part in x.flip(2).split(2000)])
    right = [(guess.argmax(1) == y).float().mean().item() for guess in (straight, straight.log() + mirrored.log())]
    return round(right[0], 4), round(right[1], 4)


# --- is the recorded step the same step? ---------------------------------------------------------------------------


def check(data: datasets.Data, options: argparse.Namespace) -> Iterator[Row]:
    """Trains the same steps in each way, without dropout and in float32, and compares the weights."""
    for compiled, alone in ((False, True), (True, True), (True, False)):
        yield compared(data, compiled, alone)


def compared(data: datasets.Data, compiled: bool, alone: bool) -> Row:
    """Returns how far 12 steps of one kind end from the same steps of Keras's own kind."""
    weights = []
    torch_cuda.RecordedStep = functools.partial(RECORDED_STEP, alone=alone)
    for kind in (False, compiled):
        keras.utils.set_random_seed(0)
        keras.mixed_precision.set_dtype_policy("float32")
        layers = keras.layers
        model = keras.Sequential(
            [keras.Input((32, 32, 3)), layers.Conv2D(16, 3), layers.BatchNormalization(), layers.Activation("relu")]
            + [layers.MaxPooling2D(4), layers.Flatten(), layers.Dense(10), layers.Activation("softmax")]
        )
        model.compile(keras.optimizers.AdamW(1e-3), "categorical_crossentropy", metrics=["accuracy"], jit_compile=False)
        pictures = data.x_train[:3000], train.one_hot(data.y_train[:3000], 10)
        result = fit(
            model, pictures, batch_size=250, augment=Augment(4, True), pictures=True, compiled=kind, progress=None
        )
        weights.append(np.concatenate([keras.ops.convert_to_numpy(w).ravel() for w in model.weights]))
    torch_cuda.RecordedStep = RECORDED_STEP
    difference = float(np.linalg.norm(weights[0] - weights[1]) / np.linalg.norm(weights[0]))
    return {"compiled": compiled, "alone": alone, "difference": difference, "loss": result.metrics["loss"]}


# --- do compiled steps exchange gradients? ---------------------------------------------------------------------------


def together(data: datasets.Data, options: argparse.Namespace) -> Iterator[Row]:
    """Trains compiled from each rank's own start, with the exchange of gradients and without."""
    for exchanged in (True, False):
        backend.seed(hvd.rank())
        layers = keras.layers
        model = keras.Sequential(
            [keras.Input((32, 32, 3)), layers.Conv2D(16, 3), layers.BatchNormalization(), layers.Activation("relu")]
            + [layers.MaxPooling2D(4), layers.Dropout(0.2), layers.Flatten(), layers.Dense(10, activation="softmax")]
        )
        optimizer = hvd.DistributedOptimizer(keras.optimizers.AdamW(1e-3))
        if not exchanged:
            type(optimizer).reduction = Nothing()
        model.compile(optimizer, "categorical_crossentropy", metrics=["accuracy"], jit_compile=False)
        pictures = data.x_train[:6000], train.one_hot(data.y_train[:6000], 10)
        result = fit(model, pictures, epochs=2, batch_size=250, pictures=True, compiled=backend.gpu(), progress=None)
        weights = b"".join(np.ascontiguousarray(weight).tobytes() for weight in model.get_weights())
        digests = hvd.allgather_object(sha256(weights).hexdigest())
        yield {
            "exchanged": exchanged,
            "same_weights": len(set(digests)) == 1,
            "ranks": hvd.size(),
            "steps": result.steps,
        }


class Nothing:
    """Stands in for the reduction that is taken out."""

    def reduce(self, gradients: list[Any], name: str) -> list[Any]:
        """Returns each rank's own gradients."""
        return list(gradients)


# --- speed ---------------------------------------------------------------------------------------------------------


def throughput(data: datasets.Data, options: argparse.Namespace) -> Iterator[Row]:
    """Counts images per second of the tutorial's network, with and without augmentation."""
    for batch, augmented in ((4096, True), (4096, False), (1024, True), (8192, True)):
        augment = Augment(4, True) if augmented else None
        _, row = trained(recipe.TUTORIAL, data, epochs=20, batch=batch, augment=augment, validate=False)
        yield {**row, "augmented": augmented}


# --- accuracy ------------------------------------------------------------------------------------------------------


def tutorial(data: datasets.Data, options: argparse.Namespace) -> Iterator[Row]:
    """Trains the tutorial's network to 75 %."""
    for batch, epochs in ((512, 12), (1024, 18)):
        chosen = attrs.evolve(recipe.TUTORIAL, rate=recipe.TUTORIAL.rate_for(batch))
        for seed in range(options.runs):
            yield trained(chosen, data, epochs=epochs, batch=batch, seed=seed, augment=Augment(2, True))[1]


def fast(data: datasets.Data, options: argparse.Namespace) -> Iterator[Row]:
    """Trains the fast recipe."""
    batch = recipe.FAST.gpu_batch
    chosen = attrs.evolve(recipe.FAST, rate=recipe.FAST.rate_for(batch))
    augment = Augment(chosen.shift, True, chosen.hole)
    for seed in range(options.runs):
        yield trained(chosen, data, epochs=chosen.epochs["cifar10"], batch=batch, seed=seed, augment=augment)[1]


def best(data: datasets.Data, options: argparse.Namespace) -> Iterator[Row]:
    """Trains what a search found best for the fast recipe, alone on the GPU."""
    found = [json.loads(line) for line in options.found.read_text().splitlines()]
    top = max((row for row in found if row["part"] == "search-fast"), key=lambda row: row["accuracy"])
    chosen = attrs.evolve(case_recipe(top), rate=top["rate"], warmup=top["warmup"])
    augment = Augment(top["shift"], True, top["hole"])
    for seed in range(options.runs):
        _, row = trained(chosen, data, epochs=top["epochs"], batch=top["batch"], seed=seed, augment=augment)
        yield {**row, "widths": top["widths"], "found": top["accuracy"]}


# --- search: one recorded step per process, many trainings with it ---------------------------------------------------


class Trial:
    """Trains one recorded model again and again: what a step computes stays, the rate is given to it from outside."""

    def __init__(self, chosen: recipe.Recipe, data: datasets.Data, batch: int) -> None:
        keras.mixed_precision.set_dtype_policy(backend.precision())
        self.data, self.batch = data, batch
        settings = train.TrainingSettings(dir="", dataset="cifar10", batch_size=batch)
        self.plan = attrs.evolve(train.planned(settings, data, 1), recipe=chosen)
        self.model = train.built(self.plan, data)
        self.optimizer = hvd.DistributedOptimizer(train.optimizer(self.plan, rate=1e-9))
        loss = keras.losses.CategoricalCrossentropy(label_smoothing=chosen.smoothing)
        self.model.compile(optimizer=self.optimizer, loss=loss, metrics=["accuracy"], jit_compile=False)
        self.optimizer.build(self.model.trainable_variables)
        self.zero = [keras.ops.convert_to_numpy(v) for v in self.optimizer.variables]
        self.model.train_function = torch_cuda.RecordedStep(self.model)
        self.arrays = torch_cuda.resident([data.x_train, train.one_hot(data.y_train, data.classes)])

    def run(self, *, rate: float, warmup: float, epochs: int, augment: Augment, seed: int) -> Row:
        """Trains from new weights and returns the figures."""
        self._forget(seed)
        source = feed(self.arrays, batch_size=self.batch, rank=0, ranks=1, seed=seed, augment=augment, pictures=True)
        cycle = functools.partial(one_cycle, steps=epochs * source.steps, peak=rate, warmup=warmup)
        began = time.perf_counter()
        run = self.model.fit(
            source.source, steps_per_epoch=source.steps, epochs=epochs, verbose=0, callbacks=[Rate(cycle)]
        )
        seconds = time.perf_counter() - began
        plain, mirrored = scores(self.model, self.data)
        row = {"rate": rate, "warmup": warmup, "epochs": epochs, "shift": augment.shift, "seed": seed}
        row |= {"seconds": round(seconds, 2), "train_accuracy": round(float(run.history["accuracy"][-1]), 4)}
        return {**row, "accuracy": plain, "accuracy_tta": mirrored}

    def _forget(self, seed: int) -> None:
        keras.utils.set_random_seed(seed)
        fresh = train.built(self.plan, self.data)
        for variable, new in zip(self.model.weights, fresh.weights, strict=True):
            variable.assign(new)
        for variable, value in zip(self.optimizer.variables, self.zero, strict=True):
            variable.assign(value)


class Rate(keras.callbacks.Callback):
    """Sets the rate before each step."""

    def __init__(self, cycle: Callable[[float], float]) -> None:
        super().__init__()
        self.cycle, self.step = cycle, 0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Sets the next one."""
        self.model.optimizer._learning_rate.assign(self.cycle(self.step))
        self.step += 1


# batch, decay, smoothing, momentum
TUTORIAL_CASES = (
    (128, 0.01, 0.0, None),
    (128, 0.05, 0.0, None),
    (128, 0.05, 0.1, None),
    (128, 5e-3, 0.0, 0.9),
    (256, 0.05, 0.0, None),
    (1024, 0.05, 0.0, None),
)


def search_tutorial(data: datasets.Data, options: argparse.Namespace) -> Iterator[Row]:
    """Tries rates, decays and batches for few passes of the tutorial's network."""
    mine = int(options.part.split("/")[0])
    rng = np.random.default_rng([7, mine])
    batch, decay, smoothing, momentum = TUTORIAL_CASES[mine % len(TUTORIAL_CASES)]
    chosen = attrs.evolve(recipe.TUTORIAL, decay=decay, smoothing=smoothing, momentum=momentum)
    trial = Trial(chosen, data, batch)
    rates = (0.02, 0.04, 0.08, 0.12) if momentum else (1.5e-3, 2e-3, 3e-3, 4e-3, 6e-3)
    while True:
        row = trial.run(
            rate=float(rng.choice(rates)) * (batch / 128) ** 0.5,
            warmup=float(rng.choice([0.15, 0.25, 0.4])),
            epochs=int(rng.choice([9, 12] if batch < 1024 else [12, 20])),
            augment=Augment(int(rng.choice([2, 3, 4])), True),
            seed=int(rng.integers(1000)),
        )
        yield {**row, "batch": batch, "decay": decay, "smoothing": smoothing, "momentum": momentum}


BUDGET = 0.63  # PFLOP: what the tutorial's 100 passes cost
FAST_CASES: tuple[Row, ...] = (
    {"widths": (64, 256, 256), "batch": 1024, "decay": 0.01, "bias_rate": 16.0, "smoothing": 0.2},
    {"widths": (64, 256, 256), "batch": 512, "decay": 0.01, "bias_rate": 16.0, "smoothing": 0.2},
    {"widths": (96, 256, 384), "batch": 512, "decay": 0.01, "bias_rate": 16.0, "smoothing": 0.2},
    {"widths": (128, 384, 512), "batch": 512, "decay": 0.01, "bias_rate": 16.0, "smoothing": 0.2},
)


def case_recipe(case: Row) -> recipe.Recipe:
    """Makes the recipe of one case: the fast one before Muon, with momentum for all weights."""
    build = functools.partial(network.fast, widths=tuple(case["widths"]))
    kept = {name: case[name] for name in ("decay", "bias_rate", "smoothing")}
    return attrs.evolve(recipe.FAST, build=build, filters=None, warmup=0.15, **kept)


def petaflop(model: Any, pictures: int) -> float:
    """Returns the arithmetic of training on so many pictures: six operations per weight and place it is used at."""
    products = 0
    for layer in model.layers:
        if type(layer).__name__ in ("Conv2D", "Dense"):
            places = np.prod(layer.output.shape[1:-1], dtype=int)  # of a convolution; 1 of a dense layer
            products += int(places * np.prod(layer.kernel.shape))
    return 6e-15 * products * pictures


def search_fast(data: datasets.Data, options: argparse.Namespace) -> Iterator[Row]:
    """Tries rates, shifts and holes of the fast recipe, each training within the budget."""
    mine = int(options.part.split("/")[0])
    rng = np.random.default_rng([11, mine])
    case = FAST_CASES[mine % len(FAST_CASES)]
    trial = Trial(case_recipe(case), data, case["batch"])
    pass_cost = petaflop(trial.model, len(data.x_train))
    epochs = int(BUDGET / pass_cost)
    while True:
        hole = int(rng.choice([0, 0, 6]))
        row = trial.run(
            rate=float(rng.choice([0.7, 1.0, 1.5, 2.0])) * (case["batch"] / 1024) ** 0.5,
            warmup=float(rng.choice([0.15, 0.25])),
            epochs=epochs,
            augment=Augment(int(rng.choice([1, 2])), True, hole),
            seed=int(rng.integers(1000)),
        )
        yield {**case, **row, "hole": hole, "petaflop": round(epochs * pass_cost, 3)}


def ceiling(data: datasets.Data, options: argparse.Namespace) -> Iterator[Row]:
    """Trains a network three to four times as wide for long: what these pictures allow whatever it costs."""
    case = {**FAST_CASES[3], "widths": (256, 768, 1024)}
    chosen = attrs.evolve(case_recipe(case), rate=0.7)
    model, row = trained(chosen, data, epochs=30, batch=512, augment=Augment(2, True, 8))
    yield {**row, "widths": case["widths"], "petaflop": round(petaflop(model, 30 * len(data.x_train)), 1)}


def copied(data: datasets.Data, options: argparse.Namespace) -> Iterator[Row]:
    """Trains on the pictures as they are, and on a JPEG copy of them, to see what one generation of copies costs."""
    case = FAST_CASES[0]
    chosen = attrs.evolve(case_recipe(case), rate=1.5)
    for generation in range(2):
        _, row = trained(chosen, data, epochs=17, batch=case["batch"])
        yield {**row, "widths": case["widths"], "more_generations": generation}
        data = attrs.evolve(data, x_train=jpeg(data.x_train), x_test=jpeg(data.x_test))


def jpeg(pictures: Any) -> Any:
    """Returns a JPEG copy (quality 75, halved colour); its blocks lie half a block beside those of an earlier one."""
    from PIL import Image

    found = []
    for picture in pictures:
        file = io.BytesIO()
        Image.fromarray(np.pad(picture, ((4, 4), (4, 4), (0, 0)), "edge")).save(file, "jpeg", quality=75)
        found.append(np.asarray(Image.open(file).convert("RGB"))[4:-4, 4:-4])
    return np.stack(found)


PARTS: dict[str, Callable[[datasets.Data, argparse.Namespace], Iterator[Row]]] = {
    "check": check,
    "together": together,
    "throughput": throughput,
    "tutorial": tutorial,
    "fast": fast,
    "best": best,
    "search-tutorial": search_tutorial,
    "search-fast": search_fast,
    "ceiling": ceiling,
    "copied": copied,
}

if __name__ == "__main__":
    main()
