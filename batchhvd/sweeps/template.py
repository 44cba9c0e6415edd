"""Where a point's values go: ``{rate}`` in the texts of a spec, and variables of each process."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from attrs import evolve, fields, has

from batchhvd.errors import SpecError
from batchhvd.spec.job import JobSpec
from batchhvd.sweeps.space import Point, Value
from batchhvd.wire.facts.job_variables import POINT

# Not the shell's ${NAME}, and not JSON or Python's own braces, which have more than a name in them.
_PLACE = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_]*)\}")
_KEPT = frozenset({"secrets", "content", "warnings", "cluster", "nodes"})


def check(spec: JobSpec, names: tuple[str, ...]) -> list[str]:
    """Returns the names that a spec has no place for.

    Raises:
        SpecError: the spec has places that no name stands for.
    """
    places = set(_places(spec))
    strange = sorted(places - set(names))
    if strange:
        known = ", ".join("{" + name + "}" for name in names)
        remedy = f"the space has {known}; braces that are no place need blanks inside: {{ {strange[0]} }}"
        raise SpecError(f"nothing stands for {{{strange[0]}}} in the job", remedy=remedy)
    return [name for name in names if name not in places]


def fill(spec: JobSpec, point: Point) -> JobSpec:
    """Returns the spec of one trial.

    The values are in the environment, too: each as ``PARAM_NAME`` (as Batch AI's own tools for sweeps called them), and
    all of them in ``BATCHHVD_POINT`` as JSON.
    """
    filled = _filled(spec, point)
    assert isinstance(filled, JobSpec)
    own = {f"PARAM_{name.upper()}": written(value) for name, value in point.items()}
    return evolve(filled, environment={**filled.environment, **own, POINT: json.dumps(dict(point), sort_keys=True)})


def written(value: Value) -> str:
    """Returns how a value is written into a command line: numbers so that they read back as the same number."""
    return value if isinstance(value, str) else repr(value)


def _filled(value: object, point: Point) -> object:
    if isinstance(value, str):
        return _PLACE.sub(lambda match: written(point[match[1]]), value)
    if isinstance(value, Mapping):
        return {name: _filled(inner, point) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_filled(inner, point) for inner in value)
    texts = dict(_texts(value))
    return evolve(cast("Any", value), **{name: _filled(one, point) for name, one in texts.items()}) if texts else value


def _places(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield from _PLACE.findall(value)
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _places(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _places(inner)
    else:
        for _, inner in _texts(value):
            yield from _places(inner)


def _texts(value: object) -> Iterator[tuple[str, object]]:
    """Yields those fields of an attrs value that may hold places."""
    kind = type(value)
    for one in fields(kind) if has(kind) else ():
        if one.init and one.name not in _KEPT:
            yield str(one.alias), getattr(value, one.name)
