"""Durations on the wire: written by ISO 8601 as the Azure clients do, read in the description's own spelling too."""

from __future__ import annotations

import re

from batchhvd.errors import SpecError

_ISO = re.compile(r"P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
_SPAN = re.compile(r"(?:(\d+)\.)?(\d{1,2}):(\d\d):(\d\d(?:\.\d+)?)")  # 7.00:00:00, days before the dot


def seconds(text: str) -> float:
    """Returns the seconds of a duration such as ``"PT1H30M"`` or ``"7.00:00:00"``.

    Raises:
        SpecError: the text is no duration.
    """
    iso, span = _ISO.fullmatch(text), _SPAN.fullmatch(text)
    if iso and any(iso.groups()):
        weeks, *rest = (float(part or 0) for part in iso.groups())
        days, hours, minutes, rest_seconds = weeks * 7 + rest[0], *rest[1:]
    elif span:
        days, hours, minutes, rest_seconds = (float(part or 0) for part in span.groups())
    else:
        raise SpecError(f'"{text}" is no duration', remedy='write "PT1H30M" or "0.01:30:00" for an hour and a half')
    return days * 86400 + hours * 3600 + minutes * 60 + rest_seconds


def text(duration: float) -> str:
    """Returns seconds (at least 0) as ISO 8601, such as ``"P1DT2H"``; a thousandth of a second is the finest."""
    rest = round(duration * 1000)
    days, rest = divmod(rest, 86_400_000)
    hours, rest = divmod(rest, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    parts = [(hours, "H"), (minutes, "M"), (rest / 1000, "S")]
    time = "".join(f"{number:g}{unit}" if unit != "S" else f"{number:.10g}S" for number, unit in parts if number)
    day = f"{days}D" if days else ""
    return f"P{day}" + (f"T{time}" if time else "") if day or time else "PT0S"
