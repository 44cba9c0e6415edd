"""Time and progress of a training: one line per epoch, readable in a log that many ranks write to."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import keras

from batchhvd.trainer.feed import Feed
from batchhvd.trainer.hvd.callbacks import numbers

EVERY = 15.0  # seconds between two lines within an epoch


class Stopwatch(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Measures training without validation and without the first steps, and reports progress.

    Attributes:
        seconds: duration of all steps except the first ones.
        first_seconds: duration of the first steps, which trace and compile.
        samples: number of samples that this rank trained on in ``seconds``.
        steps: number of steps, including the first ones.

    Args:
        feed: the training data of this rank.
        ranks: how many ranks train together, for the rate that is shown.
        say: called with each line; None prints nothing.
        clock: monotonic time in seconds.
        first: how many steps count as first ones.
    """

    def __init__(
        self,
        feed: Feed,
        ranks: int,
        say: Callable[[str], None] | None,
        clock: Callable[[], float] = time.perf_counter,
        first: int = 1,
    ) -> None:
        super().__init__()
        self.feed = feed
        self.ranks = ranks
        self.say = say or (lambda line: None)
        self.clock = clock
        self.first = first
        self.seconds = self.first_seconds = 0.0
        self.samples = self.steps = self.executions = 0
        self._running = False

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Starts the clock of the epoch."""
        self.epoch = epoch
        self.began = self.mark = self.spoke = self.clock()
        self.counted = 0
        self.batch = -1
        self._running = True

    def on_train_batch_end(self, batch: int, logs: Mapping[str, float] | None = None) -> None:
        """Counts the step; the first steps of the training are counted separately."""
        made = batch - self.batch  # several with steps_per_execution
        self.batch = batch
        self.executions += 1
        self.steps += made
        self.counted += made
        if self.executions <= self.first:
            settle()
            self.first_seconds += self.clock() - self.mark
            self.mark = self.spoke = self.clock()
            self.counted = 0
        if self.clock() - self.spoke > EVERY:
            self._within(batch, logs or {})

    def on_test_begin(self, logs: Mapping[str, float] | None = None) -> None:
        """Stops the clock of the epoch when validation begins."""
        self._pause()

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Reports the epoch."""
        self._pause()
        parts = [f"{name} {value:.4f}" for name, value in numbers(logs or {}).items() if name != "learning_rate"]
        seconds = self.clock() - self.began
        rate = self.rate * self.ranks
        self.say(f"Epoch {epoch + 1}/{self.params['epochs']}  {'  '.join(parts)}  {rate:.0f} images/s  {seconds:.1f} s")

    def _pause(self) -> None:
        if not self._running:
            return
        settle()
        self._running = False
        seconds = self.clock() - self.mark
        self.rate = self.counted * self.feed.batch / seconds if self.counted else 0.0
        self.seconds += seconds
        self.samples += self.counted * self.feed.batch

    def _within(self, batch: int, logs: Mapping[str, float]) -> None:
        self.spoke = self.clock()
        rate = self.counted * self.feed.batch * self.ranks / (self.spoke - self.mark) if self.counted else 0.0
        loss = f"loss {float(logs['loss']):.4f}  " if "loss" in logs else ""
        place = f"step {batch + 1}/{self.feed.steps}"
        self.say(f"  epoch {self.epoch + 1}/{self.params['epochs']}  {place}  {loss}{rate:.0f} images/s")


def settle() -> None:
    """Waits until the device has finished all its work, so that the clock shows the true time."""
    if keras.backend.backend() == "torch":
        import torch

        if torch.cuda.is_available():
            torch.cuda.synchronize()
