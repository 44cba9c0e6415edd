"""The parity certificate: N ranks do what one rank with an N times larger batch does.

    python -m batchhvd.trainer parity --ranks 1,2,4 [--network tutorial] [--dataset digits] [--dir .]

For each number of ranks the same network is trained twice from the same weights on the same pictures in the same
order: by all ranks together, each with its part of every batch, and by one process alone with a plain optimizer.
Compared are the gradients of the first step, the weights after twenty steps, and the test accuracy after one more
pass. The first twenty steps are small ones: rounding alone moves a network to the other side of a ReLU's kink sooner
or later, and from there on two trainings part however right they are. Dropout is off, since its masks cannot be
alike. Networks with batch normalisation have no parity by their nature: each rank normalises with its own part of
the batch.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from attrs import asdict, frozen

from batchhvd.errors import BatchHvdError, EngineError, SpecError
from batchhvd.trainer.measure import ranks as processes

#: Largest differences that rounding explains in float32: relative for gradients and weights, absolute for accuracy.
GRADIENT, WEIGHT, ACCURACY = 1e-5, 1e-4, 0.03
STEPS = 20
#: Learning rates of the first steps, and of the pass after them. Weights that differ by 1e-7 from the start end that
#: pass with the same accuracy within 0.003; with a rate of 0.01 they are up to 0.11 apart, and nobody is to blame.
SMALL, LARGE = 0.001, 0.004


@frozen
class Parity:
    """How far one number of ranks is from one process alone.

    Attributes:
        ranks: how many trained together.
        batch: pictures of one step, of all ranks together.
        gradient_error: of the first step's gradients, all together: |difference| / |gradients|.
        weight_error: of all weights after `STEPS` steps, likewise.
        moved: how far these steps went, in the same measure; a comparison that went nowhere proves nothing.
        accuracy, alone: test accuracy after one more pass, together and alone.
    """

    ranks: int
    batch: int
    gradient_error: float
    weight_error: float
    moved: float
    accuracy: float
    alone: float

    @property
    def holds(self) -> bool:
        """True where all differences are within their limits."""
        near = abs(self.accuracy - self.alone) <= ACCURACY
        went = self.moved >= 10 * WEIGHT
        return self.gradient_error <= GRADIENT and self.weight_error <= WEIGHT and went and near


@frozen
class Trace:
    """What one training shows.

    Attributes:
        gradients: of the first step, of all weights in one row.
        start, weights: before the first step and after `STEPS` steps, likewise.
        accuracy: on the test pictures, after one more pass.
    """

    gradients: Any
    start: Any
    weights: Any
    accuracy: float


def measure(build: Callable[[], Any], train: tuple[Any, Any], test: tuple[Any, Any], batch: int) -> Parity | None:
    """Trains together and alone; call it on all ranks.

    Args:
        build: makes the network, without randomness in its layers.
        train: pictures (n, ...) and labels (n,), the same on all ranks.
        test: the same for testing.
        batch: pictures of one step of all ranks together; a multiple of the ranks.

    Returns:
        The comparison on rank 0, None elsewhere.

    Raises:
        SpecError: the batch cannot be divided by the ranks, or there are fewer than `STEPS` steps in one pass.
    """
    from batchhvd.trainer import hvd
    from batchhvd.trainer.hvd.callbacks import broadcast_model
    from batchhvd.trainer.hvd.optimizer import prepare

    steps = len(train[0]) // batch
    if batch % hvd.size() or steps < STEPS:
        raise SpecError(
            f"a batch of {batch} does not suit {hvd.size()} ranks and {len(train[0])} pictures",
            remedy=f"take a multiple of {hvd.size()}, at most {len(train[0]) // STEPS}",
        )
    model = build()
    model.compile(loss="sparse_categorical_crossentropy", metrics=["accuracy"], optimizer=_optimizer())
    hvd.DistributedOptimizer(model.optimizer)
    prepare(model)
    broadcast_model(model)
    first = model.get_weights()
    together = trace(model, _parts(train, batch, hvd.rank(), hvd.size()), test, batch // hvd.size())
    if hvd.rank() != 0:
        hvd.barrier()
        return None
    alone = build()
    alone.set_weights(first)
    alone.compile(loss="sparse_categorical_crossentropy", metrics=["accuracy"], optimizer=_optimizer())
    reference = trace(alone, _parts(train, batch, 0, 1), test, batch)
    hvd.barrier()
    return _compare(together, reference, hvd.size(), batch)


def _optimizer() -> Any:
    import keras

    # The momentum of the first step is the gradient times the rate: no hook is needed to read it.
    return keras.optimizers.SGD(SMALL, momentum=0.9)


def _parts(data: tuple[Any, Any], batch: int, rank: int, size: int) -> tuple[Any, Any]:
    """Returns a rank's pictures: its part of each batch, one after the other."""
    steps = len(data[0]) // batch

    def part(array: Any) -> Any:
        parts = array[: steps * batch].reshape(steps, size, batch // size, *array.shape[1:])
        return parts[:, rank].reshape(-1, *array.shape[1:])

    return part(data[0]), part(data[1])


def trace(model: Any, data: tuple[Any, Any], test: tuple[Any, Any], batch: int) -> Trace:
    """Trains a compiled model in the order of its data, and notes what it shows on the way."""

    def fit(first: int, end: int) -> None:
        part = slice(first * batch, end * batch)
        model.fit(data[0][part], data[1][part], batch_size=batch, shuffle=False, verbose=0)

    start = _row(model.get_weights())
    fit(0, 1)
    gradients = -_row(model.optimizer.momentums) / SMALL
    fit(1, STEPS)
    weights = _row(model.get_weights())
    model.optimizer.learning_rate = LARGE
    fit(0, len(data[0]) // batch)
    accuracy = model.evaluate(*test, batch_size=256, verbose=0, return_dict=True)["accuracy"]
    return Trace(gradients, start, weights, float(accuracy))


def _row(variables: Sequence[Any]) -> Any:
    """Returns all numbers of several variables or arrays in one row of float64."""
    import keras

    arrays = [keras.ops.convert_to_numpy(getattr(part, "value", part)) for part in variables]
    return np.concatenate([array.astype("float64").ravel() for array in arrays])


def _compare(together: Trace, alone: Trace, ranks: int, batch: int) -> Parity:
    return Parity(
        ranks=ranks,
        batch=batch,
        gradient_error=_distance(together.gradients, alone.gradients),
        weight_error=_distance(together.weights, alone.weights),
        moved=_distance(alone.weights, alone.start),
        accuracy=together.accuracy,
        alone=alone.accuracy,
    )


def _distance(found: Any, expected: Any) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def small(shape: Sequence[int], classes: int) -> Any:
    """Builds a network of the tutorial's kind with a hundredth of its work, for a quick certificate."""
    from keras import Input, Sequential
    from keras.layers import Conv2D, Dense, Flatten, MaxPooling2D

    return Sequential(
        [
            Input(tuple(shape)),  # (B, 32, 32, 3)
            Conv2D(8, 3, strides=2, activation="relu"),  # (B, 15, 15, 8)
            MaxPooling2D(3),  # (B, 5, 5, 8)
            Flatten(),  # (B, 200)
            Dense(32, activation="relu"),  # (B, 32)
            Dense(classes, activation="softmax"),  # (B, classes)
        ]
    )


def network(name: str, shape: Sequence[int], classes: int) -> Any:
    """Builds a network by name, with its dropout off."""
    if name == "small":
        return small(shape, classes)
    import keras

    from batchhvd.trainer.model import tutorial

    built = tutorial(shape, classes)
    for layer in built.layers:
        if isinstance(layer, keras.layers.Dropout):
            layer.rate = 0.0
    return built


def versions() -> dict[str, str]:
    """Returns the versions of everything that takes part."""
    import keras

    backend = str(keras.config.backend())
    names = {"batchhvd": "batchhvd", "keras": "keras", "numpy": "numpy", "horovod": "horovod", backend: backend}
    return {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores{_gpu()}",
        "backend": backend,
        **{name: _version(package) for name, package in names.items()},
    }


def _gpu() -> str:
    from batchhvd.trainer import backend, hvd

    if not backend.gpu():
        return ""
    way = "" if hvd.size() == 1 else ", NCCL" if hvd.nccl_built() else ", gloo"
    return f", {backend.gpu_name()}{way}"


def _exactly() -> None:
    """Makes GPUs compute a batch's gradients as the sum of its parts' gradients, but for float32's rounding.

    TensorFloat32 rounds the factors, and cuDNN takes other algorithms for other batches: on an H200 one bias gradient
    of the tutorial's network differed by 6 % between 64 pictures and twice 32 of them, in one process. PyTorch's own
    kernels agree to 2e-7.
    """
    from batchhvd.trainer import backend

    if backend.gpu():
        import torch

        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.enabled = False


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def certify(sizes: Sequence[int], *, name: str, dataset: str, data_dir: str | None, batch: int) -> dict[str, Any]:
    """Runs the comparison for each number of ranks and returns the certificate.

    Args:
        sizes: numbers of ranks.
        name: "tutorial" or "small".
        dataset, data_dir: as for training.
        batch: pictures of one step of all ranks together.

    Raises:
        EngineError: a rank failed.
    """
    found: list[dict[str, Any]] = []
    noted: Mapping[str, str] = {}
    for size in sizes:
        options = ["--network", name, "--dataset", dataset, "--batch", str(batch)]
        options += ["--data-dir", data_dir] if data_dir else []
        noted, parity = _launch(size, options)
        found.append({**asdict(parity), "holds": parity.holds})
        print(_line(parity), flush=True)
    limits = {"gradient_error": GRADIENT, "weight_error": WEIGHT, "accuracy": ACCURACY}
    return {
        "holds": all(part["holds"] for part in found),
        "network": name,
        "dataset": dataset,
        "steps": STEPS,
        "limits": limits,
        "ranks": found,
        "versions": noted,
    }


def _launch(size: int, options: Sequence[str]) -> tuple[Mapping[str, str], Parity]:
    with TemporaryDirectory(prefix="batchhvd-parity-") as folder:
        answer = Path(folder, "answer.json")
        command = processes.python("-m", "batchhvd.trainer.measure.parity", "--answer", str(answer), *options)
        outcomes = processes.run(command, size, timeout=3600)
        failed = [outcome for outcome in outcomes if outcome.exit_code]
        if failed:
            raise EngineError(
                f"rank {failed[0].rank} of {size} failed with exit code {failed[0].exit_code}: "
                f"{processes.tail(failed[0].output)}",
                engine="ranks",
                command=" ".join(command),
                exit_code=failed[0].exit_code,
                output=failed[0].output,
            )
        facts = json.loads(answer.read_text())
    return facts["versions"], Parity(**facts["parity"])


def _line(parity: Parity) -> str:
    return (
        f"{parity.ranks} rank{'s' if parity.ranks > 1 else ''}: gradients {parity.gradient_error:.1e}, weights "
        f"{parity.weight_error:.1e} of {parity.moved:.1e}, accuracy {parity.accuracy:.4f} (alone {parity.alone:.4f}): "
        f"{'holds' if parity.holds else 'DOES NOT HOLD'}"
    )


def _work(options: argparse.Namespace) -> None:
    """Is one rank of a comparison."""
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
    if parity is not None:
        options.answer.write_text(json.dumps({"parity": asdict(parity), "versions": versions()}))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command: 0 where parity holds for all numbers of ranks, 1 where it does not or something failed."""
    options = _options(argv)
    if options.answer:
        _work(options)
        return 0
    try:
        certificate = certify(
            options.ranks, name=options.network, dataset=options.dataset, data_dir=options.data_dir, batch=options.batch
        )
    except BatchHvdError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    path = options.dir / "parity.json"
    options.dir.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(certificate, indent=2) + "\n")
    print(f"written to {path}")
    return 0 if certificate["holds"] else 1


def _sizes(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m batchhvd.trainer parity", description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=_sizes, default=[1, 2, 4], help="numbers of ranks, default 1,2,4")
    parser.add_argument("--network", default="tutorial", choices=("tutorial", "small"))
    parser.add_argument("--dataset", default="digits", help="digits, cifar10 or an .npz file")
    parser.add_argument("--data-dir", help="folder with cifar-10-batches-py")
    parser.add_argument("--batch", type=int, default=64, help="pictures of one step of all ranks together")
    parser.add_argument("--dir", type=Path, default=Path("."), help="where parity.json goes, beside the model")
    parser.add_argument("--answer", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


if __name__ == "__main__":
    raise SystemExit(main())
