"""What a piece of training output says: a step of a progress bar, the start or end of an epoch, a test result.

Four writers are understood: the progress bars of Keras 2 (``[==>...]``) and Keras 3 (``━━━``), their one-line form
(``verbose=2``), and the lines of this package's trainer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from attrs import field, frozen

_NUMBER = r"-?(?:\d+\.?\d*(?:e[-+]?\d+)?|nan|inf)"
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_HEAD = r"(?<![\d/])(?P<step>\d+)/(?:(?P<total>\d+)(?: ?\[[=>.\-]*\]| ?━+|(?= - \d+s))|Unknown)"
_TIME = r"(?: - ETA: (?P<eta>[\d:]+s?)| -? ?(?P<time>\d[\d:]*s?)(?: -? ?\d+[mu]?s/\w+)?)"
_METRICS = rf"(?P<metrics>(?: ?- (?!ETA:)[A-Za-z_][\w/ ]*: {_NUMBER})*)"
# A head and what follows; or, if ranks wrote into one another's lines, a tail without its head.
_BAR = re.compile(
    rf"{_HEAD}(?:{_TIME})?{_METRICS}|(?P<lost> - ETA: (?P<lost_eta>[\d:]+s?){_METRICS.replace('metrics', 'rest')})"
)
_METRIC = re.compile(rf"- ([A-Za-z_][\w/ ]*): ({_NUMBER})")
_BEGIN = re.compile(r"Epoch (\d+)/(\d+)\s*$")
_KERAS2_LINE = re.compile(rf"\s*- (\d+)s{_METRICS}\s*$")
_TRAINER = re.compile(r"\s*[Ee]poch (\d+)/(\d+)  (.+)$")
_PAIR = re.compile(rf"([a-z_][\w/]*) ({_NUMBER})(?=  |$)")
_TEST = re.compile(rf"Test (loss|accuracy): ({_NUMBER})\s*$")
_OLD_NAMES = {"acc": "accuracy", "val_acc": "val_accuracy"}


@frozen
class Seen:
    """One observation of a training.

    Attributes:
        step: steps done in this epoch, or None if the text does not say.
        total: steps of the epoch, or None.
        metrics: values by name; Keras 2's ``acc`` is called ``accuracy``.
        left: seconds that remain of the epoch, or None.
        seconds: seconds that the epoch took, at its end, or None.
        rate: images per second of all ranks, or None.
        epoch: the epoch's number from 1, or None.
        epochs: the total number of epochs, or None.
        ended: whether this ends the epoch.
        tail: only the metrics and the time, torn from their bar.
    """

    step: int | None = None
    total: int | None = None
    metrics: Mapping[str, float] = field(factory=dict)
    left: float | None = None
    seconds: float | None = None
    rate: float | None = None
    epoch: int | None = None
    epochs: int | None = None
    ended: bool = False
    tail: bool = False


@frozen
class Begun:
    """An epoch's heading, ``Epoch 3/25``."""

    epoch: int
    epochs: int


@frozen
class Tested:
    """A final result, ``Test accuracy: 0.71``."""

    name: str
    value: float


def read(line: str) -> list[Seen | Begun | Tested]:
    """Returns what a piece of output, up to a line end or carriage return, says; an empty list for other text."""
    text = _COLOUR.sub("", line)
    begin, test, trainer = _BEGIN.match(text.strip()), _TEST.match(text.strip()), _TRAINER.match(text)
    if begin:
        return [Begun(int(begin[1]), int(begin[2]))]
    if test:
        return [Tested(test[1], float(test[2]))]
    if trainer:
        return list(_trainer(trainer))
    short = _KERAS2_LINE.match(text)
    if short and short["metrics"]:
        return [Seen(metrics=_metrics(short["metrics"]), seconds=float(short[1]), ended=True)]
    return list(_bars(text))


def _bars(text: str) -> Iterator[Seen]:
    for match in _BAR.finditer(text):
        if match["lost"]:
            yield Seen(metrics=_metrics(match["rest"]), left=_seconds(match["lost_eta"]), tail=True)
            continue
        step, total = int(match["step"]), int(match["total"]) if match["total"] else None
        ended = step == total
        time = _seconds(match["time"])
        left = _seconds(match["eta"]) if match["eta"] else (None if ended or total is None else time)
        metrics = _metrics(match["metrics"])
        yield Seen(step, total, metrics, left, time if ended else None, ended=ended)


def _trainer(match: re.Match[str]) -> Iterator[Seen]:
    """Reads ``Epoch 3/12  loss 0.41  accuracy 0.88  812 images/s  4.1 s`` and ``  epoch 3/12  step 30/94  loss …``."""
    rest = match[3]
    metrics = {name: float(value) for name, value in _PAIR.findall(rest)}
    rate = re.search(r"(\d+(?:\.\d+)?) images/s", rest)
    place = re.search(r"step (\d+)/(\d+)", rest)
    took = re.search(r"(\d+(?:\.\d+)?) s$", rest.rstrip())
    if not metrics and not rate:
        return
    yield Seen(
        int(place[1]) if place else None,
        int(place[2]) if place else None,
        metrics,
        seconds=float(took[1]) if took else None,
        rate=float(rate[1]) if rate else None,
        epoch=int(match[1]),
        epochs=int(match[2]),
        ended=place is None,
    )


def _metrics(text: str) -> dict[str, float]:
    pairs = _METRIC.findall(text)
    return {_OLD_NAMES.get(name.strip(), name.strip()): float(value) for name, value in pairs}


def _seconds(text: str | None) -> float | None:
    """Reads ``45s``, ``9:16`` and ``2:42:25``."""
    if not text:
        return None
    seconds = 0
    for part in text.rstrip("s").split(":"):
        seconds = seconds * 60 + int(part)
    return float(seconds)
