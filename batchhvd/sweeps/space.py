"""Parameter spaces: which points a sweep tries."""

from __future__ import annotations

import itertools
import math
import random as randomness
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from attrs import field, frozen

from batchhvd.errors import SpecError

Value = str | int | float | bool
Point = Mapping[str, Value]

MOST = 100_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@frozen
class Dimension:
    """What a random value of one name is drawn from; made by ``uniform``, ``loguniform``, ``integer`` or ``choice``.

    Attributes:
        text: how it was written, such as ``loguniform(0.001, 0.1)``.
        kind: the name of the function that made it.
        given: what that was given: the lowest and the highest value, or the values of a choice.
    """

    text: str
    kind: str
    given: tuple[Value, ...]
    _draw: Callable[[randomness.Random], Value] = field(eq=False, repr=False)

    def draw(self, source: randomness.Random) -> Value:
        """Returns one value."""
        return self._draw(source)


def uniform(low: float, high: float) -> Dimension:
    """Real numbers from ``low`` to ``high``, each as likely as another."""
    _ordered("uniform", low, high)
    return Dimension(f"uniform({low!r}, {high!r})", "uniform", (low, high), lambda source: source.uniform(low, high))


def loguniform(low: float, high: float) -> Dimension:
    """Real numbers from ``low`` to ``high``, each order of magnitude as likely as another; for learning rates."""
    _ordered("loguniform", low, high)
    if low <= 0:
        raise SpecError(f"loguniform needs numbers above 0, not {low!r}", remedy="take uniform, or a higher number")

    def draw(source: randomness.Random) -> float:
        return min(high, max(low, math.exp(source.uniform(math.log(low), math.log(high)))))

    return Dimension(f"loguniform({low!r}, {high!r})", "loguniform", (low, high), draw)


def integer(low: int, high: int) -> Dimension:
    """Whole numbers from ``low`` to ``high``, both included."""
    if not all(isinstance(one, int) and not isinstance(one, bool) for one in (low, high)):
        raise SpecError(f"integer needs whole numbers, not {low!r} and {high!r}", remedy="take uniform")
    _ordered("integer", low, high)
    return Dimension(f"integer({low}, {high})", "integer", (low, high), lambda source: source.randint(low, high))


def choice(*values: Value) -> Dimension:
    """One of some values, each as likely as another."""
    if not values:
        raise SpecError("choice needs at least one value", remedy="give values such as choice(32, 64)")
    return Dimension(f"choice({', '.join(map(repr, values))})", "choice", values, lambda source: source.choice(values))


@frozen
class Space:
    """The points of a sweep, in order; the same call makes the same points.

    Attributes:
        points: values by name, for each trial.
        text: how it was written, for people.
    """

    points: tuple[Point, ...]
    text: str

    def __attrs_post_init__(self) -> None:
        if not self.points:
            raise SpecError("a sweep needs at least one point", remedy="give values for at least one name")
        if len(self.points) > MOST:
            raise SpecError(f"{len(self.points)} points are more than {MOST}", remedy="give fewer values, or draw some")
        for point in self.points:
            checked(point, self.points[0])

    def __len__(self) -> int:
        return len(self.points)

    @property
    def names(self) -> tuple[str, ...]:
        """The names that each point has values for."""
        return tuple(self.points[0])


def grid(**values: Sequence[Value]) -> Space:
    """Every combination of some values, the last name's changing fastest.

    Raises:
        SpecError: a name has no values, or there are more than 100,000 combinations.
    """
    lists = {name: _list(name, given) for name, given in values.items()}
    count = math.prod(len(given) for given in lists.values()) if lists else 0
    if count > MOST:
        raise SpecError(f"{count} combinations are more than {MOST}", remedy="give fewer values, or draw some of them")
    found = tuple(dict(zip(lists, row, strict=True)) for row in itertools.product(*lists.values())) if lists else ()
    return Space(found, f"grid of {' x '.join(f'{len(given)} {name}' for name, given in lists.items())}")


def random(n: int, *, seed: int = 0, **dimensions: Dimension | Sequence[Value]) -> Space:
    """Some points drawn at random.

    Args:
        n: how many.
        seed: another one gives other points; the same one the same points, on every machine.
        dimensions: what each name's values are drawn from; a list is a ``choice``.
    """
    if not isinstance(n, int) or n < 1:
        raise SpecError(f"n must be a whole number of at least 1, not {n!r}", remedy="give a number such as 20")
    if n > MOST:
        raise SpecError(f"{n} points are more than {MOST}", remedy="draw fewer")
    drawn = named_dimensions(dimensions)
    source = randomness.Random(seed)
    found = tuple({name: one.draw(source) for name, one in drawn.items()} for _ in range(n)) if drawn else ()
    return Space(found, f"{n} random: {', '.join(f'{name} {one.text}' for name, one in drawn.items())}; seed {seed}")


def named_dimensions(given: Mapping[str, Dimension | Sequence[Value]]) -> dict[str, Dimension]:
    """Returns what each name's values are drawn from; a list is a ``choice``."""
    return {name: one if isinstance(one, Dimension) else choice(*_list(name, one)) for name, one in given.items()}


def points(given: Iterable[Point]) -> Space:
    """Points that were made elsewhere: values by name, the same names for each."""
    found = tuple(dict(point) for point in given)
    return Space(found, f"{len(found)} points")


def _ordered(name: str, low: float, high: float) -> None:
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise SpecError(f"{name} needs a lower and a higher number, not {low!r} and {high!r}", remedy="swap them")


def _list(name: str, given: object) -> list[Value]:
    if isinstance(given, Dimension):
        raise SpecError(f"{name} is {given.text}, which has no end", remedy="draw from it with random(n, …)")
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise SpecError(f"{name} needs a list of values, not {given!r}", remedy=f"give {name}=[{given!r}]")
    found = list(given)
    if not found:
        raise SpecError(f"{name} has no values", remedy="give at least one")
    return found


def checked(point: Point, first: Point) -> None:
    """Raises SpecError if a point is none, or has other names than the first."""
    if point.keys() != first.keys():
        raise SpecError(f"a point has {sorted(point)}, another one {sorted(first)}", remedy="give each the same names")
    for name, value in point.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise SpecError(f"{name!r} is no name of a parameter", remedy="use letters, digits and _, such as rate")
        if not isinstance(value, (str, int, float, bool)) or (isinstance(value, float) and not math.isfinite(value)):
            raise SpecError(f"{name} is {value!r}", remedy="give text, a finite number, or True or False")
