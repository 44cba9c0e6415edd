"""Understanding what several ranks print over one another: one live bar per writer, one record per epoch.

Keras's bars say which step they are at and nothing about who writes them. Writers are told apart by what cannot jump:
a bar's step only grows, its loss and accuracy are running means, its estimate of the time left moves slowly. So a bar
is a *writer*, numbered in the order of appearance; which rank it is, the text does not say.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping

from attrs import define, evolve, field, frozen

from batchhvd.logs.patterns import Begun, Seen, Tested, read

_PIECE = re.compile(r"[^\n\r\b]*[\n\r\b]")


@frozen
class Bar:
    """How one writer stands.

    Attributes:
        writer: its number, from 1.
        epoch: the epoch it is in, from 1.
        epochs: how many there will be, or None.
        step: steps done in this epoch.
        total: steps of an epoch, or None.
        metrics: its latest values by name.
        left: seconds that the epoch still takes, or None.
        rate: images per second of all ranks, or None.
        done: whether this epoch is over.
    """

    writer: int
    epoch: int = 1
    epochs: int | None = None
    step: int = 0
    total: int | None = None
    metrics: Mapping[str, float] = field(factory=dict)
    left: float | None = None
    rate: float | None = None
    done: bool = False


@frozen
class Epoch:
    """One epoch as one writer reported it.

    Attributes:
        writer: the writer's number, from 1.
        epoch: the epoch's number, from 1.
        metrics: its values by name, ``val_`` before those of the validation data.
        seconds: how long it took, or None.
        rate: images per second of all ranks, or None.
    """

    writer: int
    epoch: int
    metrics: Mapping[str, float]
    seconds: float | None = None
    rate: float | None = None


@define
class _Track:
    """What is known of one writer so far."""

    writer: int
    epoch: int = 1
    last: Seen = field(factory=Seen)
    metrics: dict[str, float] = field(factory=dict)
    done: bool = False
    finished: list[Epoch] = field(factory=list)

    def takes(self, seen: Seen) -> bool:
        """Whether an observation can be the next of this writer in the epoch it is in."""
        if self.done:
            return self.repeats(seen)
        fits = self.last.total is None or seen.total == self.last.total
        return fits and (seen.step or 0) > (self.last.step or 0)

    def repeats(self, seen: Seen) -> bool:
        """Whether it is the epoch's last bar once more, as it was or with the validation's values."""
        known = [name for name in seen.metrics if name in self.metrics]
        same = bool(known) and all(self.metrics[name] == seen.metrics[name] for name in known)
        return self.done and seen.ended and seen.step == self.last.step and same

    def doubt(self, seen: Seen) -> float:
        """Says how unlikely it is that an observation goes on from this writer's last; about 1 for a good fit.

        A running mean over n steps and one over k < n give the mean over the steps between. If both are this
        writer's, it is a plausible one; if they are two writers', it is off by n times their difference.
        """
        new, old = seen.step or 1, self.last.step or 0
        doubt = _time_doubt(self.last, seen) + (5.0 if self.metrics and not seen.metrics else 0.0)
        for name, value in seen.metrics.items():
            if name in self.metrics:
                between = (new * value - old * self.metrics[name]) / max(new - old, 1)
                doubt += (new - old) * ((between - self.metrics[name]) / _spread(name, self.metrics[name])) ** 2
        return doubt

    def note(self, seen: Seen) -> None:
        self.last = seen
        self.metrics.update(seen.metrics)
        if seen.ended:
            self.end(seen)

    def end(self, seen: Seen) -> None:
        if self.done:
            self.finished.pop()
        self.done = True
        self.finished.append(Epoch(self.writer, self.epoch, dict(self.metrics), seen.seconds, seen.rate))

    def begin(self, epoch: int) -> None:
        self.epoch, self.done, self.metrics, self.last = epoch, False, {}, Seen(total=self.last.total)


def _spread(name: str, mean: float) -> float:
    """How far one step's value lies from the mean, roughly: for an accuracy of 32 samples, else an eighth of it."""
    return 0.08 if name == "accuracy" else 0.125 * abs(mean) + 0.01


def _time_doubt(last: Seen, seen: Seen) -> float:
    """Compares the time that two bars say has passed; their estimates are whole seconds, so late ones say little."""
    before, now = _passed(last), _passed(seen)
    if not before or not now or not last.left or not seen.left:
        return 0.0
    return 20.0 * max(0.0, abs(math.log(now / before)) - 1.0 / min(last.left, seen.left))


def _passed(seen: Seen) -> float | None:
    """Seconds since the epoch's beginning, from the time left and the part done."""
    if not seen.left or not seen.step or not seen.total or seen.step >= seen.total:
        return None
    return seen.left * seen.step / (seen.total - seen.step)


@frozen
class Progress:
    """How a training stands at one moment.

    Attributes:
        bars: one bar for each writer, in the order of their appearance.
        records: every epoch of every writer, in the order of epochs and then of writers.
        epochs: how many epochs there will be, as the output says, or None.
        test: the final test results by name (``loss``, ``accuracy``), empty before.
    """

    bars: tuple[Bar, ...] = ()
    records: tuple[Epoch, ...] = ()
    epochs: int | None = None
    test: Mapping[str, float] = field(factory=dict)

    def table(self) -> list[dict[str, float]]:
        """Returns one record per epoch: ``epoch`` and the metrics' means over the writers.

        If they are known, also ``seconds`` (of the slowest) and ``images_per_second`` (of all ranks).
        """
        numbers = sorted({record.epoch for record in self.records})
        return [_mean(number, [record for record in self.records if record.epoch == number]) for number in numbers]


class ProgressReader:
    """Reads training output piece by piece and knows how the training stands.

    Attributes:
        epochs: how many epochs there will be, as the output says, or None.
        test: the final test results by name (``loss``, ``accuracy``), empty before.
    """

    def __init__(self, ranks: int | None = None) -> None:
        """Makes one that has read nothing.

        Args:
            ranks: how many ranks write at most, or None if that is not known.
        """
        self.epochs: int | None = None
        self.test: dict[str, float] = {}
        self._ranks = ranks
        self._tracks: list[_Track] = []
        self._evaluations: list[_Track] = []  # of writers that are through, while others still train
        self._headings: Counter[int] = Counter()
        self._torn: list[Seen] = []  # bars whose metrics will follow elsewhere in the text
        self._tested = False
        self._rest = ""
        self._shown = ""  # what a terminal would show of the present line
        self._moved = False  # whether the present line held progress

    def feed(self, text: str) -> list[str]:
        """Reads more output and returns the whole lines in it that are not progress, without their line ends.

        Args:
            text: what was written next; it may start and end anywhere.
        """
        pending, lines, end = self._rest + text, [], 0
        for match in _PIECE.finditer(pending):
            end = match.end()
            lines += self._piece(match[0][:-1], match[0][-1])
        self._rest = pending[end:]
        return lines

    def close(self) -> list[str]:
        """Reads the last line, which has no line end, and returns it if it is not progress."""
        rest, self._rest = self._rest, ""
        return self._piece(rest, "\n") if rest else []

    @property
    def bars(self) -> tuple[Bar, ...]:
        """One bar for each writer, in the order of their appearance."""
        return tuple(map(self._bar, self._tracks))

    @property
    def records(self) -> tuple[Epoch, ...]:
        """Every epoch of every writer, in the order of epochs and then of writers."""
        found = [epoch for track in self._tracks for epoch in track.finished]
        return tuple(sorted(found, key=lambda epoch: (epoch.epoch, epoch.writer)))

    def snapshot(self) -> Progress:
        """Returns how the training stands now; what is read later does not change it."""
        return Progress(self.bars, self.records, self.epochs, dict(self.test))

    def table(self) -> list[dict[str, float]]:
        """Returns one record per epoch, as ``Progress.table`` does."""
        return self.snapshot().table()

    def _piece(self, piece: str, end: str) -> list[str]:
        found = read(piece) if piece.strip() else []
        for what in found:
            self._note(what)
        # A test's result is worth a line of its own; bars and headings are shown otherwise.
        self._moved = self._moved or any(not isinstance(what, Tested) for what in found)
        self._shown = piece if piece.strip() else self._shown
        if end != "\n":
            return []
        shown, moved = self._shown, self._moved
        self._shown, self._moved = "", False
        return [] if moved or not shown else [shown]

    def _note(self, what: Seen | Begun | Tested) -> None:
        if isinstance(what, Begun):
            self.epochs = what.epochs
            self._headings[what.epoch] += 1
        elif isinstance(what, Tested):
            self.test[what.name] = what.value
        elif what.step is not None and not (what.metrics or what.left or what.ended):
            self._torn.append(what)
        elif not what.tail:
            self._see(what)
        elif self._torn:
            head = self._torn.pop(0)
            self._see(evolve(what, step=head.step, total=head.total, tail=False))

    def _see(self, seen: Seen) -> None:
        self.epochs = seen.epochs or self.epochs
        self._tested = self._tested or self._tests(seen)
        track = None if self._tested else self._track(seen)
        if track is None:
            return
        if seen.epoch is not None and seen.epoch != track.epoch:
            track.begin(seen.epoch)
        track.note(seen)

    def _tests(self, seen: Seen) -> bool:
        """Whether a bar is an evaluation's: after the last epoch, or with other steps than the training has."""
        if not self.records or seen.epoch is not None or seen.step is None:
            return False
        over = all(track.done and track.epoch == self.epochs for track in self._tracks)
        if over:
            return not self._room() and not any(track.takes(seen) for track in self._tracks)
        totals = {track.last.total for track in self._tracks} - {None}
        waiting = any(self._headings[track.epoch + 1] for track in self._tracks if track.done)
        return bool(totals) and seen.total not in totals and not waiting

    def _track(self, seen: Seen) -> _Track | None:
        """Returns the writer of an observation; a new one if none of the known writers can have written it."""
        if seen.epoch is not None or seen.step is None:
            return self._by_epoch(seen)
        able = [track for track in (*self._tracks, *self._evaluations) if track.takes(seen)]
        if able:
            # Ranks that exchange gradients are in step, so in doubt whoever is behind writes next.
            behind = min(track.last.step or 0 for track in able)
            return min(able, key=lambda t: t.doubt(seen) + min(0.3 * ((t.last.step or 0) - behind), 1.0))
        waiting = [track for track in self._tracks if track.done and track.epoch != self.epochs]
        if waiting and not self._room():
            track = min(waiting, key=lambda track: track.epoch)
            track.begin(track.epoch + 1)
            return track
        return self._new(seen) or self._evaluation()

    def _evaluation(self) -> _Track | None:
        """Returns the bar of an evaluation that a writer begins which has trained all its epochs."""
        through = sum(track.done and track.epoch == self.epochs for track in self._tracks)
        if len(self._evaluations) >= through:
            return None
        self._evaluations.append(_Track(0))
        return self._evaluations[-1]

    def _room(self) -> bool:
        """Whether another writer may still appear: as many as headings of the first epoch, or as ranks."""
        most = self._ranks or max(self._headings.values(), default=0)
        return len(self._tracks) < most and min((track.epoch for track in self._tracks), default=1) == self._first()

    def _first(self) -> int:
        return min(self._headings, default=1)

    def _by_epoch(self, seen: Seen) -> _Track | None:
        """Finds the writer of a line that says its epoch, or of one that ends an epoch without saying its step."""
        if seen.epoch is not None:  # this package's trainer, in which one rank speaks for all
            return self._tracks[0] if self._tracks else self._new(seen)
        if self._room() or not self._tracks:
            return self._new(seen)
        track = min(self._tracks, key=lambda track: len(track.finished))
        if track.done:
            track.begin(track.epoch + 1)
        return track

    def _new(self, seen: Seen) -> _Track | None:
        if self._ranks is not None and len(self._tracks) >= self._ranks:
            return None
        track = _Track(len(self._tracks) + 1, seen.epoch or self._first())
        self._tracks.append(track)
        return track

    def _bar(self, track: _Track) -> Bar:
        last = track.last
        metrics = dict(track.metrics)
        step, total = last.step or 0, last.total
        return Bar(track.writer, track.epoch, self.epochs, step, total, metrics, last.left, last.rate, track.done)


def _mean(number: int, records: Iterable[Epoch]) -> dict[str, float]:
    records = list(records)
    names = dict.fromkeys(name for record in records for name in record.metrics)
    found: dict[str, float] = {"epoch": number}
    for name in names:
        values = [record.metrics[name] for record in records if name in record.metrics]
        found[name] = sum(values) / len(values)
    seconds = [record.seconds for record in records if record.seconds is not None]
    rates = [record.rate for record in records if record.rate is not None]
    extra = {**({"seconds": max(seconds)} if seconds else {}), **({"images_per_second": max(rates)} if rates else {})}
    return {**found, **extra}
