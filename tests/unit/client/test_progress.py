"""Bars of several ranks, printed over one another, made sense of."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchhvd.logs.progress import Progress, ProgressReader

RECORDED = Path(__file__).parents[2] / "data" / "keras3-two-ranks.txt"
SAMPLE = Path(__file__).parents[2] / "data" / "tutorial-output.txt"


class Rank:
    """Writes what one rank's Keras would: a running mean of loss and accuracy, step by step."""

    def __init__(self, seed: int, steps: int, epochs: int, style: str) -> None:
        self.random, self.steps, self.epochs, self.style = random.Random(seed), steps, epochs, style
        self.loss = self.accuracy = 0.0
        self.final: list[tuple[float, float]] = []

    def pieces(self) -> Iterator[str]:
        level = 2.3
        for epoch in range(1, self.epochs + 1):
            yield f"Epoch {epoch}/{self.epochs}\n"
            losses, right = 0.0, 0
            for step in range(1, self.steps + 1):
                losses += max(0.01, self.random.gauss(level, 0.15))
                right += min(32, max(0, round(self.random.gauss(32 * (2.4 - level), 3))))
                self.loss, self.accuracy = losses / step, right / 32 / step
                level *= 1 - 0.2 / self.steps
                yield self.bar(step)
            self.final.append((round(self.loss, 4), round(self.accuracy, 4)))

    def bar(self, step: int) -> str:
        end = step == self.steps
        left = f"{(self.steps - step) * 2}s"
        metrics = {"loss": self.loss, "acc" if self.style == "keras2" else "accuracy": self.accuracy}
        words = "".join(f" - {name}: {value:.4f}" for name, value in metrics.items())
        if self.style == "keras2":
            time = " - 43s 27ms/step" if end else f" - ETA: {left}"
            bar = f"{step:4d}/{self.steps} [{'=' * 10}{'>' if not end else '='}.....]{time}{words}"
        else:
            time = f"\x1b[1m{'43s' if end else left}\x1b[0m 27ms/step"
            bar = f"\x1b[1m{step:4d}/{self.steps}\x1b[0m \x1b[32m━━━━━\x1b[0m\x1b[37m━━━━━\x1b[0m {time}{words}"
        if self.style == "lines":
            return bar + "\n"
        return "\b" * 40 + "\r" + bar + ("\n" if end else "")


def mixed(ranks: list[Rank], seed: int = 1) -> Iterator[str]:
    """Interleaves the ranks' pieces; the gradients' exchange lets none be more than one step ahead."""
    chance = random.Random(seed)
    for pieces in zip(*(rank.pieces() for rank in ranks), strict=True):
        yield from chance.sample(pieces, len(pieces))


@pytest.mark.parametrize("style", ["keras2", "keras3", "lines"])
def test_four_ranks_become_four_bars_and_each_epoch_is_kept(style: str) -> None:
    ranks = [Rank(seed, steps=30, epochs=3, style=style) for seed in range(4)]
    progress = ProgressReader(ranks=4)
    rest = [line for piece in mixed(ranks) for line in progress.feed(piece)]
    assert rest == []
    assert [bar.writer for bar in progress.bars] == [1, 2, 3, 4]
    assert all((bar.epoch, bar.epochs, bar.step, bar.total, bar.done) == (3, 3, 30, 30, True) for bar in progress.bars)
    for epoch in (1, 2, 3):
        found = {(r.metrics["loss"], r.metrics["accuracy"]) for r in progress.records if r.epoch == epoch}
        assert found == {rank.final[epoch - 1] for rank in ranks}
    assert {record.seconds for record in progress.records} == {43.0}


def test_a_writer_keeps_its_bar_where_ranks_differ() -> None:
    """Two ranks with their own levels of loss never exchange their bars."""
    lines = ["Epoch 1/1\n", "Epoch 1/1\n"]
    for step in range(1, 40):
        pair = [f"\r{step}/40 [=>..] - ETA: {40 - step}s - loss: {loss}" for loss in (2.3, 1.9)]
        lines += pair if step % 3 else reversed(pair)
    progress = ProgressReader()
    for line in lines:
        progress.feed(line)
        assert [bar.metrics["loss"] for bar in progress.bars] in ([], [2.3], [2.3, 1.9])


def test_the_same_text_in_pieces_of_any_size_says_the_same() -> None:
    text = "".join(mixed([Rank(seed, steps=5, epochs=2, style="keras3") for seed in range(3)]))
    whole, single = ProgressReader(ranks=3), ProgressReader(ranks=3)
    whole.feed(text)
    for character in text:
        single.feed(character)
    assert single.records == whole.records
    assert single.bars == whole.bars


def test_the_tutorials_own_unreadable_sample_becomes_four_bars() -> None:
    progress = ProgressReader(ranks=4)
    lines = progress.feed(SAMPLE.read_text(encoding="utf-8")) + progress.close()
    assert lines == ["...", "50000 train samples", "10000 test samples", "Using real-time data augmentation.", "..."]
    assert sorted(bar.step for bar in progress.bars) == [7, 8, 8, 8]  # it is cut off before the fourth gets there
    assert {bar.metrics["loss"] for bar in progress.bars if bar.step == 8} == {2.3113, 2.3169, 2.3152}
    assert {(bar.epoch, bar.epochs, bar.total) for bar in progress.bars} == {(1, 25, 1563)}


def test_two_ranks_of_a_real_keras_3_that_drift_apart() -> None:
    """Recorded from two ranks without a common step: one is an epoch ahead, and evaluates while the other trains."""
    progress = ProgressReader(ranks=2)
    progress.feed(RECORDED.read_bytes().decode("utf-8"))
    values = [(r.writer, r.epoch, r.metrics["loss"], r.metrics["val_loss"]) for r in progress.records]
    assert values == [
        (1, 1, 0.7443, 0.7284),
        (2, 1, 0.6863, 0.6527),
        (1, 2, 0.7281, 0.7162),
        (2, 2, 0.6840, 0.6530),
        (1, 3, 0.7176, 0.7076),
        (2, 3, 0.6821, 0.6532),
    ]


def test_one_ranks_estimate_of_time_keeps_it_apart_in_the_sample() -> None:
    """One rank in the sample is four times as fast as the others: its estimates stay one writer's."""
    progress = ProgressReader(ranks=4)
    fast = []
    for line in SAMPLE.read_text(encoding="utf-8").splitlines(keepends=True):
        progress.feed(line)
        fast.append([bar.writer for bar in progress.bars if bar.left and bar.left < 1840 and bar.step <= 4])
    owners = {writer for writers in fast for writer in writers}
    assert len(owners) == 1


def test_validation_values_complete_the_epoch_they_follow() -> None:
    progress = ProgressReader(ranks=1)
    bar = "5/5 [====] - 4s 27ms/step - loss: 1.5 - acc: 0.4"
    progress.feed(
        f"Epoch 1/2\n\r{bar}\b\b\r{bar} - val_loss: 1.2 - val_acc: 0.5\nEpoch 2/2\n\r1/5 [..] - ETA: 3s - loss: 1\r"
    )
    (record,) = progress.records
    assert record.metrics == {"loss": 1.5, "accuracy": 0.4, "val_loss": 1.2, "val_accuracy": 0.5}
    assert progress.bars[0].epoch == 2


def test_an_evaluation_at_the_end_is_no_epoch() -> None:
    progress = ProgressReader(ranks=1)
    progress.feed("Epoch 1/1\n\r5/5 [====] - 4s 27ms/step - loss: 1.5\n")
    progress.feed("\r 32/10000 [....] - ETA: 3s\r10000/10000 [====] - 5s 500us/step\n")
    progress.feed("\r1/5 [....] - ETA: 3s - loss: 9\r5/5 [====] - 5s 500us/step - loss: 9.9\n")
    assert progress.feed("Test loss: 1.61\nTest accuracy: 0.7125\n") == ["Test loss: 1.61", "Test accuracy: 0.7125"]
    assert [record.metrics for record in progress.records] == [{"loss": 1.5}]
    assert progress.test == {"loss": 1.61, "accuracy": 0.7125}


def test_the_one_line_form_of_both_keras() -> None:
    progress = ProgressReader(ranks=2)
    for epoch, loss in ((1, 2.0), (2, 1.0)):
        progress.feed(f"Epoch {epoch}/2\n" * 2)
        progress.feed(
            f" - 12s - loss: {loss} - acc: 0.5\n157/157 - 14s - 79ms/step - accuracy: 0.25 - loss: {loss + 1}\n"
        )
    assert progress.table() == [
        {"epoch": 1, "loss": 2.5, "accuracy": 0.375, "seconds": 14.0},
        {"epoch": 2, "loss": 1.5, "accuracy": 0.375, "seconds": 14.0},
    ]


def test_the_trainers_own_lines() -> None:
    progress = ProgressReader(ranks=4)
    progress.feed("  epoch 1/2  step 30/94  loss 1.8000  812 images/s\n")
    (bar,) = progress.bars
    assert (bar.epoch, bar.epochs, bar.step, bar.total, bar.rate) == (1, 2, 30, 94, 812.0)
    progress.feed("Epoch 1/2  accuracy 0.8800  loss 0.4100  val_accuracy 0.9000  790 images/s  4.1 s\n")
    progress.feed("Epoch 2/2  accuracy 0.9000  loss 0.3100  val_accuracy 0.9200  800 images/s  4.0 s\n")
    assert progress.table()[0] == {
        "epoch": 1,
        "accuracy": 0.88,
        "loss": 0.41,
        "val_accuracy": 0.9,
        "seconds": 4.1,
        "images_per_second": 790.0,
    }
    assert [record.epoch for record in progress.records] == [1, 2]


def test_other_output_passes_through() -> None:
    progress = ProgressReader()
    text = "hello\r\n  indented\n50%\r100%\nEpoch of change 3/4: see 10/12/2018 - ok\nsaved 1/2 files\n"
    expected = ["hello", "  indented", "100%", "Epoch of change 3/4: see 10/12/2018 - ok", "saved 1/2 files"]
    assert progress.feed(text) == expected
    assert progress.feed("no end") == []
    assert progress.close() == ["no end"]
    assert progress.bars == ()


def test_nan_and_small_numbers_are_numbers() -> None:
    progress = ProgressReader(ranks=1)
    progress.feed("\r1/2 [.] - ETA: 3s - loss: nan - lr: 1.0000e-04\r")
    assert progress.bars[0].metrics["lr"] == 1e-4
    assert progress.bars[0].metrics["loss"] != progress.bars[0].metrics["loss"]


def test_a_snapshot_holds_what_it_says() -> None:
    reader = ProgressReader(ranks=1)
    kept: list[Progress] = [reader.snapshot()]
    for line in (
        "Epoch 1/2\n\n",
        "4/8 [====>....] - ETA: 1s - loss: 2.0\r",
        "8/8 [======] - 1s - loss: 1.0\n",
        "Epoch 2/2\n",
    ):
        reader.feed(line)
        kept.append(reader.snapshot())
    assert [len(one.records) for one in kept] == [0, 0, 0, 1, 1]
    assert [one.bars[0].step for one in kept if one.bars] == [4, 8, 8]
    assert kept[-1].table() == reader.table() and kept[0].table() == []
    with pytest.raises(AttributeError):
        kept[0].epochs = 3  # type: ignore[misc]
