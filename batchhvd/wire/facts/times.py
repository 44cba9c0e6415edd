"""Durations and moments as the wire writes them: one reader and one writer of each."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

_ISO = re.compile(r"P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.ASCII)
_SPAN = re.compile(r"(?:(\d+)\.)?(\d+):(\d+):(\d+(?:\.\d+)?)", re.ASCII)  # 7.00:00:00, days before the dot


def read_duration(text: str) -> timedelta | None:
    """Returns the length of ``"P7DT1H2M3S"`` or of the description's own spelling ``"7.01:02:03"``.

    Returns:
        The duration, or None when the text is neither, too long for Python, or below 0.1 ms without being 0, which not
        every reader takes.
    """
    iso, span = _ISO.fullmatch(text), _SPAN.fullmatch(text)
    if iso is not None and any(iso.groups()):
        weeks, days, hours, minutes, seconds = (float(part or 0) for part in iso.groups())
    elif span is not None:
        weeks = 0.0
        days, hours, minutes, seconds = (float(part or 0) for part in span.groups())
    else:
        return None
    if 0 < seconds < 1e-4 and not any((weeks, days, hours, minutes)):
        return None
    try:
        return timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
    except OverflowError:
        return None


def write_duration(length: timedelta) -> str:
    """Returns a duration of at least 0 in ISO 8601, such as ``"P1DT2H"`` or ``"PT2.5S"``; microseconds are kept."""
    hours, rest = divmod(length.seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    fraction = f".{length.microseconds:06d}".rstrip("0") if length.microseconds else ""
    parts = [f"{hours}H" if hours else "", f"{minutes}M" if minutes else ""]
    parts.append(f"{seconds}{fraction}S" if seconds or fraction else "")
    day, time = f"{length.days}D" if length.days else "", "".join(parts)
    return f"P{day}" + (f"T{time}" if time else "") if day or time else "PT0S"


def read_moment(text: str) -> datetime:
    """Returns a time of the wire (ISO 8601) with its zone.

    Raises:
        ValueError: the text is not a time.
    """
    # Python 3.10 reads neither "Z" nor seven digits behind the point, which Azure writes.
    digits = re.sub(r"(\.\d{6})\d+", r"\1", text.replace("Z", "+00:00"))
    return datetime.fromisoformat(re.sub(r"\.(\d{1,5})(?=\D)", lambda part: f".{part[1]:0<6}", digits))


def took(start: datetime, end: datetime) -> str:
    """Returns the time between two moments for people: ``4.2 s``, ``3 min 05 s`` or ``2 h 10 min``."""
    seconds = max((end - start).total_seconds(), 0.0)
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, hours = int(seconds // 60), int(seconds // 3600)
    return f"{minutes} min {int(seconds % 60):02} s" if not hours else f"{hours} h {minutes % 60:02} min"


def write_moment(seconds: float) -> str:
    """Returns seconds since 1970 as the wire shows a time: in UTC, such as ``"2018-05-01T00:00:00.000Z"``."""
    moment = datetime.fromtimestamp(seconds, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
