"""One rank of a measured run: a script as it is, whose training is measured and ended.

    python -m batchhvd.trainer.scaling.rank --answer FILE [--seconds 20] [--precision 0.03] SCRIPT ARGUMENTS…

The script runs until it calls ``model.fit``. Its steps are measured there, with its own data, model and optimizer.
Its validation and its own callbacks are left out, so that a measured run writes no checkpoints and no records.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import evolve

from batchhvd.errors import BatchHvdError, SpecError
from batchhvd.trainer.hvd import world

if TYPE_CHECKING:
    import keras

    from batchhvd.trainer.scaling.probe import Patience
    from batchhvd.trainer.scaling.timing import TimedBinding

_NEVER = 10**9
_OURS = "batchhvd.trainer.hvd."
_UNMEASURED = (
    "the script ended without training by model.fit after hvd.init(), which is what is measured; "
    "a loop of its own is not"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the script; returns its exit code, or 1 with one line about what is wrong."""
    options = _options(argv)
    script = Path(options.script)
    if not script.is_file():
        return _failed(SpecError(f"there is no script {script}", remedy="give the path of a Python script"))
    _measure_after_init(options)
    sys.argv = [options.script, *options.arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        runpy.run_path(options.script, run_name="__main__")
    except BatchHvdError as error:
        return _failed(error)
    except SystemExit as end:
        if end.code:
            raise
    except BaseException as end:
        if type(end).__name__ != "Finished":  # its module imports Keras, which the script may not have done
            raise
        return 0
    return _failed(SpecError(_UNMEASURED, remedy="train with model.fit or batchhvd.trainer.fit"))


def _failed(error: BatchHvdError) -> int:
    print(f"{type(error).__name__}: {error}", file=sys.stderr)
    return 1


def _measure_after_init(options: argparse.Namespace) -> None:
    """Installs the measurement as soon as the script has called ``hvd.init``; Keras's settings are made by then."""
    plain = world.init

    def init(comm: object = None, process_sets: object = None) -> None:
        before = world.is_initialized()
        plain(comm, process_sets)
        if not before:
            _install(options)

    world.init = init


def _install(options: argparse.Namespace) -> None:
    import keras

    from batchhvd.trainer.scaling.probe import Patience
    from batchhvd.trainer.scaling.timing import TimedBinding

    timed = None
    place = world.world()
    if place.binding is not None and not options.bare:
        timed = TimedBinding(place.binding)
        world._world = evolve(place, binding=timed)
    patience = Patience(options.precision, options.seconds)
    keras.Model.fit = _measured(keras.Model.fit, patience, timed, options.answer)


def _measured(
    plain: Callable[..., object], patience: Patience, timed: TimedBinding | None, answer: Path
) -> Callable[..., object]:
    """Returns a ``fit`` that measures instead of training to its end."""
    from batchhvd.trainer.scaling.probe import Probe

    def told(figures: dict[str, object]) -> None:
        if world.world().rank == 0:
            beside = answer.with_name(f".{answer.name}.{os.getpid()}")
            beside.write_text(json.dumps(figures, indent=2) + "\n")
            beside.replace(answer)

    def fit(*args: object, **options: object) -> object:
        given = inspect.signature(plain).bind(*args, **options)
        given.apply_defaults()
        kept, left_out = _sorted_callbacks(given.arguments["callbacks"])
        if left_out and world.world().rank == 0:
            print(f"batchhvd: left out of the measured run: validation, {', '.join(left_out)}", file=sys.stderr)
        changes = {"epochs": _NEVER, "validation_freq": _NEVER, "verbose": 0}
        given.arguments.update(changes, callbacks=[*kept, Probe(patience, told, timed)])
        return plain(*given.args, **given.kwargs)

    return fit


def _sorted_callbacks(
    given: keras.callbacks.CallbackList | Sequence[keras.callbacks.Callback] | None,
) -> tuple[list[keras.callbacks.Callback], list[str]]:
    """Returns the callbacks that training on several ranks needs, and the names of all others."""
    listed = list(getattr(given, "callbacks", given) or ())
    ours = [type(one).__module__.startswith(_OURS) for one in listed]
    kept = [one for one, own in zip(listed, ours, strict=True) if own]
    return kept, sorted({type(one).__name__ for one, own in zip(listed, ours, strict=True) if not own})


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m batchhvd.trainer.scaling.rank")
    parser.add_argument("--answer", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--precision", type=float, default=0.03)
    parser.add_argument("--bare", action="store_true", help="without timing the exchange")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
