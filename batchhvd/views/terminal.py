"""How things look in a terminal: tables, one live bar per rank under the log, and plain text everywhere else.

If the output is not a terminal (a file, a pipe, CI) or progress is turned off, a log is passed on byte for byte and
nothing moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from batchhvd.logs.progress import Bar, ProgressReader
from batchhvd.views.viewable import mood

_STYLES = {"good": "green", "busy": "yellow", "bad": "red", "": ""}
_SHOWN = ("loss", "accuracy", "val_loss", "val_accuracy")


def rows(items: Sequence[Mapping[str, object]], names: Sequence[str] | None = None) -> Table:
    """Returns mappings as a table: a column for each name, numbers aligned right, states in colour.

    Args:
        items: one mapping for each row.
        names: the columns; None for all.
    """
    names = columns(items) if names is None else names
    table = _table()
    for name in names:
        numeric = all(isinstance(item.get(name), (int, float, type(None))) for item in items)
        table.add_column(name.replace("_", " "), justify="right" if numeric else "left", overflow="fold")
    for item in items:
        table.add_row(*(_cell(name, item.get(name)) for name in names))
    return table


def columns(items: Sequence[Mapping[str, object]]) -> list[str]:
    """Returns the names of all columns."""
    return list(dict.fromkeys(name for item in items for name in item))


def fitting(items: Sequence[Mapping[str, object]], width: int) -> list[str]:
    """Returns the columns that fit a terminal, from the left, so that none is folded; at least the first two."""
    found: list[str] = []
    used = 0
    for name in columns(items):
        used += max(len(name), *(len(str(item.get(name, ""))) for item in items)) + 2
        if used - 2 > width and len(found) >= 2:
            break
        found.append(name)
    return found


def facts(item: Mapping[str, object]) -> Table:
    """Returns one mapping as a list, a line for each name, so that it fits a narrow terminal too."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in item.items():
        table.add_row(name.replace("_", " "), _cell(name, value))
    return table


def epochs(records: Sequence[Mapping[str, float]]) -> Table:
    """Returns the records of a training as a table with a row of curves below if there are several."""
    from batchhvd.views import curves

    found = dict.fromkeys(name for record in records for name in record)
    first, last = ("epoch", *_SHOWN), ("images_per_second", "seconds")
    between = [name for name in found if name not in (*first, *last)]
    names = [name for name in (*first, *between, *last) if name in found]
    table = _table(show_footer=len(records) > 1)
    for name in names:
        curve = "" if name in ("epoch", "seconds") else curves.sparkline(_sampled([r.get(name, 0.0) for r in records]))
        title = "images/s" if name == "images_per_second" else name.replace("_", " ")
        table.add_column(title, justify="right", footer=Text(curve, style="cyan"))
    for record in records:
        table.add_row(*(_number(name, record.get(name)) for name in names))
    return table


def _sampled(values: Sequence[float], most: int = 10) -> list[float]:
    """Returns at most ``most`` values, evenly spread, so that the curve fits its column."""
    if len(values) <= most:
        return list(values)
    return [values[round(index * (len(values) - 1) / (most - 1))] for index in range(most)]


def _table(*, show_footer: bool = False) -> Table:
    return Table(
        box=None, pad_edge=False, header_style="bold", footer_style="", padding=(0, 2, 0, 0), show_footer=show_footer
    )


def _cell(name: str, value: object) -> Text:
    text = "" if value is None else str(value)
    style = _STYLES[mood(text)] if name in ("state", "provisioning") else ""
    return Text(text, style=style)


def _number(name: str, value: float | None) -> str:
    if value is None:
        return ""
    if name in ("epoch", "images_per_second"):
        return f"{value:.0f}"
    return f"{value:.1f}" if name == "seconds" else f"{value:.4f}"


def _dimmed(line: str) -> Text:
    """Returns a line of other programs' output, dimmed; of what was written over itself, the last state."""
    return Text(Text.from_ansi(line.rstrip("\r").rpartition("\r")[2]).plain, style="dim")


class Follower:
    """Shows a training's log as it grows, with one bar per writer below it; a context manager.

    Attributes:
        progress: what the log has said so far.
    """

    def __init__(self, console: Console, *, ranks: int | None = None, live: bool = True) -> None:
        """Creates a follower that has shown nothing yet.

        Args:
            console: the console to show it on.
            ranks: how many ranks write at most, or None if that is not known.
            live: False passes the text on unchanged, as for a console that is not a terminal.
        """
        self.progress = ProgressReader(ranks)
        self._console = console
        self._live = (
            Live(console=console, refresh_per_second=8, transient=True) if live and console.is_terminal else None
        )
        self._told = 0
        self._waits = Spinner("dots", text="waiting for the first line")

    def say(self, line: str) -> None:
        """Shows what the stream is waiting for, until a bar replaces it."""
        if self._live and not self.progress.bars:
            self._waits.update(text=Text(line, style="dim", no_wrap=True, overflow="ellipsis"))

    def __enter__(self) -> Follower:
        if self._live:
            self._live.update(self._waits)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._print(self.progress.close())
        if self._live:
            self._live.stop()

    def prepare(self, command: str, pieces: Iterable[str]) -> None:
        """Shows what a preparation prints, dimmed below a heading; without a live terminal on stderr.

        Args:
            command: the preparation's command line.
            pieces: its output, as it comes.
        """
        console = self._console if self._live else Console(stderr=True, highlight=False)
        rest = ""
        for number, piece in enumerate(pieces):
            if number == 0:
                console.print(Text(f"preparation: {command}", style="bold dim"), soft_wrap=True)
            *lines, rest = (rest + piece).split("\n")
            for line in lines:
                console.print(_dimmed(line), soft_wrap=True)
        if rest:
            console.print(_dimmed(rest), soft_wrap=True)

    def write(self, text: str) -> None:
        """Shows more of the log."""
        lines = self.progress.feed(text)
        if self._live is None:
            self._console.file.write(text)
            self._console.file.flush()
            return
        self._print(lines)
        self._tell_epochs()
        if self.progress.bars:
            self._live.update(bars(self.progress.bars))

    def _print(self, lines: Sequence[str]) -> None:
        if self._live:
            for line in lines:
                self._console.print(Text.from_ansi(line), soft_wrap=True)

    def _tell_epochs(self) -> None:
        """Prints each epoch that every writer has ended, since its bars have been replaced."""
        writers = len(self.progress.bars)
        table = self.progress.table()
        for row in table[self._told :]:
            if sum(record.epoch == row["epoch"] for record in self.progress.records) < writers:
                return
            self._told += 1
            of = f"/{self.progress.epochs}" if self.progress.epochs else ""
            facts = "  ".join(f"{name} {row[name]:.4f}" for name in _SHOWN if name in row)
            rate = f"  {row['images_per_second']:.0f} images/s" if "images_per_second" in row else ""
            self._console.print(f"epoch {row['epoch']:.0f}{of}  {facts}{rate}", highlight=False)


def bars(found: Sequence[Bar]) -> Table:
    """Returns one line for each writer: how far its training is, and its latest values."""
    grid = Table.grid(padding=(0, 1))
    for bar in found:
        within = min(bar.step / bar.total, 1.0) if bar.total and not bar.done else float(bar.done)
        done, of = (bar.epoch - 1 + within, bar.epochs) if bar.epochs else (within, 1)
        step = f"step {bar.step}/{bar.total}" if bar.total and not bar.done else ""
        metrics = "  ".join(f"{name} {bar.metrics[name]:.4f}" for name in _SHOWN[:2] if name in bar.metrics)
        speed = f"{bar.rate:.0f} images/s" if bar.rate else f"{bar.left:.0f} s left" if bar.left else ""
        cells: list[RenderableType] = [
            f"epoch {bar.epoch}" + (f"/{bar.epochs}" if bar.epochs else ""),
            ProgressBar(total=of, completed=done, width=24),
            *(Text(text, no_wrap=True) for text in (step, metrics)),
            Text(speed, style="dim", no_wrap=True),
        ]
        grid.add_row(*([Text(f"#{bar.writer}", style="dim")] if len(found) > 1 else []), *cells)
    return grid
