"""What differs between two runs: specification, code, data, seed, packages, machine, results."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import field, frozen

from batchhvd.errors import NotFoundError

if TYPE_CHECKING:
    from batchhvd.resources.studies.run_record import RunRecord

KINDS = ("code", "specification", "data", "seed", "packages", "python", "threads", "machine", "results")
"""In the order in which they explain other weights; ``results`` is what they explain."""

LINES = 60
"""The most lines of a file's difference that are shown."""

_SHOWN = 60  # signs of a value
_DIGEST = re.compile("[0-9a-f]{64}")
Reader = Callable[[str], bytes]


@frozen
class Difference:
    """One thing that two runs do not have in common.

    Attributes:
        kind: one of ``KINDS``.
        what: which one: a file, a package, a field of the specification.
        before, after: what it is in the first and in the second run; "" if it is not there.
        lines: of a text file, how its lines differ.
    """

    kind: str
    what: str
    before: str
    after: str
    lines: tuple[str, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        before, after = _told_apart(self.before, self.after)
        return f"{self.kind}: {self.what}: {before} → {after}"


@frozen
class JobDifference:
    """What differs between two runs; iterating yields one difference after another.

    Attributes:
        names: of the two jobs.
        found: the differences, those that explain others first.
        unknown: what cannot be compared, because a run has not recorded it.
    """

    names: tuple[str, str]
    found: tuple[Difference, ...]
    unknown: tuple[str, ...]

    def __iter__(self) -> Iterator[Difference]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)

    @property
    def causes(self) -> tuple[Difference, ...]:
        """The differences that are not results."""
        return tuple(one for one in self.found if one.kind != "results")

    def rows(self) -> list[dict[str, str]]:
        """Returns a row for each difference."""
        first, second = self.names
        shown = ((one, *_told_apart(one.before, one.after)) for one in self.found)
        return [{"kind": one.kind, "what": one.what, first: before, second: after} for one, before, after in shown]

    def __str__(self) -> str:
        lines = [f"{self.names[0]} and {self.names[1]} differ in {len(self)} things"] if self.found else []
        lines = lines or [f"{self.names[0]} and {self.names[1]} do not differ in anything that was recorded"]
        for one in self.found:
            lines += [f"  {one}", *(f"      {line}" for line in one.lines)]
        return "\n".join([*lines, *(f"  not known: {text}" for text in self.unknown)])


def compare_runs(first: RunRecord, second: RunRecord, readers: Sequence[Reader]) -> JobDifference:
    """Returns what differs between two runs.

    Args:
        first, second: the runs.
        readers: for each, what returns the content of a file of its code by digest.
    """
    found = [
        *_code(first, second, readers),
        *_each("specification", flat(_document(first)), flat(_document(second))),
        *_each("data", _data(first), _data(second)),
        *_each("seed", _seeds(first), _seeds(second)),
        *_each("packages", first.part("packages"), second.part("packages")),
        *_each("python", _python(first), _python(second)),
        *_each("threads", first.part("threads"), second.part("threads")),
        *_each("machine", first.part("machine"), second.part("machine")),
        *_each("results", first.results, second.results),
    ]
    return JobDifference((first.name, second.name), tuple(found), tuple(_unknown((first, second))))


def _code(first: RunRecord, second: RunRecord, readers: Sequence[Reader]) -> Iterator[Difference]:
    script = {name: digest for name, digest in first.code.items() if second.code.get(name) != digest}
    for name in sorted({*script, *(second.code.keys() - first.code.keys())}):
        digests = first.code.get(name, ""), second.code.get(name, "")
        yield Difference("code", name, *digests, tuple(_lines(name, digests, readers)))


def _lines(name: str, digests: Sequence[str], readers: Sequence[Reader]) -> Iterator[str]:
    """Yields how the lines of a file differ, up to a limit that says how many more there are."""
    try:
        before, after = [
            reader(digest).decode("utf-8", errors="replace").splitlines() if digest else []
            for digest, reader in zip(digests, readers, strict=True)
        ]
    except NotFoundError as error:
        yield f"its lines are not known: {error}"
        return
    found = list(difflib.unified_diff(before, after, name, name, n=1, lineterm=""))
    yield from found[:LINES]
    if len(found) > LINES:
        yield f"… and {len(found) - LINES} more lines"


def _document(run: RunRecord) -> Mapping[str, object]:
    return run.spec.to_document()


def _data(run: RunRecord) -> Mapping[str, object]:
    """Returns the digests of data and of files that command lines name, without those that are code."""
    files = {path: digest for path, digest in run.spec.content.items() if not (run.code and path.endswith(".py"))}
    return {**files, **run.part("data")}


def _seeds(run: RunRecord) -> Mapping[str, object]:
    return {name: run.training[name] for name in ("seed", "order") if name in run.training}


def _python(run: RunRecord) -> Mapping[str, object]:
    known = {name: run.training.get(name) for name in ("backend", "exchange", "ranks")}
    version = run.training.get("python") or run.node.get("python")
    return {name: value for name, value in {**known, "python": version}.items() if value is not None}


def flat(value: object, place: str = "") -> dict[str, object]:
    """Returns the single values of nested lists and dictionaries by their JSON pointers."""
    parts: Mapping[str, object]
    if isinstance(value, Mapping):
        parts = {str(name): part for name, part in value.items()}
    elif isinstance(value, (list, tuple)):
        parts = {str(number): part for number, part in enumerate(value)}
    else:
        return {place: value}
    found: dict[str, object] = {}
    for name, part in parts.items():
        found |= flat(part, f"{place}/{name}")
    return found


def _each(kind: str, first: Mapping[str, object], second: Mapping[str, object]) -> Iterator[Difference]:
    """Yields what two dictionaries do not have in common; if one of them is empty, nothing is known of it."""
    if not (first and second):
        return
    for name in sorted({*first, *second}):
        if first.get(name) != second.get(name):
            yield Difference(kind, name, _text(first.get(name)), _text(second.get(name)))


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def _told_apart(before: str, after: str) -> tuple[str, str]:
    """Returns two values as they are shown: digests by their first digits, long texts from near where they differ."""
    if _DIGEST.fullmatch(before) or _DIGEST.fullmatch(after):
        return before[:12] or "nothing", after[:12] or "nothing"
    same = len(os.path.commonprefix([before, after]))
    start = max(0, same - _SHOWN // 3) if max(len(before), len(after)) > _SHOWN else 0
    first, second = (f"…{text[start:]}" if start else text for text in (before, after))
    return _short(first), _short(second)


def _short(text: str) -> str:
    text = text.replace("\n", " ") or "nothing"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _unknown(runs: Sequence[RunRecord]) -> Iterator[str]:
    for run in runs:
        if not run.node:
            yield f"{run.name} has not recorded its code, packages and machine; jobs with a script do so at their start"
        elif run.node.get("missing"):
            yield f"{run.name}: {run.node['missing']}"
        if not run.training:
            yield f"{run.name} has not recorded seeds, data and weights (trainings with hvd or the trainer do)"
