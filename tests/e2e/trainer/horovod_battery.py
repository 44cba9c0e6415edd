"""What one rank does in the tests of several ranks: many small checks in one process, whose facts go to a file.

Started as ``python horovod_battery.py FOLDER RANKS NODES CHECK...``. Importing a framework takes far longer than all
checks together, so the ranks are forked from one process that has done it, before anything else happens. Each
writes FOLDER/rank-<n>.json, a dictionary with what each check found. The judgement is the test's.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if os.environ.get("KERAS_BACKEND") == "torch":
    # As where nothing else is installed: else Keras imports TensorFlow too, to save a model.
    sys.modules.setdefault("tensorflow", None)  # type: ignore[arg-type]  # None is what makes an import fail

import attrs
import keras
import numpy as np

from batchhvd.node.rendezvous import Rendezvous
from batchhvd.trainer import checkpoint, epoch_records, hvd
from batchhvd.trainer.checkpoint_callback import SaveCheckpoints
from batchhvd.trainer.hvd import callbacks
from batchhvd.trainer.hvd import optimizer as layers
from batchhvd.trainer.hvd.world import world
from batchhvd.trainer.measure import parity, parity_cases, ranks

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from batchhvd.trainer.hvd.binding import Tensor

BACKEND = keras.config.backend()


def digest(model: keras.Model) -> str:
    whole = hashlib.sha256()
    for weight in model.get_weights():
        whole.update(np.ascontiguousarray(weight).tobytes())
    return whole.hexdigest()[:16]


def samples(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.normal(size=(count, 8)).astype("float32"), random.integers(0, 3, size=count)


def network(seed: int, *extra: keras.layers.Layer) -> keras.Model:
    start = functools.partial(keras.initializers.RandomNormal, stddev=0.3)
    return keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(6, activation="relu", kernel_initializer=start(seed=seed)),
            *extra,
            keras.layers.Dense(3, activation="softmax", kernel_initializer=start(seed=seed + 50)),
        ]
    )


def compiled(model: keras.Model, optimizer: keras.optimizers.Optimizer, **options: object) -> keras.Model:
    model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"], **options)
    return model


def broadcast() -> keras.callbacks.Callback:
    return callbacks.BroadcastGlobalVariablesCallback(0)


def train(
    model: keras.Model,
    *callbacks: keras.callbacks.Callback,
    epochs: int = 1,
    count: int = 24,
    batch: int = 8,
    **options: object,
) -> keras.callbacks.History:
    x, y = samples(count, 100 + hvd.rank())
    return model.fit(
        x, y, batch_size=batch, epochs=epochs, verbose=0, shuffle=False, callbacks=[broadcast(), *callbacks], **options
    )


class Counting:
    """Counts the reductions of optimizers that reach Horovod."""

    def __init__(self) -> None:
        self.count = 0
        self.module = horovod()
        self.name = "grouped_allreduce" if BACKEND == "tensorflow" else "grouped_allreduce_async"

    def __enter__(self) -> Counting:
        self.real = getattr(self.module, self.name)

        def counted(*arguments: object, **options: object) -> object:
            self.count += "optimizer" in str(options["name"])
            return self.real(*arguments, **options)

        setattr(self.module, self.name, counted)
        return self

    def __exit__(self, *error: object) -> None:
        setattr(self.module, self.name, self.real)


def horovod() -> ModuleType:
    binding = world().binding
    assert binding is not None
    return binding.module


def variable(value: ArrayLike) -> keras.Variable:
    return keras.Variable(np.asarray(value, "float32"))


def tensor(value: ArrayLike) -> Tensor:
    return keras.ops.convert_to_tensor(np.asarray(value, "float32"))


def apply(optimizer: keras.optimizers.Optimizer, gradient: ArrayLike, weights: keras.Variable) -> object:
    if BACKEND == "torch":
        import torch

        with torch.no_grad():
            optimizer.apply([tensor(gradient)], [weights])
    else:
        optimizer.apply([tensor(gradient)], [weights])
    return weights.numpy().tolist() if BACKEND == "tensorflow" else keras.ops.convert_to_numpy(weights).tolist()


def check_place() -> object:
    return [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()]


def check_together() -> object:
    model = compiled(network(hvd.rank()), hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)))
    before = digest(model)
    train(model, epochs=2)
    return {"before": before, "after": digest(model)}


def check_alone() -> object:
    """The same without the reduction: a plain optimizer, still broadcast at the start."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = compiled(network(hvd.rank()), keras.optimizers.SGD(0.1, momentum=0.9))
        train(model, epochs=2)
    return {"after": digest(model), "warned": [str(warning.message) for warning in caught]}


def check_adam() -> object:
    model = compiled(network(hvd.rank()), hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)))
    train(model)
    state = [keras.ops.convert_to_numpy(part).sum().item() for part in model.optimizer.variables]
    return {"after": digest(model), "state": state}


def check_objects() -> object:
    rank = hvd.rank()
    return {
        "average": hvd.allreduce(np.array([1, 2]) * (rank + 1)).tolist(),
        "sum": hvd.allreduce(np.float32(rank + 1), average=False).tolist(),
        "tensor": keras.ops.convert_to_numpy(hvd.allreduce(tensor([rank]), op=hvd.Max)).tolist(),
        "gather": hvd.allgather(np.full((rank + 1, 2), rank)).tolist(),
        "broadcast": hvd.broadcast(np.array([[rank, 7]]), root_rank=1).tolist(),
        "object": hvd.broadcast_object({"from": rank, "é": [1]} if rank == 1 else None, root_rank=1),
        "objects": hvd.allgather_object({"rank": rank, "text": "x" * rank}),
        "barrier": hvd.barrier(),  # type: ignore[func-returns-value]
    }


def check_clipping() -> object:
    weights = variable([0.0])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0, clipvalue=1.0))
    return apply(optimizer, [4.0 if hvd.rank() == 0 else 0.0], weights)


def check_sum() -> object:
    return apply(hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), op=hvd.Sum), [1.0 + hvd.rank()], variable([0.0]))


def check_compression() -> object:
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), compression=hvd.Compression.fp16)
    return apply(optimizer, [1 / 3, 60000.0], variable([0.0, 0.0]))


def check_accumulation() -> object:
    """Four steps of which every second reduces; the rank's gradients are 1, 3, 5, 7 times its number from 1."""
    weights = variable([0.0])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0, gradient_accumulation_steps=2))
    with Counting() as reductions:
        steps = [(2 * step + 1) * (hvd.rank() + 1.0) for step in range(4)]
        return [(apply(optimizer, [gradient], weights), reductions.count) for gradient in steps]


def check_passes() -> object:
    weights = variable([0.0])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), backward_passes_per_step=2)
    return [apply(optimizer, [hvd.rank() + 1.0], weights) for _ in range(2)]


def check_accumulation_compiled() -> object:
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2, global_clipnorm=0.5)
    model = compiled(network(hvd.rank()), hvd.DistributedOptimizer(optimizer))
    train(model, count=32)
    return digest(model)


def check_scaling() -> object:
    """Loss scaling by hand: in the second of three steps only rank 1 has an infinite gradient."""
    weights, seen = variable([0.0]), []
    optimizer = hvd.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1.0), 4.0))
    for step in range(3):
        bad = step == 1 and hvd.rank() == 1
        value = apply(optimizer, [np.inf if bad else 4.0 * (hvd.rank() + 1)], weights)
        seen.append((value, float(keras.ops.convert_to_numpy(optimizer.dynamic_scale))))
    return seen


def check_mixed() -> object:
    """Loss scaling that Keras adds by itself, with an overflow on one rank alone."""
    with _Policy("mixed_float16"):
        model = network(hvd.rank())
    compiled(model, hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)))
    x, y = samples(24, 100 + hvd.rank())
    if hvd.rank() == 1:
        x[8:16] = np.inf
    model.fit(x, y, batch_size=8, verbose=0, shuffle=False, callbacks=[broadcast()])
    scale = float(keras.ops.convert_to_numpy(model.optimizer.dynamic_scale))
    return {"kind": layers.is_distributed(model.optimizer), "after": digest(model), "scale": scale}


class _Policy:
    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        self.old = keras.config.dtype_policy()
        keras.config.set_dtype_policy(self.name)

    def __exit__(self, *error: object) -> None:
        keras.config.set_dtype_policy(self.old)


def check_frozen() -> object:
    model = network(0)
    model.layers[0].trainable = False
    first = model.layers[0].get_weights()[0].copy()
    compiled(model, hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)))
    train(model)
    return {"same": bool((model.layers[0].get_weights()[0] == first).all()), "after": digest(model)}


def check_statistics() -> object:
    model = compiled(
        network(hvd.rank(), keras.layers.BatchNormalization()), hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
    )
    train(model, callbacks.AverageMovingStatistics())
    without = compiled(
        network(hvd.rank(), keras.layers.BatchNormalization()), hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
    )
    train(without)
    return {"with": digest(model), "without": digest(without)}


def check_start() -> object:
    """Different weights and optimizer states; no learning, so what is there at the end was there at the start."""
    model = compiled(network(hvd.rank()), hvd.DistributedOptimizer(keras.optimizers.SGD(0.5, momentum=0.9)))
    expected = digest(network(0))
    model.optimizer.build(model.trainable_variables)
    for part in model.optimizer.momentums:
        part.assign(np.full(part.shape, hvd.rank() + 1.0))
    model.optimizer.iterations.assign(10 * (hvd.rank() + 1))
    broadcast_now = broadcast()
    broadcast_now.set_model(model)
    broadcast_now.on_train_begin()
    momentum = float(keras.ops.convert_to_numpy(model.optimizer.momentums[0]).ravel()[0])
    return {
        "weights": digest(model) == expected,
        "momentum": momentum,
        "step": int(keras.ops.convert_to_numpy(model.optimizer.iterations)),
    }


def check_late() -> object:
    """A model that its first batch builds: with a rate of 0 its weights stay those of the broadcast."""

    class Late(keras.Model):  # type: ignore[misc]  # Keras has no types
        def __init__(self, seed: int) -> None:
            super().__init__()
            self.out = keras.layers.Dense(3, "softmax", kernel_initializer=keras.initializers.RandomNormal(seed=seed))

        def call(self, inputs: Tensor) -> Tensor:
            return self.out(inputs)

    model = compiled(Late(hvd.rank()), hvd.DistributedOptimizer(keras.optimizers.SGD(0.0)))
    weights = []
    # Before the broadcast in the list: it must see equal weights even after the first step.
    note = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: weights.append(digest(model)))
    x, y = samples(24, 100 + hvd.rank())
    model.fit(x, y, batch_size=8, verbose=0, callbacks=[note, broadcast()])
    return weights


def check_metrics() -> object:
    """Rank r has 8·(r + 1) samples a step and says so: the mean over all must be weighted by them."""
    model = compiled(network(0), hvd.DistributedOptimizer(keras.optimizers.SGD(0.0)))
    own = {}

    class Own(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            own.update(logs)

    batch = 8 * (hvd.rank() + 1)
    x, y = samples(3 * batch, 100 + hvd.rank())
    validation = samples(10 * (hvd.rank() + 2), 200 + hvd.rank())
    figures = model.fit(
        x,
        y,
        batch_size=batch,
        verbose=0,
        validation_data=validation,
        callbacks=[broadcast(), Own(), callbacks.MetricAverageCallback()],
    ).history
    weights = {name: (len(validation[0]) if name.startswith("val_") else len(x)) for name in own}
    return {"own": own, "weights": weights, "shown": {name: values[0] for name, values in figures.items()}}


def check_decisions() -> object:
    """Figures that get better on rank 1 and worse on rank 0, which decides."""
    model = compiled(network(0), hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)))
    epochs = []

    class Figure(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            epochs.append(epoch)
            logs["loss"] = epoch if hvd.rank() == 0 else -epoch

    callbacks = hvd.callbacks
    train(
        model,
        Figure(),
        callbacks.ReduceLROnPlateau("loss", patience=1, factor=0.5, min_lr=0.0),
        callbacks.EarlyStopping("loss", patience=2, mode="min"),
        epochs=8,
    )
    return {"epochs": len(epochs), "rate": float(keras.ops.convert_to_numpy(model.optimizer.learning_rate))}


def check_warmup() -> object:
    model = compiled(network(0), hvd.DistributedOptimizer(keras.optimizers.SGD(0.8)))
    rates = []

    class Note(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            rates.append(round(float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)), 6))

    later = callbacks.LearningRateScheduleCallback(0.8, lambda epoch: 0.1, start_epoch=3)
    train(model, callbacks.LearningRateWarmupCallback(0.8, warmup_epochs=2), later, Note(), epochs=4)
    return rates


def check_jit() -> object:
    """A compiled step must still reduce, each time it runs.

    On PyTorch only rank 0 compiles, which takes long; rank 1 does the same step by step, and would wait for ever for a
    reduction that the compiler has lost.
    """
    compiles = BACKEND == "tensorflow" or hvd.rank() == 0
    if BACKEND == "torch":
        import torch

        whole = torch.compile
        # The last stage, code for the processor, takes half a minute more and knows nothing of operators.
        torch.compile = functools.partial(whole, backend=os.environ.get("BATTERY_COMPILER", "aot_eager"))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9))
    # One layer and no metric: the compiler takes seconds for each, and what it must keep is the reduction.
    start = keras.initializers.RandomNormal(stddev=0.3, seed=hvd.rank())
    last = keras.layers.Dense(3, activation="softmax", kernel_initializer=start)
    model = keras.Sequential([keras.Input((8,)), last])
    model.compile(optimizer, "sparse_categorical_crossentropy", jit_compile=compiles)
    with Counting() as reductions:
        train(model, epochs=2)
    weights = hvd.allgather_object(model.get_weights())
    near = all(np.allclose(a, b, atol=1e-6) for a, b in zip(*weights, strict=True))
    return {"near": near, "jit": model.jit_compile, "reductions": reductions.count}


def check_sparse() -> object:
    import tensorflow as tf

    found = {}
    for name, dense in (("sparse", False), ("dense", True)):
        weights = variable(np.zeros((4, 2)))
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), sparse_as_dense=dense)
        rows = tf.IndexedSlices(tf.ones((1, 2)) * (hvd.rank() + 1.0), [hvd.rank()], dense_shape=(4, 2))
        optimizer.apply([rows], [weights])
        found[name] = weights.numpy().tolist()
    model = keras.Sequential([keras.Input((2,)), keras.layers.Embedding(5, 3), keras.layers.Flatten()])
    model.add(keras.layers.Dense(3, "softmax"))
    compiled(model, hvd.DistributedOptimizer(keras.optimizers.Adam(0.1)))
    x = np.full((8, 2), hvd.rank())
    model.fit(x, x[:, 0], verbose=0, callbacks=[broadcast()])
    return {**found, "embedding": digest(model)}


@keras.saving.register_keras_serializable("battery", "Own")
class OwnOptimizer(keras.optimizers.SGD):  # type: ignore[misc]  # Keras has no types
    """An optimizer of the user's."""


def check_saving(folder: Path) -> object:
    model = compiled(network(hvd.rank()), hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)))
    train(model)
    path = folder / f"model-{hvd.rank()}.keras"
    model.save(path)
    model.save(path.with_suffix(".h5"))
    config = keras.saving.serialize_keras_object(model.optimizer)
    plain = keras.models.load_model(path)
    own = compiled(network(0), hvd.DistributedOptimizer(OwnOptimizer(0.1)))
    train(own)
    own.save(path.with_name(f"own-{hvd.rank()}.keras"))
    own = keras.models.load_model(path.with_name(f"own-{hvd.rank()}.keras"))
    again = hvd.load_model(path)
    train(again)
    train(model)
    return {
        "module": config["module"],
        "plain": layers.is_distributed(plain.optimizer),
        "own": type(own.optimizer) is OwnOptimizer,
        "again": layers.is_distributed(again.optimizer),
        "h5": type(keras.models.load_model(path.with_suffix(".h5")).optimizer).__name__,
        "clone": layers.is_distributed(type(model.optimizer).from_config(model.optimizer.get_config())),
        "same": digest(again) == digest(model),
        "digest": digest(model),
    }


def check_broken_wrapper() -> object:
    if BACKEND == "tensorflow":
        import horovod.tensorflow.keras as theirs

        wrapped = theirs.DistributedOptimizer(keras.optimizers.SGD(0.1))
    else:
        # Horovod has no wrapper for Keras on PyTorch; what its other ones look like is enough here.
        wrapped = keras.optimizers.SGD(0.1)
        foreign = type("SGD", (type(wrapped),), {"compute": horovod().allreduce})
        object.__setattr__(wrapped, "__class__", foreign)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hvd.DistributedOptimizer(wrapped)
    return [str(warning.message) for warning in caught]


def check_resume(folder: Path) -> object:
    """Two epochs in one go, and one epoch, a checkpoint, a new process's model, and another epoch."""
    whole = _with_dropout(1)
    train(whole, epochs=2)
    kept = checkpoint.Checkpoints(folder / "resume")
    half = _with_dropout(1)
    train(half, SaveCheckpoints(kept), epochs=1)
    hvd.barrier()
    after = _with_dropout(2)
    progress = checkpoint.restore(after, kept)
    train(after, epochs=2, initial_epoch=progress.epoch)
    return {"whole": digest(whole), "resumed": digest(after), "epoch": progress.epoch, "step": progress.step}


def _with_dropout(seed: int) -> keras.Model:
    model = network(seed, keras.layers.Dropout(0.5, seed=7 * seed + hvd.rank()))
    return compiled(model, hvd.DistributedOptimizer(keras.optimizers.Adam(0.05)))


def check_records(folder: Path) -> object:
    path = folder / "records é.jsonl"
    model = compiled(network(0), hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)))
    average, record = callbacks.MetricAverageCallback(), epoch_records.EpochRecords(path)
    train(model, average, record, epochs=3, validation_data=samples(8, 1))
    first = epoch_records.read_records(path)
    hvd.barrier()
    train(model, average, record, epochs=3, initial_epoch=1, validation_data=samples(8, 1))
    hvd.barrier()
    logs = epoch_records.rank0_logs(csv=folder / "log.csv")
    return {"first": first, "then": epoch_records.read_records(path), "logs": [type(log).__name__ for log in logs]}


def check_parity() -> object:
    random = np.random.default_rng(0)
    pictures: np.ndarray = random.uniform(size=(320, 32, 32, 3)).astype("float32")
    labels: np.ndarray = np.arange(320) % 10
    train_data = (pictures, labels)
    test = (train_data[0][:40], train_data[1][:40])

    def measured() -> object:
        found = parity.measure(lambda: parity.small((32, 32, 3), 10), train_data, test, 16)
        return None if found is None else {**attrs.asdict(found), "holds": found.holds}

    facts = {"with": measured()}
    if BACKEND == "tensorflow":  # once is enough, and PyTorch has no graphs to trace
        return facts
    real = hvd.DistributedOptimizer
    setattr(hvd, "DistributedOptimizer", lambda optimizer: optimizer)  # noqa: B010  # mypy knows what the name is
    facts["without"] = measured()
    setattr(hvd, "DistributedOptimizer", real)  # noqa: B010
    return facts


def check_parity_cases() -> object:
    """More kinds of training; and one of two optimizers without its exchange, which is named.

    On TensorFlow, where tracing takes its time, only what differs there: embeddings, whose gradients are sparse.
    """

    def measured(name: str) -> object:
        found = parity_cases.measure_case(name)
        return None if found is None else {"holds": found.holds, "broken": found.broken, "text": str(found)}

    names = ["embeddings"] if BACKEND == "tensorflow" else [*parity_cases.cases()]
    facts = {name: measured(name) for name in names}
    real = hvd.DistributedOptimizer
    silent = lambda one: one if isinstance(one, keras.optimizers.SGD) else real(one)  # noqa: E731
    setattr(hvd, "DistributedOptimizer", silent)  # noqa: B010  # mypy knows what the name is
    facts["without"] = measured("two optimizers")
    setattr(hvd, "DistributedOptimizer", real)  # noqa: B010
    return facts


def work(folder: Path, names: Sequence[str], checks: Mapping[str, Any]) -> int:
    """Is one rank: runs the checks in order. The first that fails ends it, since the other ranks would wait."""
    os.environ["TMPDIR"] = str(folder)  # TensorFlow leaves files there if a process ends as ranks do
    hvd.init()
    facts: dict[str, object] = {}
    failed = ""
    for name in names:
        check = checks[f"check_{name}"]
        try:
            facts[name] = check(folder) if check.__code__.co_argcount else check()
        except Exception:
            failed = f"rank {hvd.rank()}, {name}: {traceback.format_exc()}"
            print(failed, flush=True)
            break
        if "BATTERY_TIMES" in os.environ:
            print(hvd.rank(), name, round(time.process_time(), 1), flush=True)
    (folder / f"rank-{hvd.rank()}.json").write_text(json.dumps(facts))
    hvd.shutdown()
    return 1 if failed else 0


def start(
    rank: int, size: int, nodes: int, port: int, folder: Path, names: Sequence[str], checks: Mapping[str, Any]
) -> int:
    """Forks one rank and returns its process id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.environ.update(ranks.environment(rank, size, port, nodes=nodes))
        code = work(folder, names, checks)
    finally:
        sys.stdout.flush()
        os._exit(code)


def main(
    folder: Path, size: int, nodes: int, names: Sequence[str], checks: Mapping[str, Any], alone: Path | None = None
) -> int:
    """Forks the ranks, and one that is alone if there is a folder for it; returns 1 as soon as one has failed."""
    with Rendezvous(ranks.LOOPBACK) as server:
        waiting = {start(rank, size, nodes, server.port, folder, names, checks) for rank in range(size)}
        if alone is not None:
            waiting.add(start(0, 1, 1, server.port, alone, names, checks))
        while waiting:
            child, status = os.wait()
            waiting.discard(child)
            if status:
                for other in waiting:
                    os.kill(other, signal.SIGKILL)
                return 1
    return 0


if __name__ == "__main__":
    if BACKEND == "torch" and "jit" in sys.argv:
        import_module("torch._dynamo")
    raise SystemExit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:], globals()))
