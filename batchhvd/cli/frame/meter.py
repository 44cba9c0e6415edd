"""The bar of a copy to or from a share or container."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from batchhvd.cli.frame.context import CliContext


@contextmanager
def transfer_bar(context: CliContext, name: str) -> Iterator[Callable[[int, int], None] | None]:
    """Shows how far a copy is, on a terminal; yields what is to be called with the bytes done and the total, or None.

    Args:
        context: where it is shown, and whether it is.
        name: what is copied.
    """
    console = context.console(stderr=True)
    if not context.progress or not console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    progress = Progress(*columns, console=console, transient=True)
    task = progress.add_task(name, total=None)

    def show(done: int, total: int) -> None:
        progress.start()  # not before there is something to show: warnings come first
        progress.update(task, completed=done, total=total)

    try:
        yield show
    finally:
        progress.stop()
