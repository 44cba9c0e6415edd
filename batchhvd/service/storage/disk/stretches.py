"""Sets of stretches of a file, each its first and last byte: few, so that a record of them stays small."""

from __future__ import annotations

from collections.abc import Iterable

Stretch = tuple[int, int]
"""First and last byte."""

MOST = 128
"""How many stretches a set has. Beyond it, the two nearest to each other become one, with what lies between."""


def joined(stretches: Iterable[Stretch], new: Stretch, most: int = MOST) -> list[Stretch]:
    """Returns a set with one stretch more, in order."""
    found = united([*stretches, new])
    while len(found) > most:
        at = min(range(1, len(found)), key=lambda at: found[at][0] - found[at - 1][1])
        found[at - 1 : at + 1] = [(found[at - 1][0], found[at][1])]
    return found


def united(stretches: Iterable[Stretch]) -> list[Stretch]:
    """Returns stretches in order; those that touch or overlap are one."""
    found: list[Stretch] = []
    for first, last in sorted(stretches):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found
