"""What one rank does in the tests of unusual models: GANs, bytes, mixed precision by hand, callbacks that write.

Started as ``python model_battery.py FOLDER RANKS NODES CHECK...``, with the machinery of horovod_battery.py.
"""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.e2e.trainer import horovod_battery as battery  # it decides about TensorFlow before Keras is imported

import keras  # isort: skip
import numpy as np

from batchhvd.errors import SpecError
from batchhvd.trainer import hvd
from batchhvd.trainer.fitting import evaluate, fit

if TYPE_CHECKING:
    from batchhvd.trainer.hvd.binding import Tensor

BACKEND = battery.BACKEND


def tokens(count: int = 96, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Returns bytes whose sum decides the class: uint8 (count, 6) and int32 (count,)."""
    x = np.random.default_rng(seed).integers(0, 12, size=(count, 6), dtype=np.uint8)
    return x, (x.sum(axis=1) > 33).astype("int32")


def gradients(loss: Callable[[], Tensor], variables: list[keras.Variable]) -> tuple[Tensor, list[Tensor]]:
    """Returns a loss and its gradients, on any backend."""
    if BACKEND == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            value = loss()
        return value, tape.gradient(value, variables)
    for variable in variables:
        variable.value.grad = None
    value = loss()
    value.backward()
    return value, [variable.value.grad for variable in variables]


@contextlib.contextmanager
def no_gradients() -> Iterator[None]:
    if BACKEND == "torch":
        import torch

        with torch.no_grad():
            yield
    else:
        yield


def _squared(network: Any, x: Any) -> Callable[[], Any]:
    """Returns the loss of a network that is to give zeros."""
    return lambda: keras.ops.mean(network(x) ** 2)


class Gan(keras.Model):  # type: ignore[misc]  # Keras has no types
    """Two networks with an optimizer each, as in Keras's examples."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.generator = battery.network(seed)
        self.critic = battery.network(seed + 10)

    def build(self, shape: tuple[int | None, ...]) -> None:
        self.built = True

    def call(self, inputs: Tensor) -> Tensor:
        return self.generator(inputs)

    def compile(self, **optimizers: object) -> None:
        super().compile()
        self.first = optimizers["first"]
        self.others = [{"second": optimizers["second"]}]
        self.shown = keras.metrics.Mean(name="shown")

    def train_step(self, data: object) -> dict[str, Tensor]:
        x = data[0] if isinstance(data, (tuple, list)) else data
        for network, optimizer in ((self.generator, self.first), (self.critic, self.others[0]["second"])):
            value, found = gradients(_squared(network, x), network.trainable_variables)
            with no_gradients():
                getattr(optimizer, "apply")(found, network.trainable_variables)  # noqa: B009  # tracked lists have no types
            self.shown.update_state(value)
        return {"shown": self.shown.result()}


def gan(wrap: bool = False) -> Gan:
    model = Gan(hvd.rank())
    made = {"first": keras.optimizers.Adam(0.01), "second": keras.optimizers.SGD(0.1, momentum=0.5)}
    model.compile(**{name: hvd.DistributedOptimizer(one) if wrap else one for name, one in made.items()})
    return model


def check_gan() -> object:
    """``fit`` finds both optimizers; ranks start apart, and each has its own part of the data."""
    model = gan()
    x, y = battery.samples(48, 3)
    fit(model, (x, y), epochs=2, batch_size=8, progress=None)
    return {"after": battery.digest(model)}


def check_gan_by_hand() -> object:
    model = gan(wrap=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        battery.train(model)
    warned = [str(one.message) for one in caught if "alone" in str(one.message)]
    return {"after": battery.digest(model), "warned": warned}


def check_hidden_optimizer() -> object:
    """An optimizer that no search finds: the comparison of the weights finds it out."""
    model = battery.network(0)
    model.compile(keras.optimizers.SGD(0.1))
    hidden = keras.optimizers.SGD(0.1)

    def step(data: Any) -> dict[str, Tensor]:
        value, found = gradients(lambda: keras.ops.mean(model(data[0]) ** 2), model.trainable_variables)
        with no_gradients():
            hidden.apply(found, model.trainable_variables)
        return {"shown": value}

    model.train_step = step
    hidden.build(model.trainable_variables)
    try:
        fit(model, battery.samples(48, 3), batch_size=8, progress=None)
    except SpecError as error:
        return str(error)
    return "silent"


def check_bytes() -> object:
    """Bytes that are tokens: `fit`, `evaluate` and Keras's own evaluate see the same numbers."""
    x, y = tokens()
    model = keras.Sequential([keras.Input((6,), dtype="uint8"), keras.layers.Embedding(12, 4), keras.layers.Flatten()])
    model.add(keras.layers.Dense(2, "softmax"))
    model.compile(keras.optimizers.Adam(0.05), "sparse_categorical_crossentropy", metrics=["accuracy"])
    result = fit(model, (x, y), validation=(x, y), epochs=12, batch_size=8, progress=None)
    plain = model.evaluate(x, y, verbose=0, return_dict=True)
    ours = evaluate(model, (x, y))
    return {"plain": plain["accuracy"], "ours": ours["val_accuracy"], "fit": result.metrics["val_accuracy"]}


def check_mixed_batches() -> object:
    """An overflow on one rank in ``train_on_batch``, where no callback has prepared the model."""
    with battery._Policy("mixed_float16"):
        model = battery.network(0)
    battery.compiled(model, hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)))
    x, y = battery.samples(24, 100 + hvd.rank())
    if hvd.rank() == 1:
        x[8:16] = np.inf
    for start in (0, 8, 16):
        model.train_on_batch(x[start : start + 8], y[start : start + 8])
    scale = float(keras.ops.convert_to_numpy(model.optimizer.dynamic_scale))
    return {"after": battery.digest(model), "scale": scale}


def check_mixed_by_hand() -> object:
    """The same with the scaling around the distributed optimizer, in a loop of the user's."""
    weights, seen = battery.variable([0.0]), []
    optimizer = keras.optimizers.LossScaleOptimizer(hvd.DistributedOptimizer(keras.optimizers.SGD(1.0)), 4.0)
    for step in range(3):
        bad = step == 1 and hvd.rank() == 1
        value = battery.apply(optimizer, [np.inf if bad else 4.0 * (hvd.rank() + 1)], weights)
        seen.append((value, float(keras.ops.convert_to_numpy(optimizer.dynamic_scale))))
    return seen


def check_steps_apart() -> object:
    """The optimizer of one rank is a step ahead."""
    found: list[str | bool] = []
    for compression in (hvd.Compression.none, hvd.Compression.fp16):
        weights = battery.variable([0.0])
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), compression=compression)
        optimizer.build([weights])
        battery.apply(optimizer, [1.0], weights)
        optimizer.iterations.assign(1 + 61 * hvd.rank())  # the same modulo 61
        battery.apply(optimizer, [1.0], weights)
        optimizer.iterations.assign(7 + hvd.rank())
        try:
            battery.apply(optimizer, [1.0], weights)
            found.append("silent")
        except Exception as error:  # each backend has its own
            found.append("belong to different steps" in str(error))
    return found


def check_sparse_accumulation() -> object:
    """Rows of a table with accumulation: TensorFlow's sparse gradients, as plain Keras takes them."""
    found = {}
    for name, dense in (("sparse", False), ("dense", True)):
        model = keras.Sequential([keras.Input((6,), dtype="int32"), keras.layers.Embedding(12, 4)])
        model.add(keras.layers.Flatten())
        model.add(keras.layers.Dense(2, "softmax"))
        random = np.random.default_rng(0)
        model.set_weights([random.normal(size=weight.shape) for weight in model.get_weights()])
        optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
        battery.compiled(model, hvd.DistributedOptimizer(optimizer, sparse_as_dense=dense))
        x, y = tokens(32)
        mine = slice(hvd.rank(), None, hvd.size())
        model.fit(x[mine], y[mine], batch_size=8, verbose=0, shuffle=False, callbacks=[battery.broadcast()])
        found[name] = [weight.tolist() for weight in model.get_weights()]
    return found


def check_writers(folder: Path) -> object:
    """Callbacks that write, passed on every rank with the same paths."""
    model = battery.compiled(battery.network(hvd.rank()), keras.optimizers.SGD(0.1))
    callbacks = keras.callbacks
    wrote = []

    class Counted(callbacks.ModelCheckpoint):  # type: ignore[misc, name-defined]  # Keras has no types
        def _save_model(self, **arguments: object) -> None:
            wrote.append(hvd.rank())
            super()._save_model(**arguments)

    writers = [
        Counted(str(folder / "best.keras"), save_best_only=True, monitor="loss"),
        callbacks.BackupAndRestore(str(folder / "backup")),
        callbacks.CSVLogger(str(folder / "log.csv")),
    ]
    fit(model, battery.samples(48, 3), epochs=3, batch_size=8, callbacks=writers, progress=None)
    best = keras.models.load_model(folder / "best.keras")  # all ranks, right after fit
    lines = (folder / "log.csv").read_text().splitlines()
    return {"wrote": bool(wrote), "lines": len(lines), "after": battery.digest(model), "best": best.count_params()}


def check_backup(folder: Path) -> object:
    """A training that is interrupted after two epochs and goes on from Keras's backup, which only rank 0 reads."""

    class Stop(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if epoch == 1:
                raise KeyboardInterrupt

    place = folder / "interrupted"
    data = battery.samples(48, 3)
    first = battery.compiled(battery.network(hvd.rank()), keras.optimizers.SGD(0.1))
    with contextlib.suppress(KeyboardInterrupt):
        # The interruption comes after the backup of the second epoch, because it is later in the list.
        fit(first, data, epochs=4, batch_size=8, progress=None, callbacks=[backup(place), Stop()])
    second = battery.compiled(battery.network(5 + hvd.rank()), keras.optimizers.SGD(0.1))
    result = fit(second, data, epochs=4, batch_size=8, progress=None, callbacks=[backup(place)])
    return {"steps": result.steps, "after": battery.digest(second), "gone": not place.exists()}


def backup(place: Path) -> keras.callbacks.Callback:
    return keras.callbacks.BackupAndRestore(str(place))


def check_saving_together(folder: Path) -> object:
    """All ranks save one path at once, again and again; the file is whole each time."""
    model = battery.compiled(battery.network(0), hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)))
    battery.train(model)
    whole = []
    for name in ("all.keras", "all.h5", "all.weights.h5"):
        for _ in range(6):
            hvd.barrier()
            if "weights" in name:
                model.save_weights(folder / name)
                model.load_weights(folder / name)
            else:
                with contextlib.redirect_stderr(io.StringIO()):
                    model.save(folder / name)
                whole.append(keras.models.load_model(folder / name).count_params())
    hvd.barrier()
    return {"whole": len(set(whole)), "files": sorted(path.name for path in folder.glob("*all*"))}


# --- Horovod's names -------------------------------------------------------------------------------------------------


def check_page_loop() -> object:
    """The loop that docs/trainer.md shows."""
    page = (Path(__file__).parents[3] / "docs" / "trainer.md").read_text(encoding="utf-8")
    code = page.split("<!-- loop -->\n```python\n")[1].split("```")[0]
    names: dict[str, Any] = {}
    exec(code, names)
    return {"after": battery.digest(names["model"]), "steps": int(names["optimizer"].iterations)}


def check_tape() -> object:
    """A loop as in Horovod's examples for TensorFlow, eager and compiled, from each rank's own start."""
    import tensorflow as tf

    found = {}
    for compiled in (False, True):
        model, optimizer = battery.network(hvd.rank()), keras.optimizers.SGD(0.1)
        x, y = battery.samples(8, 100 + hvd.rank())

        def step(first: bool, x: Any = x, y: Any = y, model: Any = model, optimizer: Any = optimizer) -> None:
            with tf.GradientTape() as tape:
                loss = keras.losses.SparseCategoricalCrossentropy()(y, model(x))
            tape = hvd.DistributedGradientTape(tape)
            optimizer.apply_gradients(
                zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
            )

        run = tf.function(step) if compiled else step
        run(True)
        hvd.broadcast_variables(model.variables, root_rank=0)
        hvd.broadcast_variables(optimizer.variables, root_rank=0)
        run(False)
        run(False)
        found[str(compiled)] = battery.digest(model)
    return found


def check_exchanges(folder: Path) -> object:
    """The less usual operations."""
    rank = hvd.rank()
    parts, counts = hvd.alltoall(np.arange(3, dtype="float32") + 10 * rank, splits=[1, 2])
    hvd.start_timeline(str(folder / f"timeline-{rank}.json"))
    scattered = hvd.reducescatter(np.array([1.0, 3.0]) * (rank + 1), op=hvd.Sum)
    hvd.stop_timeline()
    return {
        "alltoall": np.asarray(parts).tolist(),
        "counts": np.asarray(counts).tolist(),
        "reducescatter": np.asarray(scattered).tolist(),
        "even": np.asarray(hvd.alltoall([rank, rank])).tolist(),
        "same": hvd.is_homogeneous() and hvd.gloo_enabled() and not hvd.mpi_threads_supported(),
        "different": refused(lambda: hvd.broadcast_variables([battery.variable([0.0] * (rank + 1))])),
    }


def check_xla() -> object:
    """What TensorFlow cannot compile on several ranks is said."""
    model = battery.network(0)
    model.compile(
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "sparse_categorical_crossentropy", jit_compile=True
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        battery.train(model)
    return [str(one.message) for one in caught if "jit_compile" in str(one.message)]


# --- ranks that disagree ---------------------------------------------------------------------------------------------


def refused(work: Callable[[], object]) -> str:
    try:
        work()
    except SpecError as error:
        return str(error)
    return "silent"


def small(variables: int = 4) -> keras.Model:
    model = battery.network(0)
    model.layers[0].trainable = variables == 4
    return battery.compiled(model, hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)))


def check_disagreements() -> object:
    """Each is refused on all ranks, before the first step."""
    rank, data = hvd.rank(), battery.samples(48, 3)
    found = {
        "steps": lambda: battery.train(small(), count=24 + 8 * rank),
        "epochs": lambda: fit(small(), data, epochs=2 + rank, batch_size=8, progress=None),
        "first": lambda: fit(small(), data, epochs=3, initial_epoch=rank, batch_size=8, progress=None),
        "variables": lambda: fit(small(4 - 2 * rank), data, batch_size=8, progress=None),
    }
    summed = keras.losses.SparseCategoricalCrossentropy(reduction="sum")
    averaging = battery.network(0)
    averaging.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), summed)
    penalty = battery.network(0, keras.layers.Dense(6, kernel_regularizer="l2"))
    penalty.compile(keras.optimizers.SGD(0.1), summed)
    found |= {
        "averaging": lambda: fit(averaging, data, batch_size=8, progress=None),
        "penalty": lambda: fit(penalty, data, batch_size=8, progress=None),
    }
    return {name: refused(work) for name, work in found.items()}


def check_uneven() -> object:
    """Data of different lengths: `fit` lets all ranks make the same steps."""
    lines: list[str] = []
    model = small()
    data = battery.samples(32 + 32 * hvd.rank(), 3)
    result = fit(model, data, epochs=2, batch_size=8, progress=lines.append)
    few = fit(small(), battery.samples(1, 3), batch_size=8, progress=None)  # fewer samples than ranks
    return {"steps": result.steps, "after": battery.digest(model), "few": few.steps, "lines": lines[:1]}


def check_stopping() -> object:
    """Rank 1 wants to stop within the second of five epochs."""

    class Stop(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if hvd.rank() == 1 and batch == 1 and self.model.optimizer.iterations > 3:
                self.model.stop_training = True

    model = small()
    result = fit(model, battery.samples(48, 3), epochs=5, batch_size=8, callbacks=[Stop()], progress=None)
    return {"steps": result.steps, "after": battery.digest(model)}


if __name__ == "__main__":
    raise SystemExit(battery.main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:], globals()))
