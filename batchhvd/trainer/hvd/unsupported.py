"""Horovod's names that have no meaning here: each is refused by an error that says what to use instead."""

from __future__ import annotations

from batchhvd.errors import SpecError

_LOOP = "hvd.broadcast_variables([*model.variables, *optimizer.variables], root_rank=0) after the first step"
_ALL = "all ranks work together: leave it out"
_INTEGER = "use the number itself: hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()"
_WAITING = "use hvd.allreduce, hvd.allgather or hvd.broadcast, which wait"

#: What to use instead of each name of ``horovod.tensorflow``, ``horovod.tensorflow.keras``, ``horovod.keras`` and
#: ``horovod.torch``.
INSTEAD = {
    "elastic": "a job with requeue continues by itself: save with checkpoint_callback.SaveCheckpoints, and call "
    "batchhvd.trainer.checkpoint.restore at the start, which resumes exactly and on any number of ranks",
    "run": "start the ranks with a job, or with horovodrun -np 2 python script.py",
    "broadcast_global_variables": f"Keras 3 has no global collection of variables; use {_LOOP}",
    "BroadcastGlobalVariablesHook": "use hvd.callbacks.BroadcastGlobalVariablesCallback(0)",
    "PartialDistributedOptimizer": "all trainable weights are synchronized; use hvd.DistributedOptimizer, and freeze "
    "layers that must not train",
    "PartialDistributedGradientTape": "all gradients are averaged; use hvd.DistributedGradientTape",
    "DistributedAdasumOptimizer": "use hvd.DistributedOptimizer, which averages",
    "Adasum": "use hvd.Average",
    "SyncBatchNormalization": "use keras.layers.BatchNormalization: batchhvd.trainer.fitting.fit and "
    "hvd.callbacks.AverageMovingStatistics average its statistics",
    "join": "give all ranks the same number of steps: batchhvd.trainer.fitting.fit does, or take "
    "hvd.allreduce(steps, op=hvd.Min)",
    "ProcessSet": _ALL,
    "add_process_set": _ALL,
    "remove_process_set": _ALL,
    "global_process_set": _ALL,
    "process_set_included_op": _ALL,
    "rank_op": _INTEGER,
    "size_op": _INTEGER,
    "local_rank_op": _INTEGER,
    "local_size_op": _INTEGER,
    "broadcast_": "use hvd.broadcast_variables(variables, root_rank=0)",
    "broadcast_object_fn": "use hvd.broadcast_object(value, root_rank=0)",
    "broadcast_parameters": f"use {_LOOP}",
    "broadcast_optimizer_state": f"use {_LOOP}",
    "grouped_allgather": "use hvd.allgather for each",
    "grouped_reducescatter": "use hvd.reducescatter for each",
    "allreduce_": "use hvd.allreduce, which returns the value",
    "allreduce_async": _WAITING,
    "allgather_async": _WAITING,
    "broadcast_async": _WAITING,
    "synchronize": _WAITING,
    "poll": _WAITING,
    "BestModelCheckpoint": "use keras.callbacks.ModelCheckpoint(path, monitor='val_loss', save_best_only=True), on "
    "every rank with batchhvd.trainer.fitting.fit, and with model.fit on rank 0 only",
}


class UnsupportedNameError(SpecError, AttributeError):
    """A name of Horovod's is not supported; the message says what to use instead."""


def refusal(module: str, name: str) -> AttributeError:
    """Returns the error for a name that a module does not have."""
    if name in INSTEAD:
        return UnsupportedNameError(f"{module}.{name} is not supported on Keras 3", remedy=INSTEAD[name])
    return AttributeError(f"module {module!r} has no attribute {name!r}")
