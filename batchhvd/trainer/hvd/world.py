"""Which rank this process is, and the Horovod module that joins it with the others.

Horovod is global to the process: it has one world, or none. That is why this module, and only this one, keeps global
state. With one rank Horovod is neither needed nor loaded.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, cast

from attrs import frozen

from batchhvd.errors import HorovodBrokenError, HorovodMissingError, SpecError
from batchhvd.trainer.hvd.binding import Binding

if TYPE_CHECKING:
    from batchhvd.trainer.exchange.torch_distributed import TorchDistributed

#: Variables in which launchers set the number of ranks, in order of precedence.
_SIZES = ("HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE")
#: Module and class of each Keras backend; they are loaded only when several ranks need them.
_BINDINGS = {
    "tensorflow": ("batchhvd.trainer.hvd.tensorflow_binding", "TensorFlowBinding"),
    "torch": ("batchhvd.trainer.hvd.torch_binding", "TorchBinding"),
}
EXCHANGES = ("auto", "horovod", "torch")
"""What ``BATCHHVD_EXCHANGE`` may be: ``torch`` is torch.distributed; ``auto`` takes it if there is no Horovod."""
REMEDY = f"{sys.executable} -m batchhvd.trainer.install"


@frozen
class World:
    """This process among all ranks.

    Attributes:
        rank, size: among all.
        local_rank, local_size: among the ranks of this node.
        cross_rank, cross_size: among the ranks with the same local rank on all nodes.
        binding: the connection to the other ranks; None with one rank.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    cross_rank: int = 0
    cross_size: int = 1
    binding: Binding | None = None


_world: World | None = None


def init(comm: object = None, process_sets: object = None) -> None:
    """Joins the ranks of this job; with one rank it only notes that there are no others.

    The launcher sets the number of ranks in the environment. A second call has no effect.

    Args:
        comm, process_sets: Horovod's; only None is supported, which means all ranks.

    Raises:
        HorovodMissingError: There are several ranks, and Horovod is not installed.
        HorovodBrokenError: Horovod is installed, but not for this Keras backend or this launcher.
        SpecError: ``comm`` or ``process_sets`` was given.
    """
    global _world
    if comm is not None or process_sets is not None:
        raise SpecError("hvd.init() takes all ranks", remedy="call it without comm and process_sets")
    if _world is None:
        expected = ranks_expected()
        _world = World() if expected == 1 else _join(expected)


def shutdown() -> None:
    """Disconnects from the other ranks. Horovod does this by itself when the process ends."""
    global _world
    if _world is not None and _world.binding is not None:
        _world.binding.module.shutdown()
    _world = None


def is_initialized() -> bool:
    """Returns whether `init` was called."""
    return _world is not None


def world() -> World:
    """Returns the place of this process.

    Raises:
        SpecError: `init` was not called.
    """
    if _world is None:
        raise SpecError("Horovod has not been initialized in this process", remedy="call hvd.init() first")
    return _world


def ranks_expected() -> int:
    """Returns how many ranks the launcher started, or 1 if the environment does not say."""
    return next((int(os.environ[name]) for name in _SIZES if os.environ.get(name)), 1)


def _join(expected: int) -> World:
    binding = _load(keras_backend())
    horovod = binding.module
    # Horovod names the ranks that it waits for, after two to four times this; its own default is a minute.
    os.environ.setdefault("HOROVOD_STALL_CHECK_TIME_SECONDS", "7")
    horovod.init()
    if horovod.size() != expected:
        raise HorovodBrokenError(
            f"the launcher started {expected} ranks, but Horovod sees {horovod.size()}: it was not built for this "
            f"launcher (MPI). Build it again with: {REMEDY} --mpi",
            found=f"gloo {horovod.gloo_built()}, MPI {horovod.mpi_built()}",
            remedy=f"{REMEDY} --mpi",
        )
    return World(
        horovod.rank(),
        horovod.size(),
        horovod.local_rank(),
        horovod.local_size(),
        horovod.cross_rank(),
        horovod.cross_size(),
        binding,
    )


def keras_backend() -> str:
    """Returns the name of the Keras backend in use."""
    import keras

    return str(keras.config.backend())


def _load(backend: str) -> Binding:
    if backend not in _BINDINGS:
        raise HorovodBrokenError(
            f"Horovod cannot train on the Keras backend {backend}; use KERAS_BACKEND=tensorflow or torch",
            found=backend,
            remedy="export KERAS_BACKEND=torch",
        )
    module = _exchange(backend)
    where, kind = _BINDINGS[backend]
    binding: Binding = getattr(importlib.import_module(where), kind)(module)
    return binding


def _exchange(backend: str) -> ModuleType:
    """Returns Horovod for a backend, or what stands for it.

    Raises:
        SpecError: ``BATCHHVD_EXCHANGE`` names none.
    """
    wanted = os.environ.get("BATCHHVD_EXCHANGE", "auto")
    if wanted not in EXCHANGES or (wanted == "torch" and backend != "torch"):
        raise SpecError(
            f"BATCHHVD_EXCHANGE is {wanted!r}, and the Keras backend is {backend}",
            remedy=f"set it to one of {', '.join(EXCHANGES)}; torch needs KERAS_BACKEND=torch",
        )
    if wanted == "horovod" or backend != "torch" or (wanted == "auto" and not _does_without()):
        return _horovod(backend)
    return cast(ModuleType, _torch_distributed(asked=wanted == "torch"))


def _does_without() -> bool:
    """Says whether there is no Horovod, and the launcher has told what it takes to do without it."""
    told = ("HOROVOD_RANK", "HOROVOD_GLOO_RENDEZVOUS_ADDR")
    return find_spec("horovod") is None and all(name in os.environ for name in told)


def _torch_distributed(*, asked: bool) -> TorchDistributed:
    from batchhvd.trainer.exchange.torch_distributed import TorchDistributed

    found = TorchDistributed()
    if os.environ.get("HOROVOD_RANK") == "0":
        library = "NCCL" if found.nccl_built() else "gloo"
        why = "BATCHHVD_EXCHANGE asks for it" if asked else f"Horovod is not installed ({REMEDY})"
        print(f"batchhvd: the ranks exchange through torch.distributed ({library}): {why}", file=sys.stderr, flush=True)
    return found


def _horovod(backend: str) -> ModuleType:
    if find_spec("horovod") is None:
        raise HorovodMissingError(
            f"{ranks_expected()} ranks were started, and Horovod is not installed in {sys.prefix}; build and install "
            f"it with: {REMEDY}",
            found="no module horovod",
            remedy=REMEDY,
        )
    try:
        module = importlib.import_module(f"horovod.{backend}")
        if not hasattr(module, "init"):
            raise ImportError(f"horovod.{backend} has no library")
    except Exception as error:  # loading a foreign library may raise anything
        raise _broken(backend, error) from error
    return module


def _broken(backend: str, error: Exception) -> HorovodBrokenError:
    found = _built_for()
    return HorovodBrokenError(
        f"Horovod is installed but does not work with the Keras backend {backend} (built for: {found}): "
        f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}. "
        f"Build it again with: {REMEDY}",
        found=found,
        remedy=REMEDY,
    )


def _built_for() -> str:
    """Returns for which frameworks Horovod says it was built."""
    spec = find_spec("horovod")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        note = Path(folder, "metadata.json")
        if note.exists():
            facts = json.loads(note.read_text())
            return ", ".join(f"{name} {version}" for name, version in facts.items() if name != "dummy") or "nothing"
    return "nothing"
