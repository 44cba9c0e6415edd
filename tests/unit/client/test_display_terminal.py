"""What a terminal shows of a training, and that anything else gets the log byte for byte."""

import io

import pytest
from attrs import define
from rich.console import Console

from batchhvd.views import terminal

BARS = "Epoch 1/2\nEpoch 1/2\nhello\n" + "".join(
    f"\r{step}/4 [=>..] - ETA: {4 - step}s - loss: {loss - step / 10}" for step in (1, 2, 3) for loss in (2.5, 3.5)
)
ENDS = "".join(f"\r4/4 [====] - 9s 1s/step - loss: {loss}\n" for loss in (2.0, 3.0))


@define
class Shown:
    """A console and what it has shown."""

    console: Console
    file: io.StringIO

    @property
    def text(self) -> str:
        return self.file.getvalue()


def shown(is_terminal: bool) -> Shown:
    file = io.StringIO()
    width = 100 if is_terminal else None
    return Shown(Console(file=file, force_terminal=is_terminal, color_system=None, _environ={}, width=width), file)


@pytest.mark.parametrize(("is_terminal", "live"), [(False, True), (True, False)])
def test_without_a_terminal_or_without_progress_the_log_passes_as_it_is(is_terminal: bool, live: bool) -> None:
    out = shown(is_terminal)
    text = BARS + ENDS + "ä no end"
    with terminal.Follower(out.console, ranks=2, live=live) as follower:
        for start in range(0, len(text), 7):
            follower.write(text[start : start + 7])
    assert out.text == text
    assert follower.progress.table() == [{"epoch": 1, "loss": 2.5, "seconds": 9.0}]


def test_in_a_terminal_each_writer_has_a_bar_and_each_epoch_a_line() -> None:
    out = shown(True)
    with terminal.Follower(out.console, ranks=2) as follower:
        follower.write(BARS + "\r")
        moving = len(out.text)
        follower.write(ENDS)
        follower.write("Test accuracy: 0.75\nbye")
    assert "hello\n" in out.text[:moving]
    assert "ETA" not in out.text
    assert out.text.count("epoch 1/2  loss 2.5000\n") == 1
    assert "Test accuracy: 0.75\n" in out.text
    assert out.text.rstrip("\x1b[?25h\n").endswith("bye") or "bye\n" in out.text


def test_what_is_waited_for_is_said_until_the_first_bar() -> None:
    out = shown(True)
    with terminal.Follower(out.console) as follower:
        follower.say("queued: waits for 4 idle nodes")
        assert follower._live is not None
        follower._live.refresh()
        assert "queued: waits for 4 idle nodes" in out.text


def test_bars_say_where_each_writer_is() -> None:
    out = shown(True)
    with terminal.Follower(shown(False).console, ranks=2) as follower:
        follower.write(BARS + "\r")
    out.console.print(terminal.bars(follower.progress.bars))
    first, second = out.text.splitlines()
    assert first.split()[:3] == ["#1", "epoch", "1/2"]
    assert "step 3/4" in first
    assert "loss 2.2000" in first
    assert "1 s left" in first
    assert "loss 3.2000" in second


def test_epochs_are_a_table_with_curves_below() -> None:
    out = shown(True)
    out.console.print(terminal.epochs([{"epoch": e, "seconds": 1.0, "val_loss": 3 - e, "loss": e / 2} for e in (1, 2)]))
    head, one, two, curves = (line.split() for line in out.text.splitlines())
    assert head == ["epoch", "loss", "val", "loss", "seconds"]
    assert one == ["1", "0.5000", "2.0000", "1.0"]
    assert curves == ["▁█", "█▁"]


def test_rows_align_numbers_and_keep_all_names() -> None:
    out = shown(True)
    out.console.print(terminal.rows([{"name": "a", "size": 5}, {"name": "b", "state": "failed", "size": 12345}]))
    head, a, b = out.text.splitlines()
    assert head.split() == ["name", "size", "state"]
    assert a.index("5") == b.index("5")
    assert "failed" in b


def test_many_epochs_fit_into_80_columns() -> None:
    names = ("loss", "accuracy", "val_loss", "val_accuracy", "images_per_second", "seconds")
    file = io.StringIO()
    records = [{"epoch": epoch, **dict.fromkeys(names, 100.0 + epoch)} for epoch in range(1, 101)]
    Console(file=file, width=80, _environ={}).print(terminal.epochs(records))
    assert "…" not in file.getvalue()
    assert len(file.getvalue().splitlines()) == 102
