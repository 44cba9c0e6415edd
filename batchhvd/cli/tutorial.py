"""``tutorial``: the Horovod tutorial from its first step to its last."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click

from batchhvd.cli.frame.context import CliContext, with_context


@click.command()
@click.option("--engine", default="processes", show_default=True, help="the engine that runs the job")
@click.option("--option", "engine_options", multiple=True, metavar="NAME=VALUE", help="an option of the engine")
@click.option(
    "--nodes", type=click.IntRange(1), default=4, show_default=True, help="the number of nodes, one rank each"
)
@click.option("--dataset", default="digits", show_default=True, help="digits, cifar10 or an .npz file")
@click.option(
    "--data", type=click.Path(file_okay=False, path_type=Path), help="the folder that holds cifar-10-batches-py"
)
@click.option("--epochs", type=click.IntRange(1), help="passes over the data (default: the trainer's own)")
@click.option(
    "--root", type=click.Path(file_okay=False, path_type=Path), help="the folder for everything (default: run/tutorial)"
)
@click.option("--script", type=click.Path(dir_okay=False, path_type=Path), help="another training script")
@click.option("--model", help="the file that the script writes to saved_models, or '' for none")
@with_context
def tutorial(
    context: CliContext,
    root: Path | None,
    script: Path | None,
    model: str | None,
    engine_options: tuple[str, ...],
    **options: Any,
) -> None:
    """Runs the whole Horovod tutorial.

    It starts the local service, creates all resources, trains, downloads the model, and deletes everything again.
    """
    from batchhvd.cli.flows import walkthrough as flow

    chosen = {"script": script, "model": model if model is not None else "" if script else None}
    options["engine_options"] = _pairs(engine_options)
    given = {name: value for name, value in {**options, **chosen}.items() if value is not None}
    place = root or Path(context.root or "run/tutorial")
    with _interrupted_by_sigterm():
        code = flow.run(flow.TutorialOptions(root=place, **given), context.console(), live=context.progress)
    raise click.exceptions.Exit(code)


def _pairs(settings: tuple[str, ...]) -> dict[str, str] | None:
    """Returns the engine's options, or None for those of the settings."""
    pairs = [setting.partition("=") for setting in settings]
    wrong = [setting for setting, (name, equals, _) in zip(settings, pairs, strict=True) if not name or not equals]
    if wrong:
        raise click.UsageError(f"--option {wrong[0]} is not of the form NAME=VALUE")
    return {name: value for name, _, value in pairs} or None


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Ends on SIGTERM as on Ctrl-C, after cleaning up; restores the previous handler."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
